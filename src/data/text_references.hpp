// SPDX-License-Identifier: BSD-3-Clause
// What a reference model says of the pairs of a corpus. PREFIX_reference.jsonl stands beside PREFIX.bin and PREFIX.idx and has a line of JSON for
// each pair, {"pair": i, "chosen": x, "rejected": y}: the sums of ln p over the learned tokens of sequences 2 i and 2 i + 1. Other keys are passed
// over. The first line may say which model that was, {"model": PATH, "xxh3": ITS SUM}.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

std::filesystem::path references_path(const std::filesystem::path& prefix);  // PREFIX_reference.jsonl

class TextReferences {
 public:
  // Exit::missing where the file must be there and is not; Exit::data, with its line, where one is none of these, and where the sequences of the
  // tokens are no pairs.
  TextReferences(const TokenFile& tokens, bool required);

  // Of a sequence; 0 where there is no file. Exit::data where the file does not tell.
  double of(std::int64_t sequence) const;
  // Which model the reference is, in a sentence; empty where there is no file.
  std::string note() const;

 private:
  void read(const std::filesystem::path& file);
  void read_model(std::string_view line);
  void read_line(std::string_view line);

  std::filesystem::path path_;
  std::string model_;                 // as the file calls it, printable; empty where it does not say
  std::vector<double> of_sequences_;  // NaN where nothing is told
};

}  // namespace gyr
