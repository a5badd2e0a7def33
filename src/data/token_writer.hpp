// SPDX-License-Identifier: BSD-3-Clause
// Writes a tokenized corpus (token_file.hpp), token by token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/base/output_file.hpp"
#include "src/data/token_file.hpp"

namespace gyr {

// Two bytes per token for vocabularies below 65500, four for larger ones: the rule by which Megatron-LM's tools write.
constexpr TokenType token_type_for(std::int64_t vocab_size) { return vocab_size < 65500 ? TokenType::u16 : TokenType::i32; }

// `ids` as they lie in the file, appended to `bytes`.
void append_tokens(std::string& bytes, std::span<const std::int32_t> ids, TokenType type);

// The first 34 bytes of an index.
std::string index_header(TokenType type, std::int64_t sequences, std::int64_t documents);

// Puts the two finished temporary files in place. The old index goes first and the new one comes last, so that an index
// never stands beside tokens that are not its own, whenever the run is killed.
void commit_pair(const std::filesystem::path& prefix, OutputFile& tokens, OutputFile& index);

// Every document is one sequence. Files appear under their names in finish(); until then, and if anything fails, there
// are only temporary ones, which the destructor removes. Failures are Exit::io, with the reason.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& prefix, std::int64_t vocab_size);

  // Appends to the current document. Exit::data for an id outside the vocabulary, or a document of 2^31 tokens.
  void add(std::span<const std::int32_t> ids);
  void end_document();
  void finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return std::int64_t(lengths_.size()); }

 private:
  std::filesystem::path prefix_;
  std::int64_t vocab_size_;
  TokenType type_;
  OutputFile bin_, index_;
  std::vector<std::int32_t> lengths_;
  std::int64_t tokens_ = 0, open_ = 0;  // written; of them, in the current document
  std::string buffer_;
};

}  // namespace gyr
