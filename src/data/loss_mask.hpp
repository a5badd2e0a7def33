// SPDX-License-Identifier: BSD-3-Clause
// Which tokens of a corpus a model learns to predict. PREFIX_mask.bin and PREFIX_mask.idx stand beside PREFIX.bin and
// PREFIX.idx, in the same format (token_file.hpp): one u8 for every token, 1 where the token is to be predicted and 0
// where it is only read, in the same sequences. A corpus without these files is predicted whole.
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
  // The mask of `tokens`; null where neither of its files is there. Exit::missing when one is, and what TokenFile finds;
  // Exit::data when it is not u8, or its sequences differ from those of the tokens in number or length.
  static std::unique_ptr<LossMask> beside(const TokenFile& tokens);

  // Fills `out` with the marks, 0 or 1, from `offset` of `sequence` on. Exit::data for any other number.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::uint8_t> out) const;

 private:
  explicit LossMask(const TokenFile& tokens);

  TokenFile marks_;
};

}  // namespace gyr
