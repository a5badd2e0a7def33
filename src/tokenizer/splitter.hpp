// SPDX-License-Identifier: BSD-3-Clause
// Cuts text into the pieces inside which tokens are merged: words with their leading space, numbers, punctuation, white
// space.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/pattern.hpp"

namespace gyr {

// GPT-2's rule, the default of byte-level vocabularies: contractions, then letters, numbers or other signs with at most
// one leading space, then white space (which leaves its last space to the word that follows).
inline constexpr std::string_view gpt2_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct SplitStep {
  // What a step looks for: matches of a pattern, or characters of a kind (characters.hpp). `space` instead puts a space before every
  // piece that does not begin with one; `mark` puts a mark in place of spaces, and before every piece that does not begin with one, and cuts before
  // each.
  enum class By { pattern, number, punctuation, white_space, space, mark };
  // What becomes of what it finds (D) beside the rest (x), in x D D x: x|D|D|x, x|x, xD|D|x, x|D|Dx, x|DD|x.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

  std::string pattern;      // PCRE2's syntax, Unicode properties
  bool on_letters = false;  // looks at the byte alphabet (byte_alphabet.hpp) instead of the text
  By by = By::pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;                             // the rest is found, and what is found is the rest
  std::string mark = {};                           // one character
  bool before_pieces = true, before_marks = true;  // whether marks are put there, and pieces cut there
};

// Applies steps in order, each inside the pieces of the one before.
class Splitter {
 public:
  // Exit::data when a pattern does not compile.
  explicit Splitter(const std::vector<SplitStep>& steps);
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  struct Piece {
    std::size_t begin, end;  // bytes of the text
  };

  // What one thread needs, and the result of a split.
  struct Scratch {
    Pattern::Scratch patterns;
    std::vector<Piece> pieces;  // never empty ones
    std::string_view text;      // which they cut: the text given, or a copy with spaces put in

   private:
    friend class Splitter;
    struct Stretch {
      std::size_t begin, end;
      bool found;
    };
    std::vector<Piece> next;
    std::vector<Stretch> stretches;
    std::string with_spaces, letters;
    std::optional<std::string> older;  // the text with stand-ins, where it needs any
  };

  // Leaves the pieces of `text` (valid UTF-8, which must outlive their use) in `scratch`. Several threads may call this, each with its
  // own scratch. Exit::data when a pattern passes its limits.
  void split(std::string_view text, Scratch& scratch) const;

 private:
  struct Step;
  static void put_spaces(Scratch& scratch);
  static void put_marks(const SplitStep& step, Scratch& scratch);
  static void look(const Step& step, std::string_view subject, Scratch& scratch);
  static void look_at_letters(const Step& step, std::string_view subject, Scratch& scratch);
  std::vector<Step> steps_;
};

}  // namespace gyr
