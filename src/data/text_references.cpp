// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/text_references.hpp"

#include <cmath>
#include <limits>

#include "kernels/base/printable.hpp"
#include "src/base/mapped_file.hpp"
#include "src/data/json_line.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {
constexpr double missing_reference = std::numeric_limits<double>::quiet_NaN();

double number_of(const json_line::json& row, const char* key) {
  const json_line::json& value = json_line::value_of(row, key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) json_line::refuse("has {} under '{}', not a number", json_line::kind_of(value), key);
  return value.get<double>();
}
}  // namespace

fs::path references_path(const fs::path& prefix) { return fs::path(prefix) += "_reference.jsonl"; }

TextReferences::TextReferences(const TokenFile& tokens, References which) : path_(references_path(tokens.prefix())) {
  const std::string prefix = tokens.prefix().string();
  require(tokens.sequences() % 2 == 0, Exit::data, "{}: {} sequences do not form pairs; build them with `gyrfalcon data build --pairs`", prefix,
          tokens.sequences());
  if (which == References::none) return;
  const bool there = fs::exists(path_);
  require(there || which == References::optional, Exit::missing,
          "{}: does not exist, but the loss needs the log-probabilities of a reference model; name it in the deck, as in "
          "models.reference.init_from=MODEL, or write the file with `gyrfalcon eval MODEL --objective preference --data {} --records {}`",
          path_.string(), prefix, path_.string());
  if (!there) return;
  of_sequences_.assign(std::size_t(tokens.sequences()), missing_reference);
  read(path_);
}

void TextReferences::read(const fs::path& file) {
  const MappedFile mapped(file);
  std::string_view text = mapped.text();
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    try {
      if (line == 1) read_model(text.substr(0, end));
      if (line > 1 || model_.empty()) read_line(text.substr(0, end));
    } catch (const json_line::Problem& problem) {
      fail(Exit::data, "{}:{}: the line {}; write the file again with `gyrfalcon eval --records`", file.string(), line, problem.what);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void TextReferences::read_model(std::string_view line) {
  const json_line::json row = json_line::parse_object(line);
  if (!row.contains("model")) return;
  const auto word = [&](const char* key) {
    const json_line::json& value = json_line::value_of(row, key);
    if (!value.is_string()) json_line::refuse("has {} under '{}', not a string", json_line::kind_of(value), key);
    return printable(value.get<std::string>());
  };
  model_ = fmt::format("{} (XXH3 {})", word("model"), word("xxh3"));
}

std::string TextReferences::note() const {
  if (of_sequences_.empty()) return {};
  return fmt::format("{}: the reference model is {}", path_.string(), model_.empty() ? "not named in the file" : model_);
}

void TextReferences::read_line(std::string_view line) {
  const json_line::json row = json_line::parse_object(line), &pair = json_line::value_of(row, "pair");
  const auto pairs = std::int64_t(of_sequences_.size() / 2);
  if (!pair.is_number_integer() || pair.get<double>() < 0 || pair.get<double>() >= double(pairs))
    json_line::refuse("is for pair {}, but the data have {} pairs, numbered from 0", pair.dump(), pairs);
  const auto at = 2 * pair.get<std::size_t>();
  if (!std::isnan(of_sequences_[at])) json_line::refuse("is the second line for pair {}", at / 2);
  of_sequences_[at] = number_of(row, "chosen"), of_sequences_[at + 1] = number_of(row, "rejected");
}

double TextReferences::of(std::int64_t sequence) const {
  if (of_sequences_.empty()) return 0;
  const double reference = of_sequences_[std::size_t(sequence)];
  require(!std::isnan(reference), Exit::data,
          "{}: pair {} is missing; write the file again with `gyrfalcon eval --records` and a --length of at least "
          "train.seq_length",
          path_.string(), sequence / 2);
  return reference;
}

}  // namespace gyr
