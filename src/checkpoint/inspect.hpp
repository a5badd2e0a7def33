// SPDX-License-Identifier: BSD-3-Clause
// Looking at checkpoints, and at any other HDF5 file with tensors in it: what one holds, and how far two are apart.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

struct Description {
  bool statistics = false;  // reads every tensor: smallest and largest number, root mean square, and how many are not finite
  bool check = false;       // compares every file with its checksum first: those of a manifest, or inside a file of format 1
};

// Header, files and table of tensors. Exit::missing, Exit::data where something of it is damaged.
std::string describe_checkpoint(const std::filesystem::path&, const Description&);

// Tensors whose path matches `pattern` (as in a shell, * also stands for /) may differ by absolute + relative * M everywhere, where M is
// the tensor's largest number by magnitude on either side.
struct Tolerance {
  std::string pattern = "*";
  double absolute = 0, relative = 0;
};
// Lines PATTERN ABSOLUTE RELATIVE; # begins a comment. Exit::missing, Exit::data naming the line.
std::vector<Tolerance> read_tolerances(const std::filesystem::path&);

struct Difference {
  std::string text;  // a line per tensor that differs, and a summary
  bool within;       // both hold the same tensors, each within its tolerance
};

// Per tensor: the largest |a - b|, and the same relative to M. The last tolerance that matches counts; without one all numbers must be
// equal. Not-a-number equals itself.
Difference diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::vector<Tolerance>&);

}  // namespace gyr
