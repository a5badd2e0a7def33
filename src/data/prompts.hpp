// SPDX-License-Identifier: BSD-3-Clause
// Prompts of reinforcement learning with their fields, from the files of `data build --prompts`. PREFIX.bin and
// PREFIX.idx hold the tokens, one sequence per prompt. Line i of PREFIX_fields.jsonl holds the fields of sequence i - 1
// as a JSON object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.hpp"
#include "src/base/mapped_file.hpp"
#include "src/data/token_file.hpp"

namespace gyr {

std::filesystem::path fields_path(const std::filesystem::path& prefix);  // returns PREFIX_fields.jsonl

// The prompts of several prefixes, in the order of the prefixes, numbered from 0. Memory: 8 bytes per prompt. Thread-safe.
class Prompts {
 public:
  // Reads all tokens and fields once to check them. Exit::missing for a file that does not exist. Exit::data, with file
  // and byte or line, for a token id that is not below `vocab_size`, for a prompt without tokens, for a line that is no
  // JSON object, for a number of lines that differs from the number of prompts, and for prefixes of different tokenizers.
  Prompts(const std::vector<std::filesystem::path>& prefixes, std::int64_t vocab_size);

  std::int64_t size() const { return size_; }
  std::int64_t longest() const { return longest_; }  // number of tokens of the longest prompt
  std::vector<std::int32_t> tokens(std::int64_t prompt) const;
  Json fields(std::int64_t prompt) const;  // a JSON object
  // Place of the fields for messages, as in "line 17 of out/arith/train_fields.jsonl".
  std::string place(std::int64_t prompt) const;
  // The prompt behind number n >= 0 of a run. Every epoch visits each prompt once, in an order that is a pure function of
  // (seed, epoch), and n counts on through the epochs.
  std::int64_t line_of(std::int64_t n, std::uint64_t seed) const;

 private:
  // Prompts of one prefix.
  struct Part {
    std::unique_ptr<TokenFile> tokens;
    MappedFile fields;
    std::vector<std::int64_t> begins;  // [line]: byte of `fields` at which the line begins
    std::int64_t first;                // number of the first prompt
    std::string_view line(std::int64_t i) const;
  };
  static Part open(std::unique_ptr<TokenFile> tokens, std::int64_t vocab_size, std::int64_t first);
  const Part& part_of(std::int64_t prompt) const;

  std::vector<Part> parts_;
  std::int64_t size_ = 0, longest_ = 0;
};

}  // namespace gyr
