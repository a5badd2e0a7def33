// SPDX-License-Identifier: BSD-3-Clause
// Completeness of the tensors in a checkpoint of format 1, a single file in which no manifest lists them.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/manifest.hpp"

namespace gyr {

// Exit::data naming the missing tensor unless every optimizer tensor has its weight in the same shape, every first moment
// its second one and vice versa, and every trained weight in bfloat16 its master weight.
void check_tensor_set(const std::vector<StoredTensor>&, const std::string& origin);

}  // namespace gyr
