// SPDX-License-Identifier: BSD-3-Clause
// Token ids that a training objective needs, found in a folder's tokenizer. The result is nullopt if there is no such
// token or no tokenizer.json.
#pragma once

#include <filesystem>
#include <optional>

#include "kernels/ops/embedding.hpp"

namespace gyr {

// Mask token of masked language modelling. Its name is mask_token in tokenizer_config.json or special_tokens_map.json,
// or else [MASK], as in BERT's tokenizers.
std::optional<Token> mask_token_in(const std::filesystem::path& folder);
// Sentinel token of the first masked span: T5's <extra_id_0>.
std::optional<Token> first_sentinel_in(const std::filesystem::path& folder);

}  // namespace gyr
