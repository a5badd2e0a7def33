// SPDX-License-Identifier: BSD-3-Clause
// Writes a tokenized corpus, token by token.
#include "src/data/token_writer.hpp"

#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

template <class T>
void append_value(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void append_tokens(std::string& bytes, std::span<const std::int32_t> ids, TokenType type) {
  ensure(type == TokenType::u8 || type == TokenType::u16 || type == TokenType::i32, "tokens are written as u8, u16 or i32");
  if (type == TokenType::i32) {
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
    return;
  }
  if (type == TokenType::u8) {
    for (const std::int32_t id : ids) bytes += char(id);
    return;
  }
  const std::size_t old = bytes.size();
  bytes.resize(old + 2 * ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = std::uint16_t(ids[i]);
    std::memcpy(bytes.data() + old + 2 * i, &id, 2);
  }
}

std::string index_header(TokenType type, std::int64_t sequences, std::int64_t documents) {
  std::string bytes(index_magic);
  append_value(bytes, index_version);
  append_value(bytes, type);
  append_value(bytes, std::uint64_t(sequences));
  append_value(bytes, std::uint64_t(documents + 1));
  return bytes;
}

void commit_pair(const std::filesystem::path& prefix, OutputFile& tokens, OutputFile& index) {
  tokens.sync();
  index.sync();
  remove_file(index_path(prefix));
  tokens.commit();
  index.commit();
}

TokenWriter::TokenWriter(const std::filesystem::path& prefix, std::int64_t vocab_size)
    : prefix_(prefix), vocab_size_(vocab_size), type_(token_type_for(vocab_size)), bin_(tokens_path(prefix)), index_(index_path(prefix)) {}

void TokenWriter::add(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids)
    require(id >= 0 && id < vocab_size_, Exit::data, "token id {} is not in the vocabulary of {} tokens", id, vocab_size_);
  open_ += std::int64_t(ids.size());
  require(open_ <= std::numeric_limits<std::int32_t>::max(), Exit::data,
          "document {} has more than 2^31 - 1 tokens, the limit of the token file format; split it", documents());
  buffer_.clear();
  append_tokens(buffer_, ids, type_);
  bin_.append(buffer_);
  tokens_ += std::int64_t(ids.size());
}

void TokenWriter::end_document() {
  lengths_.push_back(std::int32_t(open_));
  open_ = 0;
}

void TokenWriter::finish() {
  ensure(open_ == 0, "finish() was called before end_document()");
  index_.append(index_header(type_, documents(), documents()));
  const auto append = [&](auto value) { index_.append({reinterpret_cast<const char*>(&value), sizeof value}); };
  for (const std::int32_t length : lengths_) append(length);
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths_) {
    append(pointer);
    pointer += length * bytes_of(type_);
  }
  for (std::int64_t d = 0; d <= documents(); ++d) append(d);
  commit_pair(prefix_, bin_, index_);
}

}  // namespace gyr
