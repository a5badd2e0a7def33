// SPDX-License-Identifier: BSD-3-Clause
// Fingerprint of a corpus, in PREFIX.json: the tokenizer, sources and options that `data build` made PREFIX.bin from, and
// a checksum of the content. Token files of Megatron-LM and of older versions have none and are not checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

// All members are empty if the token ids were given, so that no tokenizer is known.
struct TokenizerMark {
  std::string file;         // absolute path of tokenizer.json
  std::int64_t bytes = 0;   // its size
  std::string sum;          // its XXH3 checksum, 16 hexadecimal digits
  std::int64_t tokens = 0;  // size of the vocabulary; 0: not known
};
// Reads the complete file. Errors of InputFile.
TokenizerMark mark_of(const std::filesystem::path& tokenizer);

bool same_tokenizer(const TokenizerMark&, const TokenizerMark&);

struct Fingerprint {
  TokenizerMark tokenizer;
  std::int64_t documents = 0, tokens = 0;
  std::string content;                                        // checksum of token ids, loss mask, labels and fields, 16 hexadecimal digits
  std::vector<std::pair<std::string, std::int64_t>> sources;  // input files with their sizes in bytes
  std::vector<std::pair<std::string, std::string>> options;   // options of `data build` that were given
  std::string program;                                        // program with its version

  // Text that differs if the tokenizer or the content does: checksum of the tokenizer and of the content.
  std::string id() const { return tokenizer.sum + "-" + content; }
};

std::filesystem::path fingerprint_path(const std::filesystem::path& prefix);
std::string text_of(const Fingerprint&);
// True if the file begins as fingerprints do. False if it does not exist.
bool is_fingerprint(const std::filesystem::path& file);
// nullopt if PREFIX.json does not exist or is not a fingerprint. Exit::data if it is a damaged one.
std::optional<Fingerprint> fingerprint_of(const std::filesystem::path& prefix);

// Exit::data if the fingerprint does not describe the file, because another program has replaced the file.
void require_described(const TokenFile&, const Fingerprint&);
// Exit::data if a fingerprint does not describe its files, if it was made with a tokenizer of more than `vocab_size`
// tokens, or if two corpora were made with different tokenizers.
void check_fingerprints(const std::vector<std::unique_ptr<TokenFile>>& files, std::int64_t vocab_size);
// Exit::data if a corpus was made with another tokenizer than `tokenizer`, which messages call `name`. Not checked if the
// file `tokenizer` does not exist.
void require_tokenizer(const std::vector<std::filesystem::path>& prefixes, const std::filesystem::path& tokenizer, const std::string& name);

// Checksum of a sequence of values, which are taken in parts by several ranks: sum over i of r^i value_i mod 2^64, r odd.
class SequenceSum {
 public:
  void add(std::uint64_t value) { sum_ += value * power_, power_ *= ratio; }
  void append(const SequenceSum& next) { sum_ += next.sum_ * power_, power_ *= next.power_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t power() const { return power_; }
  static SequenceSum of(std::uint64_t sum, std::uint64_t power);

 private:
  static constexpr std::uint64_t ratio = 0x9e3779b97f4a7c15u;
  std::uint64_t sum_ = 0, power_ = 1;
};

}  // namespace gyr
