// SPDX-License-Identifier: BSD-3-Clause
// Writes token files with given token ids, in any token type.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "regression/support/folder.hpp"
#include "src/data/token_writer.hpp"

namespace gyr::testing {

using TokenLists = std::vector<std::vector<std::int32_t>>;

// Writes the index by hand, because TokenWriter does not write u8.
inline void write_token_files(const std::filesystem::path& prefix, const TokenLists& sequences, TokenType type) {
  std::string tokens, lengths, pointers, documents;
  const auto add = [](std::string& bytes, auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    add(lengths, std::int32_t(sequences[s].size()));
    add(pointers, std::int64_t(tokens.size()));
    add(documents, std::int64_t(s));
    append_tokens(tokens, sequences[s], type);
  }
  add(documents, std::int64_t(sequences.size()));
  put_contents(tokens_path(prefix), tokens);
  put_contents(index_path(prefix),
               index_header(type, std::int64_t(sequences.size()), std::int64_t(sequences.size())) + lengths + pointers + documents);
}

}  // namespace gyr::testing
