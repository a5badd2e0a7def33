// SPDX-License-Identifier: BSD-3-Clause
// Inspection of checkpoints and other HDF5 files with tensors: description of one file (gyrfalcon info), difference of
// two (gyrfalcon diff).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

struct Description {
  bool statistics = false;  // true: read every tensor and report its minimum, maximum, root mean square and number of non-finite values
  bool check = false;       // true: first compare the files with the manifest's checksums, or else with those inside HDF5
};

// Returns header, files and a table of tensors as text. Exit::missing; Exit::data if any of it is damaged.
std::string describe_checkpoint(const std::filesystem::path&, const Description&);

// Tolerance for tensors whose path matches the shell `pattern` (* also matches /): |a - b| <= absolute + relative * M
// for all elements. M is the largest magnitude in this tensor in either file.
struct Tolerance {
  std::string pattern = "*";
  double absolute = 0, relative = 0;
};
// Reads lines PATTERN ABSOLUTE RELATIVE; # starts a comment. Exit::missing; Exit::data naming the line.
std::vector<Tolerance> read_tolerances(const std::filesystem::path&);

struct Difference {
  std::string text;  // one line per tensor that differs, and a summary
  bool within;       // true if both files hold the same tensors, each within its tolerance
};

// Reports the largest |a - b| per tensor, absolute and relative to M. The last matching tolerance applies; without one
// all values must be equal. NaN equals NaN.
Difference diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::vector<Tolerance>&);

}  // namespace gyr
