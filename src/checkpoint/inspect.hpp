// SPDX-License-Identifier: BSD-3-Clause
// Looking at checkpoints: what one holds, and how far two are apart.
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

// Header and table of tensors. With `statistics` every tensor is read: smallest and largest number, root mean square, and how many are
// not finite; a damaged one is an error.
std::string describe_checkpoint(const std::filesystem::path& file, bool statistics);

struct Difference {
  std::string text;  // a line per tensor that differs, and a summary
  bool within;       // both hold the same tensors, each within the tolerance
};

// Per tensor: the largest |a - b|, and the same relative to the tensor's largest |a| or |b|, which is what `tolerance` limits. With 0 all
// numbers must be equal; not-a-number equals itself.
Difference diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, double tolerance);

}  // namespace gyr
