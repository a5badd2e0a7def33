// SPDX-License-Identifier: BSD-3-Clause
// Which class each token of a corpus, or the text that begins with it, belongs to. PREFIX_labels.bin and PREFIX_labels.idx stand beside PREFIX.bin
// and PREFIX.idx, in the same format (token_file.hpp): one number for every token, 0 where it has no class and 1 + its class where it has one, in the
// same sequences. PREFIX_labels.txt has the names of the classes, a line each.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

std::filesystem::path labels_prefix(const std::filesystem::path& prefix);  // PREFIX_labels
std::filesystem::path names_path(const std::filesystem::path& prefix);     // PREFIX_labels.txt

class ClassLabels {
 public:
  // Those of `tokens`, for a model of these classes. Exit::missing where they are not there, and what TokenFile finds; Exit::data where their
  // sequences differ from those of the tokens in number or length, or the names from the model's.
  ClassLabels(const TokenFile& tokens, const std::vector<std::string>& classes);

  // Fills `out` with the classes, or ignored_label, from `offset` of `sequence` on. Exit::data for a class that there is not.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const;

 private:
  TokenFile labels_;
  std::int64_t classes_;
};

}  // namespace gyr
