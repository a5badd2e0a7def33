// SPDX-License-Identifier: BSD-3-Clause
// Cuts text into the pieces inside which tokens are merged: words with their leading space, numbers, punctuation, white
// space.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// GPT-2's rule, the default of byte-level vocabularies: contractions, then letters, numbers or other signs with at most
// one leading space, then white space (which leaves its last space to the word that follows).
inline constexpr std::string_view gpt2_pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One step: every match of `pattern`, and every stretch between matches, becomes a piece of its own.
struct SplitStep {
  std::string pattern;      // Perl syntax, Unicode properties
  bool on_letters = false;  // matched against the byte alphabet (byte_alphabet.hpp) instead of the text
};

// Applies steps in order, each inside the pieces of the one before. The pieces joined always give the text back,
// whatever its bytes: a maximal run of bytes that are not UTF-8 is a piece of its own, and the text on either side is
// cut as if it stood alone.
class Splitter {
 public:
  // Exit::data when a pattern does not compile.
  explicit Splitter(const std::vector<SplitStep>& steps);
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  // What one thread needs to run the patterns.
  class Scratch {
   public:
    explicit Scratch(const Splitter&);
    Scratch(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class Splitter;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Fills `ends` with the end offset of each piece, in order; the last is text.size(). Several threads may call this,
  // each with its own scratch. Exit::data when a pattern passes its matching limit.
  void split(std::string_view text, std::vector<std::size_t>& ends, Scratch& scratch) const;

 private:
  struct Step;
  void split_valid(std::string_view run, std::size_t start, std::vector<std::size_t>& ends, Scratch& scratch) const;
  std::vector<Step> steps_;
};

// Length of the longest valid UTF-8 prefix of `text` (no overlong forms, no surrogates, nothing past U+10FFFF).
std::size_t valid_utf8_prefix(std::string_view text);

}  // namespace gyr
