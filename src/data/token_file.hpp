// SPDX-License-Identifier: BSD-3-Clause
// A tokenized corpus on disk. PREFIX.bin holds the concatenated tokens. PREFIX.idx holds the positions of sequences and
// documents. The format is that of Megatron-LM's indexed datasets, version 1, little-endian and unaligned:
//
//   0        9 bytes  "MMIDIDX" 0 0          N  sequences
//   9        u64      version, 1             D  documents + 1
//   17       u8       type of the tokens
//   18, 26   u64      N, D
//   34       i32[N]   tokens of each sequence
//   34+4N    i64[N]   byte of .bin at which each sequence begins
//   34+12N   i64[D]   sequence at which each document begins; first 0, last N
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "src/base/mapped_file.hpp"

namespace gyr {

inline constexpr std::string_view index_magic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t index_version = 1;
inline constexpr std::int64_t index_header_bytes = 34;

// Codes of the token types in the .idx. Floating-point types (6, 7) are not tokens.
enum class TokenType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };
std::int64_t bytes_of(TokenType type);

// Paths of PREFIX.bin and PREFIX.idx. A prefix may contain dots.
std::filesystem::path tokens_path(const std::filesystem::path& prefix);
std::filesystem::path index_path(const std::filesystem::path& prefix);

class TokenFile {
 public:
  // Maps both files into memory and checks the index for consistency with itself and with the size of .bin.
  // Exit::missing if a file does not exist. Exit::data, with file and byte, for any contradiction.
  explicit TokenFile(const std::filesystem::path& prefix);

  const std::filesystem::path& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }

  std::int64_t length(std::int64_t sequence) const { return at<std::int32_t>(lengths_, sequence); }
  // Number of tokens in .bin before `sequence`, which may be sequences().
  std::int64_t first_token(std::int64_t sequence) const;
  // First sequence of `document`. documents() is a valid argument and gives sequences().
  std::int64_t first_sequence(std::int64_t document) const { return at<std::int64_t>(document_starts_, document); }

  // Fill `out` with tokens, from `offset` of `sequence` on, or from token `position` of the file on. Exit::data, with
  // file and byte, for an id that is negative or not below `vocab_size`.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out, std::int64_t vocab_size = max_vocab) const;
  void read_stream(std::int64_t position, std::span<std::int32_t> out, std::int64_t vocab_size = max_vocab) const;

  // Reads all tokens. Exit::data for an id that is negative or not below `vocab_size`. Returns the largest id, or -1 if
  // there are no tokens.
  std::int32_t check_tokens(std::int64_t vocab_size = max_vocab) const;

  static constexpr std::int64_t max_vocab = std::int64_t(1) << 31;

 private:
  // Element i of the index array at byte `array`. memcpy, because the arrays are unaligned.
  template <class T>
  T at(std::int64_t array, std::int64_t i) const {
    T value;
    std::memcpy(&value, index_.data() + array + i * std::int64_t(sizeof(T)), sizeof(T));
    return value;
  }
  void check_header();
  void check_sequences();
  void check_documents() const;

  std::filesystem::path prefix_;
  MappedFile index_, bin_;
  TokenType type_{};
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  std::int64_t lengths_ = 0, pointers_ = 0, document_starts_ = 0;  // byte offsets of the three arrays in the index
};

// Exit::data unless `file` (a loss mask or labels; `what` is its name in messages) has the same sequences, with the
// same lengths, as `tokens`.
void require_same_sequences(const TokenFile& file, const TokenFile& tokens, const char* what);

}  // namespace gyr
