// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/fingerprint.hpp"

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view fingerprint_format = "gyrfalcon tokens 1", fingerprint_start = "{\n  \"format\": \"gyrfalcon tokens ";
constexpr std::size_t most_fingerprint = std::size_t(64) << 20;

std::string described_tokenizer(const TokenizerMark& t) { return fmt::format("{} ({} bytes, XXH3 {})", t.file, t.bytes, t.sum); }

}  // namespace

SequenceSum SequenceSum::of(std::uint64_t sum, std::uint64_t power) {
  SequenceSum s;
  s.sum_ = sum, s.power_ = power;
  return s;
}

bool same_tokenizer(const TokenizerMark& a, const TokenizerMark& b) { return a.sum == b.sum && a.bytes == b.bytes; }

TokenizerMark mark_of(const fs::path& tokenizer) {
  const SummedFile file(tokenizer);
  std::error_code error;
  return {fs::absolute(tokenizer, error).lexically_normal().string(), file.bytes(), hex(file.sum()), 0};
}

fs::path fingerprint_path(const fs::path& prefix) { return fs::path(prefix) += ".json"; }

std::string text_of(const Fingerprint& f) {
  Json sources = Json::array(), options = Json::object();
  for (const auto& [file, bytes] : f.sources) sources.push_back({{"file", file}, {"bytes", bytes}});
  for (const auto& [name, value] : f.options) options[name] = value;
  const TokenizerMark& t = f.tokenizer;
  return json_text({{"format", fingerprint_format},
                    {"program", f.program},
                    {"tokenizer", {{"file", t.file}, {"bytes", t.bytes}, {"xxh3", t.sum}, {"vocab_size", t.tokens}}},
                    {"documents", f.documents},
                    {"tokens", f.tokens},
                    {"content", f.content},
                    {"options", options},
                    {"sources", sources}},
                   2) +
         "\n";
}

bool is_fingerprint(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::string start(fingerprint_start.size(), ' ');
  return InputFile(path).read(0, start.data(), start.size()) == start.size() && start == fingerprint_start;
}

std::optional<Fingerprint> fingerprint_of(const fs::path& prefix) {
  const fs::path path = fingerprint_path(prefix);
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  require(type == fs::file_type::regular || type == fs::file_type::not_found, Exit::data,
          "{}: is not a regular file, so that the token files cannot be checked; remove it to use them unchecked", path.string());
  if (!is_fingerprint(path)) return {};
  try {
    const Json json = json_in(text_of_file(path, most_fingerprint));
    const Json& t = json.at("tokenizer");
    Fingerprint f;
    const auto text = [](const Json& object, const char* key) { return object.at(key).get<std::string>(); };
    const auto count = [](const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); };
    f.tokenizer = {text(t, "file"), count(t, "bytes"), text(t, "xxh3"), count(t, "vocab_size")};
    f.documents = count(json, "documents"), f.tokens = count(json, "tokens");
    f.content = text(json, "content"), f.program = text(json, "program");
    for (const Json& source : json.at("sources")) f.sources.emplace_back(text(source, "file"), count(source, "bytes"));
    for (const auto& [name, value] : json.at("options").items()) f.options.emplace_back(name, value.get<std::string>());
    return f;
  } catch (const Json::exception& problem) {
    fail(Exit::data, "{}: is a damaged fingerprint of token files: {}; build the token files again, or remove this file to use them unchecked",
         path.string(), problem.what());
  }
}

void require_described(const TokenFile& file, const Fingerprint& f) {
  require(f.tokens == file.tokens() && f.documents == file.documents(), Exit::data,
          "{0}.json: describes {1} tokens in {2} documents, but {0}.bin has {3} in {4}: another program has replaced it; build the token files "
          "again, or remove {0}.json to use them unchecked",
          file.prefix().string(), f.tokens, f.documents, file.tokens(), file.documents());
}

void check_fingerprints(const std::vector<std::unique_ptr<TokenFile>>& files, std::int64_t vocab_size) {
  std::optional<Fingerprint> first;
  fs::path first_prefix;
  for (const auto& file : files) {
    const std::string prefix = file->prefix().string();
    const auto f = fingerprint_of(prefix);
    if (!f) continue;
    require_described(*file, *f);
    if (f->tokenizer.sum.empty()) continue;
    require(
        f->tokenizer.tokens <= vocab_size, Exit::data,
        "{}: was made with a tokenizer of {} tokens, {}, but the model's vocabulary has {}; raise model.vocab_size, or build the token files with "
        "the model's tokenizer",
        prefix, f->tokenizer.tokens, f->tokenizer.file, vocab_size);
    require(!first || same_tokenizer(first->tokenizer, f->tokenizer), Exit::data,
            "{} and {} were made with different tokenizers, {} and {}; build one of them again with the tokenizer of the other",
            first_prefix.string(), prefix, first ? described_tokenizer(first->tokenizer) : "", described_tokenizer(f->tokenizer));
    if (!first) first = f, first_prefix = prefix;
  }
}

void require_tokenizer(const std::vector<fs::path>& prefixes, const fs::path& tokenizer, const std::string& name) {
  std::error_code error;
  if (tokenizer.empty() || !fs::is_regular_file(tokenizer, error)) return;
  std::optional<TokenizerMark> mark;
  for (const fs::path& prefix : prefixes) {
    const auto f = fingerprint_of(prefix);
    if (!f || f->tokenizer.sum.empty()) continue;
    if (!mark) mark = mark_of(tokenizer);
    require(same_tokenizer(f->tokenizer, *mark), Exit::data,
            "{}: was made with the tokenizer {}, but {} is {}; build the token files again (gyrfalcon data build ... --tokenizer {} --overwrite), "
            "or, for "
            "a new model, name their tokenizer",
            prefix.string(), described_tokenizer(f->tokenizer), name, described_tokenizer(*mark), tokenizer.string());
  }
}

}  // namespace gyr
