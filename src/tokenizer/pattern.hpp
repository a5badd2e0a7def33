// SPDX-License-Identifier: BSD-3-Clause
// A compiled regular expression, with an iteration over its matches that equals that of `tokenizers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/tokenizer/utf8.hpp"

namespace gyr {

// \w of Rust's regular expressions, in PCRE2 syntax. `tokenizers` uses Rust's syntax for its built-in patterns.
inline constexpr std::string_view word_character = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])";

class Pattern {
 public:
  // Working memory and time limit for matching. One per thread.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    ~Scratch();

    // Restarts the processor-time limit: 1 s plus 2 us per byte, far more than any sensible pattern needs for `bytes`
    // of text.
    void allow(std::size_t bytes);

   private:
    friend class Pattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  // `pcre`: pattern in PCRE2 syntax with Unicode properties. `shown`: its spelling in messages. Exit::data if it does
  // not compile.
  explicit Pattern(std::string_view pcre, std::string_view shown);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // True if the pattern can match the empty string.
  bool may_be_empty() const;

  struct Match {
    std::size_t begin, end;
  };
  // The first match at or after `from`. `subject` must be valid UTF-8. Exit::data if the match limit or the time limit
  // is exceeded.
  std::optional<Match> find(std::string_view subject, std::size_t from, Scratch& scratch) const;

  // Calls visit(begin, end, matches) for every match and for every text between two matches, in order. Matches may be
  // empty, but not directly after another match.
  template <class Visit>
  void visit(std::string_view subject, Scratch& scratch, Visit&& visit) const {
    std::size_t done = 0, from = 0;
    bool any = false;
    while (from <= subject.size()) {
      const auto match = find(subject, from, scratch);
      if (!match) break;
      if (match->begin == match->end && any && match->end == done) {
        from += from < subject.size() ? character_at(subject, from).length : 1;
        continue;
      }
      if (done != match->begin) visit(done, match->begin, false);
      visit(match->begin, match->end, true);
      from = done = match->end;
      any = true;
    }
    if (done != subject.size()) visit(done, subject.size(), false);
  }

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace gyr
