// SPDX-License-Identifier: BSD-3-Clause
// Reads loss masks.
#include "src/data/loss_mask.hpp"

#include <vector>

#include "kernels/base/error.hpp"

namespace gyr {

std::filesystem::path mask_prefix(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += "_mask"; }

std::unique_ptr<LossMask> LossMask::next_to(const TokenFile& tokens) {
  const auto prefix = mask_prefix(tokens.prefix());
  if (!std::filesystem::exists(tokens_path(prefix)) && !std::filesystem::exists(index_path(prefix))) return nullptr;
  return std::unique_ptr<LossMask>(new LossMask(tokens));
}

LossMask::LossMask(const TokenFile& tokens) : marks_(mask_prefix(tokens.prefix())) {
  const std::string name = index_path(marks_.prefix()).string();
  require(
      marks_.type() == TokenType::u8, Exit::data,
      "{}: byte 17: a loss mask has type 1 (u8), but this file has type {}; build tokens and mask again, or remove the mask to predict every token",
      name, int(marks_.type()));
  require_same_sequences(marks_, tokens, "a loss mask");
}

void LossMask::read(std::int64_t sequence, std::int64_t offset, std::span<std::uint8_t> out) const {
  std::vector<std::int32_t> marks(out.size());
  marks_.read(sequence, offset, marks);
  for (std::size_t i = 0; i < out.size(); ++i) {
    require(marks[i] <= 1, Exit::data, "{}: byte {}: {} in a loss mask; values are 0 and 1", tokens_path(marks_.prefix()).string(),
            marks_.first_token(sequence) + offset + std::int64_t(i), marks[i]);
    out[i] = std::uint8_t(marks[i]);
  }
}

}  // namespace gyr
