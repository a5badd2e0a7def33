// SPDX-License-Identifier: BSD-3-Clause
// Log-probabilities that a reference model assigns to the preference pairs of a corpus (DPO). PREFIX_reference.jsonl
// accompanies PREFIX.bin and PREFIX.idx. It has one JSON line per pair, {"pair": i, "chosen": x, "rejected": y}: the
// sums of ln p over the target tokens of sequences 2 i and 2 i + 1. Other keys are ignored. The first line may name the
// reference model: {"model": PATH, "xxh3": ITS SUM}.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

std::filesystem::path references_path(const std::filesystem::path& prefix);  // returns PREFIX_reference.jsonl

// The file of a corpus is not read, read if it exists, or must exist.
enum class References { none, optional, required };

class TextReferences {
 public:
  // Exit::missing if the file is required and does not exist. Exit::data with the line number for an invalid line, and for
  // an odd number of sequences.
  TextReferences(const TokenFile& tokens, References);

  // Reference log-probability of a sequence; 0 if no file is read. Exit::data if the file lacks this pair.
  double of(std::int64_t sequence) const;
  // A sentence that names the reference model; empty if no file is read.
  std::string note() const;

 private:
  void read(const std::filesystem::path& file);
  void read_model(std::string_view line);
  void read_line(std::string_view line);

  std::filesystem::path path_;
  std::string model_;                 // name and checksum of the reference model from the file, printable; empty if not given
  std::vector<double> of_sequences_;  // log-probability per sequence; NaN if the file has not given it
};

}  // namespace gyr
