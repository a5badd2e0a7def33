// SPDX-License-Identifier: BSD-3-Clause
// Class labels of a corpus, one per token or one per text (at its first token). PREFIX_labels.bin and PREFIX_labels.idx
// accompany PREFIX.bin and PREFIX.idx, with the same format (token_file.hpp) and the same sequences. They hold one
// number per token: 0 for no class, otherwise 1 + class. PREFIX_labels.txt holds the names of the classes, one per
// line.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

std::filesystem::path labels_prefix(const std::filesystem::path& prefix);  // returns PREFIX_labels
std::filesystem::path names_path(const std::filesystem::path& prefix);     // returns PREFIX_labels.txt

class ClassLabels {
 public:
  // Opens the labels of `tokens` and compares their class names with the model's `classes`. Exit::missing if there are
  // no labels, and the errors of TokenFile. Exit::data if the labels differ from the tokens in the number or length of
  // sequences, or if the class names differ.
  ClassLabels(const TokenFile& tokens, const std::vector<std::string>& classes);

  // Fills `out` with the classes of the tokens from `offset` of `sequence` on; ignored_label for no class. Exit::data
  // for a class beyond the last name.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const;

 private:
  TokenFile labels_;
  std::int64_t classes_;
};

}  // namespace gyr
