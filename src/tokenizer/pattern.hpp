// SPDX-License-Identifier: BSD-3-Clause
// A compiled regular expression and the walk over its matches that `tokenizers` does.
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

// \w of Rust's regular expressions, which `tokenizers` uses for what is built in, in PCRE2's syntax.
inline constexpr std::string_view word_character = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])";

class Pattern {
 public:
  // What one thread needs to run patterns.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    ~Scratch();

    // What follows may take as much processor time as `bytes` of text deserve: far more than any sensible pattern needs.
    void allow(std::size_t bytes);

   private:
    friend class Pattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  // `pcre`: PCRE2's syntax with Unicode properties. `shown`: how messages spell it. Exit::data when it does not compile.
  explicit Pattern(std::string_view pcre, std::string_view shown);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // Whether it can match nothing at all.
  bool may_be_empty() const;

  struct Match {
    std::size_t begin, end;
  };
  // The first match at or after `from`; `subject` is valid UTF-8. Exit::data when it takes more steps or time than allowed.
  std::optional<Match> find(std::string_view subject, std::size_t from, Scratch& scratch) const;

  // Calls visit(begin, end, matches) for every match and every stretch between two matches, in order. Matches may be empty, but not
  // directly after a match.
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
