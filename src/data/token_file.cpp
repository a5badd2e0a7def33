// SPDX-License-Identifier: BSD-3-Clause
// Opens a tokenized corpus and checks it before use.
#include "src/data/token_file.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian and are read as they are");

// Calls action(T{}) with the C++ type of the tokens.
template <class Action>
void with_type(TokenType type, Action&& action) {
  switch (type) {
    case TokenType::u8: return action(std::uint8_t{});
    case TokenType::i8: return action(std::int8_t{});
    case TokenType::i16: return action(std::int16_t{});
    case TokenType::i32: return action(std::int32_t{});
    case TokenType::i64: return action(std::int64_t{});
    case TokenType::u16: return action(std::uint16_t{});
  }
}

}  // namespace

std::int64_t bytes_of(TokenType type) {
  std::int64_t bytes = 0;
  with_type(type, [&](auto token) { bytes = sizeof token; });
  return bytes;
}

std::filesystem::path tokens_path(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += ".bin"; }
std::filesystem::path index_path(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += ".idx"; }

namespace {

// Returns the prefix. Exit::missing if it is the name of a file instead and no index belongs to it.
const std::filesystem::path& checked_prefix(const std::filesystem::path& prefix) {
  std::error_code error;
  if (std::filesystem::exists(index_path(prefix), error)) return prefix;
  const std::string name = printable(prefix.string());
  const std::filesystem::path shorter = std::filesystem::path(prefix).replace_extension();
  const bool ending = prefix.extension() == ".bin" || prefix.extension() == ".idx";
  require(!ending || !std::filesystem::exists(index_path(shorter), error), Exit::missing,
          "{}: a PREFIX of token files is named without .bin or .idx: {}", name, printable(shorter.string()));
  require(!std::filesystem::is_regular_file(prefix, error), Exit::missing,
          "{}: is a file, not the PREFIX of token files; `gyrfalcon data build {} PREFIX --tokenizer FILE` makes them from text", name, name);
  require(std::filesystem::exists(index_path(prefix), error) || error, Exit::missing,
          "{0}.idx: does not exist; `gyrfalcon data build TEXT {0} --tokenizer FILE` makes token files from text, and data.prefixes=[PREFIX] "
          "names others",
          name);
  return prefix;
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& prefix) : prefix_(checked_prefix(prefix)), index_(index_path(prefix)), bin_(tokens_path(prefix)) {
  check_header();
  check_sequences();
  check_documents();
}

void TokenFile::check_header() {
  const std::string name = index_.path().string();
  require(index_.text().substr(0, index_magic.size()) == index_magic, Exit::data,
          "{}: byte 0: does not begin with MMIDIDX, so it is not an index of tokens", name);
  require(std::int64_t(index_.size()) >= index_header_bytes, Exit::data, "{}: the file ends at byte {}, inside its header of {} bytes", name,
          index_.size(), index_header_bytes);
  const auto version = at<std::uint64_t>(9, 0);
  require(version == index_version, Exit::data, "{}: byte 9: version {} is not supported; the supported version is {}", name, version, index_version);
  const unsigned code = at<std::uint8_t>(17, 0);
  require((code >= 1 && code <= 5) || code == 8, Exit::data, "{}: byte 17: {} is not the code of an integer type", name, code);
  type_ = TokenType(code);
  const auto n = at<std::uint64_t>(18, 0), d = at<std::uint64_t>(26, 0);
  require(d >= 1, Exit::data, "{}: byte 26: the document index is empty; it needs at least its final entry", name);
  std::uint64_t sequence_bytes, document_bytes, total;
  const bool too_big =
      __builtin_mul_overflow(n, std::uint64_t(12), &sequence_bytes) || __builtin_mul_overflow(d, std::uint64_t(8), &document_bytes) ||
      __builtin_add_overflow(sequence_bytes, document_bytes, &total) || __builtin_add_overflow(total, std::uint64_t(index_header_bytes), &total);
  require(!too_big && total == index_.size(), Exit::data,
          "{}: bytes 18 to 33: {} sequences and {} document entries do not match the file size of {} bytes; the file is damaged, or "
          "it indexes more "
          "than text",
          name, n, d, index_.size());
  sequences_ = std::int64_t(n);
  documents_ = std::int64_t(d) - 1;
  lengths_ = index_header_bytes;
  pointers_ = lengths_ + 4 * sequences_;
  document_starts_ = pointers_ + 8 * sequences_;
}

void TokenFile::check_sequences() {
  const std::int64_t item = bytes_of(type_);
  std::int64_t next = 0;  // byte of .bin at which sequence s must begin. Checked in every step, so that the sum cannot overflow
  for (std::int64_t s = 0; s < sequences_; ++s) {
    const auto length = at<std::int32_t>(lengths_, s);
    const auto pointer = at<std::int64_t>(pointers_, s);
    if (length < 0 || pointer != next || length * item > std::int64_t(bin_.size()) - next) [[unlikely]] {
      const std::string name = index_.path().string();
      require(length >= 0, Exit::data, "{}: byte {}: sequence {} has {} tokens", name, lengths_ + 4 * s, s, length);
      require(pointer == next, Exit::data, "{}: byte {}: sequence {} begins at byte {} of the tokens, but the previous sequences end at byte {}",
              name, pointers_ + 8 * s, s, pointer, next);
      fail(Exit::data,
           "{}: byte {}: sequence {} ends at byte {} of {}, which has {} bytes; the two files do not belong together, or the second "
           "is truncated",
           name, lengths_ + 4 * s, s, next + length * item, bin_.path().string(), bin_.size());
    }
    next += length * item;
  }
  require(next == std::int64_t(bin_.size()), Exit::data, "{}: has {} bytes, but its index accounts for {}; the two files do not belong together",
          bin_.path().string(), bin_.size(), next);
  tokens_ = next / item;
}

void TokenFile::check_documents() const {
  std::int64_t before = 0;
  for (std::int64_t d = 0; d <= documents_; ++d) {
    const std::int64_t start = first_sequence(d);
    const bool right = start >= before && start <= sequences_ && (d > 0 || start == 0) && (d < documents_ || start == sequences_);
    require(right, Exit::data, "{}: byte {}: document {} begins at sequence {}, but the previous document begins at {} and there are {} sequences",
            index_.path().string(), document_starts_ + 8 * d, d, start, before, sequences_);
    before = start;
  }
}

std::int64_t TokenFile::first_token(std::int64_t sequence) const {
  return sequence == sequences_ ? tokens_ : at<std::int64_t>(pointers_, sequence) / bytes_of(type_);
}

void TokenFile::read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out, std::int64_t vocab_size) const {
  ensure(sequence >= 0 && sequence < sequences_ && offset >= 0 && offset + std::int64_t(out.size()) <= length(sequence),
         "{}: tokens {} to {} of sequence {} do not exist", prefix_.string(), offset, offset + std::int64_t(out.size()), sequence);
  read_stream(first_token(sequence) + offset, out, vocab_size);
}

