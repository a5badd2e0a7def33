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

// Megatron-LM's rule: two bytes per token for vocabularies below 65500, four bytes for larger ones.
constexpr TokenType token_type_for(std::int64_t vocab_size) { return vocab_size < 65500 ? TokenType::u16 : TokenType::i32; }

// Appends `ids` to `bytes` in the format of the token file.
void append_tokens(std::string& bytes, std::span<const std::int32_t> ids, TokenType type);

// Returns the 34-byte header of an index file.
std::string index_header(TokenType type, std::int64_t sequences, std::int64_t documents);

// Renames the two finished temporary files to their final names. The old index is removed first and the new one is
// renamed last. An index is therefore never combined with other tokens, even if the run is killed.
void commit_pair(const std::filesystem::path& prefix, OutputFile& tokens, OutputFile& index);

// Each document is one sequence. finish() gives the files their final names. Before that, and after any failure, only
// temporary files exist, which the destructor removes. Failures are Exit::io with the reason.
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
  std::int64_t tokens_ = 0, open_ = 0;  // number of tokens written; number of tokens in the current document
  std::string buffer_;
};

}  // namespace gyr
