// SPDX-License-Identifier: BSD-3-Clause
// Loss mask of a corpus. PREFIX_mask.bin and PREFIX_mask.idx accompany PREFIX.bin and PREFIX.idx, with the same format
// (token_file.hpp) and the same sequences. They hold one u8 per token: 1 for a target token, 0 for a token masked from
// the loss. Without these files all tokens are targets.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "src/data/token_file.hpp"

namespace gyr {

// PREFIX_mask: the prefix of the mask's two files.
std::filesystem::path mask_prefix(const std::filesystem::path& prefix);

class LossMask {
 public:
  // Opens the mask of `tokens`; null if neither of its files exists. Exit::missing if only one exists, and the errors
  // of TokenFile. Exit::data if the mask is not u8, or differs from the tokens in the number or length of sequences.
  static std::unique_ptr<LossMask> next_to(const TokenFile& tokens);

  // Fills `out` with the mask, 0 or 1, of the tokens from `offset` of `sequence` on. Exit::data for any other value.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::uint8_t> out) const;

 private:
  explicit LossMask(const TokenFile& tokens);

  TokenFile marks_;
};

}  // namespace gyr