void TokenFile::read_stream(std::int64_t position, std::span<std::int32_t> out, std::int64_t vocab_size) const {
  ensure(position >= 0 && position + std::int64_t(out.size()) <= tokens_, "{}: tokens {} to {} are not among its {} tokens", prefix_.string(),
         position, position + std::int64_t(out.size()), tokens_);
  with_type(type_, [&]<class T>(T) {
    const char* from = bin_.data() + position * std::int64_t(sizeof(T));
    bool good = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      T token;
      std::memcpy(&token, from + i * sizeof(T), sizeof(T));
      good &= token >= 0 && std::int64_t(token) < vocab_size;
      out[i] = std::int32_t(token);
    }
    if (good) [[likely]]
      return;
    for (std::size_t i = 0; i < out.size(); ++i) {
      T token;
      std::memcpy(&token, from + i * sizeof(T), sizeof(T));
      require(token >= 0 && std::int64_t(token) < vocab_size, Exit::data,
              "{}: byte {}: token id {} is not in the vocabulary of {} tokens; was the data made with another tokenizer?", bin_.path().string(),
              (position + std::int64_t(i)) * std::int64_t(sizeof(T)), std::int64_t(token), vocab_size);
    }
  });
}

std::int32_t TokenFile::check_tokens(std::int64_t vocab_size) const {
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int32_t> tokens(std::size_t(std::min(block, tokens_)));
  std::int32_t largest = -1;
  for (std::int64_t at = 0; at < tokens_; at += block) {
    const auto part = std::span(tokens).first(std::size_t(std::min(block, tokens_ - at)));
    read_stream(at, part, vocab_size);
    largest = std::max(largest, *std::max_element(part.begin(), part.end()));
  }
  return largest;
}

void require_same_sequences(const TokenFile& file, const TokenFile& tokens, const char* what) {
  const std::string name = index_path(file.prefix()).string(), other = index_path(tokens.prefix()).string();
  const char* const advice = "build both again, or remove these files to train without them";
  require(file.sequences() == tokens.sequences(), Exit::data, "{}: {} with {} sequences, but {} has {}; {}", name, what, file.sequences(), other,
          tokens.sequences(), advice);
  for (std::int64_t s = 0; s < tokens.sequences(); ++s)
    require(file.length(s) == tokens.length(s), Exit::data, "{}: byte {}: sequence {} of {} has {} values, but that of {} has {} tokens; {}", name,
            index_header_bytes + 4 * s, s, what, file.length(s), other, tokens.length(s), advice);
}

}  // namespace gyr
