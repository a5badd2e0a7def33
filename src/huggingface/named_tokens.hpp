// SPDX-License-Identifier: BSD-3-Clause
// Tokens that an objective needs, as the tokenizer of a folder calls them. Nothing where there is no such token or no tokenizer.json.
#pragma once

#include <filesystem>
#include <optional>

#include "kernels/ops/embedding.hpp"

namespace gyr {

// What hides others in texts of masked tokens: what tokenizer_config.json or special_tokens_map.json calls mask_token or, where neither does, [MASK],
// its name in transformers' own tokenizers for BERT.
std::optional<Token> mask_token_in(const std::filesystem::path& folder);
// What stands for the first span that is left out: T5's <extra_id_0>.
std::optional<Token> first_sentinel_in(const std::filesystem::path& folder);

}  // namespace gyr
