// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/prompts.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/samples.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

MappedFile fields_of(const fs::path& prefix) {
  const fs::path path = fields_path(prefix);
  std::error_code no;
  require(fs::exists(path, no) || no, Exit::missing,
          "{}: does not exist; `gyrfalcon data build FILE {} --prompts` makes it from the lines of the prompts", path.string(), prefix.string());
  return MappedFile(path);
}

std::vector<std::int64_t> begins_of_lines(std::string_view text) {
  std::vector<std::int64_t> begins;
  for (std::size_t at = 0; at < text.size();) {
    begins.push_back(std::int64_t(at));
    const auto end = text.find('\n', at);
    at = end == text.npos ? text.size() : end + 1;
  }
  return begins;
}

std::string place_in(const fs::path& fields, std::int64_t line) { return fmt::format("line {} of {}", line + 1, fields.string()); }

}  // namespace

fs::path fields_path(const fs::path& prefix) { return fs::path(prefix) += "_fields.jsonl"; }

Prompts::Prompts(const std::vector<fs::path>& prefixes, std::int64_t vocab_size) {
  require(!prefixes.empty(), Exit::config, "there are no prompts; name the PREFIX of at least one file of `gyrfalcon data build --prompts`");
  std::vector<std::unique_ptr<TokenFile>> files;
  for (const fs::path& prefix : prefixes) files.push_back(std::make_unique<TokenFile>(prefix));
  check_fingerprints(files, vocab_size);
  for (auto& file : files) {
    parts_.push_back(open(std::move(file), vocab_size, size_));
    const TokenFile& tokens = *parts_.back().tokens;
    size_ += tokens.sequences();
    for (std::int64_t s = 0; s < tokens.sequences(); ++s) longest_ = std::max(longest_, tokens.length(s));
  }
  require(size_ > 0, Exit::data, "{}: holds no prompt", index_path(prefixes.front()).string());
}

Prompts::Part Prompts::open(std::unique_ptr<TokenFile> tokens, std::int64_t vocab_size, std::int64_t first) {
  const fs::path prefix = tokens->prefix();
  Part part{std::move(tokens), fields_of(prefix), {}, first};
  part.begins = begins_of_lines(part.fields.text());
  const std::string name = part.fields.path().string();
  const std::int64_t prompts = part.tokens->sequences();
  require(std::int64_t(part.begins.size()) == prompts, Exit::data,
          "{}: has {} lines, but {} has {} prompts; the files do not belong together: build them again with --prompts --overwrite", name,
          part.begins.size(), index_path(prefix).string(), prompts);
  part.tokens->check_tokens(vocab_size);
  for (std::int64_t i = 0; i < prompts; ++i) {
    require(part.tokens->length(i) > 0, Exit::data, "{}: prompt {} has no tokens; build the files again with --prompts", index_path(prefix).string(),
            i + 1);
    require(json_in(part.line(i)).is_object(), Exit::data, "{}: is not a JSON object; build the files again with --prompts --overwrite",
            place_in(name, i));
  }
  return part;
}

std::string_view Prompts::Part::line(std::int64_t i) const {
  const auto at = std::size_t(i), begin = std::size_t(begins[at]);
  return fields.text().substr(begin, (at + 1 < begins.size() ? std::size_t(begins[at + 1]) : fields.size()) - begin);
}

const Prompts::Part& Prompts::part_of(std::int64_t prompt) const {
  ensure(prompt >= 0 && prompt < size_, "prompt {} of {} does not exist", prompt, size_);
  return *std::prev(
      std::upper_bound(parts_.begin(), parts_.end(), prompt, [](std::int64_t number, const Part& part) { return number < part.first; }));
}

std::vector<std::int32_t> Prompts::tokens(std::int64_t prompt) const {
  const Part& part = part_of(prompt);
  std::vector<std::int32_t> ids(std::size_t(part.tokens->length(prompt - part.first)));
  part.tokens->read(prompt - part.first, 0, ids);
  return ids;
}

Json Prompts::fields(std::int64_t prompt) const {
  const Part& part = part_of(prompt);
  return json_in(part.line(prompt - part.first));
}

std::string Prompts::place(std::int64_t prompt) const {
  const Part& part = part_of(prompt);
  return place_in(part.fields.path(), prompt - part.first);
}

std::int64_t Prompts::line_of(std::int64_t n, std::uint64_t seed) const {
  ensure(n >= 0, "prompt number {} of a run is negative", n);
  return permuted(n % size_, size_, epoch_key(seed, n / size_));
}

}  // namespace gyr
