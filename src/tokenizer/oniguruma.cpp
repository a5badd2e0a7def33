// SPDX-License-Identifier: BSD-3-Clause
// Translates a pattern character by character. Open groups are kept on a stack, without recursion.
#include "src/tokenizer/oniguruma.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

constexpr char32_t end = 0xffffffff;  // end of the pattern; not a character

// Members of \w in Oniguruma. PCRE2's \w has fewer members.
constexpr const char* word_members = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

constexpr std::array categories{"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
                                "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
constexpr std::array scripts{"Han", "Hiragana", "Katakana", "Hangul"};  // matched by the script property, without PCRE2's script extensions

bool is_letter_or_digit(char32_t c) { return c < 0x80 && ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')); }

std::string quoted(char32_t c) {
  if (is_letter_or_digit(c)) return std::string(1, char(c));
  return fmt::format("\\x{{{:x}}}", unsigned(c));
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {
    refuse(valid_utf8_prefix(pattern) != pattern.size(), "bytes that are not UTF-8");
    for (std::size_t i = 0; i < pattern.size();) {
      const auto [c, length] = character_at(pattern, i);
      in_.push_back(c);
      i += length;
    }
  }

  std::string run() {
    while (at_ < in_.size()) step();
    refuse(groups_.size() != 1, "a group that is not closed");
    return std::move(out_);
  }

 private:
  enum class Previous { nothing, atom, position, quantified };
  struct Group {
    bool any_case, position;  // any_case: case-insensitive; position: a look-ahead or look-behind, which consumes nothing
  };

  template <class... Args>
  void refuse(bool condition, fmt::format_string<Args...> what, Args&&... args) const {
    if (condition)
      fail(Exit::data, "the pattern '{}' has {}, at character {}, which is not supported because PCRE2 has no exact equivalent", pattern_,
           fmt::format(what, std::forward<Args>(args)...), at_);
  }

  char32_t peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : end; }
  char32_t take() { return at_ < in_.size() ? in_[at_++] : end; }
  bool take_if(char32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool any_case() const { return groups_.back().any_case; }

  void emit(std::string_view text, Previous kind) {
    out_ += text;
    previous_ = kind;
  }

  void step() {
    const char32_t before = std::exchange(folded_, 0);
    switch (const char32_t c = take()) {
      case '\\': return escape();
      case '[': return set();
      case '(': return open();
      case ')': return close();
      case '|': return emit("|", Previous::nothing);
      case '.': return emit(".", Previous::atom);
      case '^': return emit(R"((?:\A|(?<=\n)(?!\z)))", Previous::position);
      case '$': return emit(R"((?=\n|\z))", Previous::position);
      case '?':
      case '*':
      case '+': return quantifier(c);
      case '{': return interval();
      default: literal(c, before);
    }
  }

  // In case-insensitive parts Oniguruma lets "ss" match U+00DF, and similar; PCRE2 does not.
  void literal(char32_t c, char32_t before = 0) {
    check_members(c, c);
    emit(quoted(c), Previous::atom);
    if (!any_case()) return;
    folded_ = is_letter_or_digit(c) ? c | 0x20 : c;
    const bool one_letter =
        (before == 's' && (folded_ == 's' || folded_ == 't')) || (before == 'f' && (folded_ == 'f' || folded_ == 'i' || folded_ == 'l'));
    refuse(one_letter, "'{}{}' in a case-insensitive part", char(before), char(folded_));
  }

  void check_members(char32_t first, char32_t last) const {
    refuse(any_case() && last >= 0x80, "a non-ASCII character in a case-insensitive part");
    refuse(!range_is_exact(first, last), "U+{:04X} to U+{:04X}, some of which are newer than Unicode 14", unsigned(first), unsigned(last));
  }

  // The character that an escape denotes; empty if it denotes a class or a position. `c`: the character after the
  // backslash, already consumed.
  std::optional<char32_t> character(char32_t c) {
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'a': return '\a';
      case 'e': return 0x1b;
      case 'x': return take_if('{') ? number(1, 8, '}') : ascii(number(2, 2));
      case 'u': return number(4, 4);
      default: break;
    }
    refuse(c == end, "a backslash at the end");
    return is_letter_or_digit(c) ? std::nullopt : std::optional(c);
  }

  char32_t ascii(char32_t c) const {
    refuse(c >= 0x80, "\\x{:02x}", unsigned(c));
    return c;
  }

  char32_t number(int least, int most, char32_t closing = end) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most; ++digits) {
      const char32_t c = peek();
      const bool hex = is_letter_or_digit(c) && (c <= '9' || (c | 0x20) <= 'f');
      if (!hex) break;
      value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      ++at_;
    }
    refuse(digits < least || (closing != end && !take_if(closing)) || value > 0x10ffff || (value >= 0xd800 && value < 0xe000),
           "an escape that is not a character");
    return value;
  }

  // PCRE2 text of an escaped character class, such as \d, for use inside a set. `c` (after the backslash) has been
  // consumed.
  std::string members(char32_t c) {
    if (c == 'p' || c == 'P') return property(c == 'P');
    if (c == 's' || c == 'S' || c == 'd' || c == 'D') return std::string("\\") + char(c);
    refuse(c != 'w', "\\{}", c < 0x80 ? char(c) : '?');
    return word_members;
  }

  std::string property(bool negated) {
    refuse(!take_if('{'), "\\p without a name in braces");
    negated ^= take_if('^');
    std::string name;
    while (peek() != '}' && peek() < 0x80) name += char(take());
    refuse(!take_if('}'), "a property without a closing brace");
    const auto is_name = [&](const char* known) { return name == known; };
    const bool script = std::any_of(scripts.begin(), scripts.end(), is_name);
    refuse(!script && std::none_of(categories.begin(), categories.end(), is_name), "the property '{}'", name);
    refuse(any_case() && (name == "Lu" || name == "Ll" || name == "Lt"), "{} in a case-insensitive part", name);
    return fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", name);
  }

  void escape() {
    const char32_t c = take();
    if (c == 'A' || c == 'z' || c == 'Z') return emit(std::string("\\") + char(c), Previous::position);
    if (const auto one = character(c)) return literal(*one);
    if (c == 'W') return emit(fmt::format("[^{}]", word_members), Previous::atom);
    emit(fmt::format("[{}]", members(c)), Previous::atom);
  }

  void set() {
    std::string text = take_if('^') ? "[^" : "[";
    refuse(peek() == ']', "']' as the first member of a set");
    while (!take_if(']')) {
      const auto first = member(text);
      const bool range = peek() == '-' && peek(1) != ']';
      refuse(range && !first, "a range that begins with a class");
      if (!first) continue;
      char32_t last = *first;
      if (range) {
        take();
        std::string none;
        const auto other = member(none);
        refuse(!other || *other < *first, "an invalid range");
        last = *other;
      }
      check_members(*first, last);
      text += quoted(*first);
      if (last != *first) text.append("-").append(quoted(last));
    }
    emit(text + "]", Previous::atom);
  }

  // Reads the next member of a set. Returns a single character; appends a class to `text` instead.
  std::optional<char32_t> member(std::string& text) {
    const char32_t c = take();
    refuse(c == end, "a set that is not closed");
    refuse(c == '[', "a set inside a set");
    refuse(c == '&' && peek() == '&', "an intersection of sets");
    if (c != '\\') return c;
    const char32_t e = take();
    if (const auto one = character(e)) return one;
    text += members(e);
    return std::nullopt;
  }

  void open() {
    Group group{any_case(), false};
    std::string text = "(";
    if (take_if('?')) {
      text += '?';
      const bool lookbehind = peek() == '<' && (peek(1) == '=' || peek(1) == '!');
      if (lookbehind) text += char(take());
      const char32_t c = take();
      group.position = c == '=' || c == '!';
      // (?i) holds to the end of the group. It applies to alternatives differently in PCRE2, except at the start of the
      // pattern
      if (c == 'i' && take_if(')')) {
        refuse(at_ != 4, "(?i) that is not at the start");
        groups_.back().any_case = true;
        return emit("(?i)", Previous::nothing);
      }
      const bool minus = c == '-';
      if ((c == 'i' && peek() == ':') || (minus && peek() == 'i' && peek(1) == ':')) {
        group.any_case = !minus;
        at_ += minus ? 2 : 1;
        text += minus ? "-i:" : "i:";
      } else {
        refuse(c != ':' && c != '>' && !group.position, "a group that begins with '(?{}'", c < 0x80 ? char(c) : '?');
        text += char(c);
      }
    }
    groups_.push_back(group);
    emit(text, Previous::nothing);
  }

  void close() {
    refuse(groups_.size() == 1, "')' without '('");
    const bool position = groups_.back().position;
    groups_.pop_back();
    emit(")", position ? Previous::position : Previous::atom);
  }

  void quantifier(char32_t c) {
    refuse(previous_ != Previous::atom, "'{}' where there is nothing to repeat", char(c));
    std::string text(1, char(c));
    if (peek() == '?' || peek() == '+') text += char(take());
    emit(text, Previous::quantified);
  }

  std::string digits() {
    std::string text;
    while (peek() >= '0' && peek() <= '9') text += char(take());
    return text;
  }

  // Reads {n}, {n,}, {,m} or {n,m}. Anything else is a literal brace.
  void interval() {
    const std::size_t start = at_;
    std::string low = digits(), high;
    const bool comma = take_if(',');
    if (comma) high = digits();
    if (!take_if('}') || (low.empty() && high.empty())) {
      at_ = start;
      return literal('{');
    }
    refuse(previous_ != Previous::atom, "'{{' where there is nothing to repeat");
    refuse(peek() == '+' || (peek() == '?' && !comma), "'{}' after an interval", char(peek()));
    std::string text = fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    if (take_if('?')) text += '?';
    emit(text, Previous::quantified);
  }

  std::string_view pattern_;
  std::vector<char32_t> in_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_{{false, false}};
  Previous previous_ = Previous::nothing;
  char32_t folded_ = 0;  // previous literal in lower case, inside a case-insensitive part; else 0
};

}  // namespace

std::string pcre_of(std::string_view pattern) { return Translator(pattern).run(); }

std::string quoted_for_pcre(std::string_view text) {
  std::string pattern;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, length] = character_at(text, i);
    require(range_is_exact(c, c), Exit::data, "the pattern '{}' has U+{:04X}, which is newer than Unicode 14", text, unsigned(c));
    pattern += quoted(c);
    i += length;
  }
  return pattern;
}

}  // namespace gyr
