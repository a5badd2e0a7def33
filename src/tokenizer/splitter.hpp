// SPDX-License-Identifier: BSD-3-Clause
// Pre-tokenizer: splits text into pieces, inside which tokens are merged: words with their leading space, numbers,
// punctuation, white space.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/pattern.hpp"
#include "src/tokenizer/text_position.hpp"

namespace gyr {

// GPT-2's pattern, the default of byte-level vocabularies: contractions; letters, numbers or other symbols with at most
// one leading space; white space (whose last space belongs to the following word).
inline constexpr std::string_view gpt2_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct SplitStep {
  // Delimiters that a step finds: matches of a pattern, or characters of a class (characters.hpp). Two kinds change the
  // text instead. `space` inserts a space before every piece that does not begin with one. `mark` (Metaspace) replaces
  // spaces by a mark, inserts a mark before the pieces of `before` that do not begin with one, and splits before each
  // mark.
  enum class By { pattern, number, punctuation, white_space, space, mark };
  // Treatment of the delimiters D. Results for the text x D D x, in the order of the enumerators: x|D|D|x, x|x, xD|D|x,
  // x|D|Dx, x|DD|x.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  // Pieces that By::mark inserts a mark before. `first`: only the piece that begins the document; no earlier step may
  // change the text.
  enum class Before { none, first, all };

  std::string pattern;      // regular expression in PCRE2 syntax with Unicode properties
  bool on_letters = false;  // match the spelling in the byte alphabet (byte_alphabet.hpp) instead of the text
  By by = By::pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;             // the text between matches is the delimiter, not the matches
  std::string mark = {};           // mark character of By::mark
  Before before = Before::all;     // By::mark
  bool split_before_marks = true;  // By::mark
};

// Applies the steps in order. Each step splits the pieces of the previous step.
class Splitter {
 public:
  // Exit::data when a pattern does not compile.
  explicit Splitter(const std::vector<SplitStep>& steps);
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  struct Piece {
    std::size_t begin, end;  // byte range [begin, end) of the text
  };

  // Working memory of one thread, and the result of a split.
  struct Scratch {
    Pattern::Scratch patterns;
    std::vector<Piece> pieces;  // pieces in order; no piece is empty
    std::string_view text;      // text that the pieces refer to: the argument, or a copy with inserted spaces or marks

   private:
    friend class Splitter;
    struct Stretch {
      std::size_t begin, end;
      bool found;
    };
    std::vector<Piece> next;
    std::vector<Stretch> stretches;
    std::string with_spaces, letters;
    std::optional<std::string> older;  // the text with newer characters replaced by stand-ins; empty if there are none
  };

  // Splits `text` (valid UTF-8) and stores the pieces in `scratch`. `text` must outlive them. A space or mark is inserted
  // before the start of the text only if `position` permits it. Thread-safe with one scratch per thread. Exit::data if a
  // pattern exceeds its limits.
  void split(std::string_view text, Scratch& scratch, TextPosition position = TextPosition::begin) const;

 private:
  struct Step;
  static void put_spaces(Scratch& scratch, TextPosition position);
  static void put_marks(const SplitStep& step, Scratch& scratch, TextPosition position);
  static void look(const Step& step, std::string_view subject, Scratch& scratch);
  static void look_at_letters(const Step& step, std::string_view subject, Scratch& scratch);
  std::vector<Step> steps_;
};

}  // namespace gyr
