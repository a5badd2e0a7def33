// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "src/jinja/characters.hpp"
#include "src/jinja/numbers.hpp"
#include "src/jinja/string_literal.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

// Unifies line ends to \n and removes the last one.
std::string with_unified_line_ends(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

constexpr std::size_t max_name = 255;  // letters of a name, which bounds the work of a look-up

bool is_name_letter(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  [[noreturn]] void fail(std::string message) const { throw SyntaxProblem{std::move(message), line_}; }
  bool at(std::string_view text, std::size_t from) const { return std::string_view(source_).substr(from).starts_with(text); }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  // Moves to `end` and counts the lines in between.
  void move_to(std::size_t end) {
    line_ += int(std::count(source_.begin() + std::ptrdiff_t(at_), source_.begin() + std::ptrdiff_t(end), '\n'));
    at_ = end;
  }
  std::size_t after_space(std::size_t from) const {
    while (from < source_.size() && is_python_space(character_at(source_, from).point)) from += character_at(source_, from).length;
    return from;
  }

  // Reads text up to the next tag, and the tag.
  void read_text() {
    std::size_t open = at_;
    while (open < source_.size() && !at("{{", open) && !at("{%", open) && !at("{#", open)) ++open;
    if (open == source_.size()) {
      add(Kind::text, source_.substr(at_));
      return move_to(open);
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() && (source_[open + 2] == '-' || source_[open + 2] == '+') ? source_[open + 2] : 0;
    add_text(open, sign, kind != '{');
    move_to(open + 2 + (sign != 0));
    if (kind == '#') return skip_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '{' ? Kind::begin_output : Kind::begin_statement, "");
    read_tag(kind == '{');
  }

  // Adds the text before a tag, from the current position to `open`.
  void add_text(std::size_t open, char sign, bool strips_blanks) {
    std::string text = source_.substr(at_, open - at_);
    if (sign == '-') {
      while (!text.empty() && is_python_space(character_before(text, text.size()).point))
        text.resize(text.size() - character_before(text, text.size()).length);
    } else if (sign != '+' && strips_blanks) {
      const std::size_t line = text.rfind('\n') + 1;  // 0 if there is no line end
      const auto [first, last] = stripped(std::string_view(text).substr(line));
      if ((line > 0 || line_starts_) && first == last) text.resize(line);
    }
    if (!text.empty()) add(Kind::text, std::move(text));
  }

  // Moves past the end of a tag, `close`, and the white space that it strips. `sign`: its sign, or 0.
  void end_tag(std::size_t close, char sign, bool trims_line_end) {
    std::size_t end = close + 2;
    if (sign == '-') end = after_space(end);
    else if (sign == 0 && trims_line_end && at("\n", end)) ++end;
    line_starts_ = source_[end - 1] == '\n';
    move_to(end);
  }

  void skip_comment() {
    std::size_t close = source_.find("#}", at_);
    if (close == source_.npos) fail("a comment is not closed; add #}");
    const char sign = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+') ? source_[close - 1] : 0;
    end_tag(close, sign, true);
  }

  // Reads {% raw %} ... {% endraw %}, if the current tag begins it.
  bool read_raw() {
    std::size_t end = after_space(at_);
    if (!at("raw", end)) return false;
    end = after_space(end + 3);
    const char sign = end < source_.size() && source_[end] == '-' ? '-' : 0;
    end += sign != 0;
    if (!at("%}", end)) return false;
    end_tag(end, sign, false);
    for (std::size_t open = at_; (open = source_.find("{%", open)) != source_.npos; ++open) {
      std::size_t name = open + 2;
      const char left = name < source_.size() && (source_[name] == '-' || source_[name] == '+') ? source_[name] : 0;
      name = after_space(name + (left != 0));
      if (!at("endraw", name)) continue;
      std::size_t close = after_space(name + 6);
      const char right = close < source_.size() && (source_[close] == '-' || source_[close] == '+') ? source_[close] : 0;
      close += right != 0;
      if (!at("%}", close)) continue;
      add_text(open, left, true);
      move_to(close);
      end_tag(close, right, true);
      return true;
    }
    fail("{% raw %} is not closed; add {% endraw %}");
  }

  // Reads the tokens of a tag, up to its end. The end inside of brackets is not the tag's end.
  void read_tag(bool output) {
    std::vector<char> open;
    const std::string_view close = output ? "}}" : "%}";
    while (true) {
      move_to(after_space(at_));
      if (at_ >= source_.size()) fail(fmt::format("a tag is not closed; add {}", close));
      const char sign = source_[at_] == '-' || (source_[at_] == '+' && !output) ? source_[at_] : 0;
      if (open.empty() && at(close, at_ + (sign != 0))) {
        add(output ? Kind::end_output : Kind::end_statement, "");
        return end_tag(at_ + (sign != 0), sign, !output);
      }
      if (is_digit(source_[at_])) read_number();
      else if (is_name_letter(source_[at_])) read_name();
      else if (source_[at_] == '\'' || source_[at_] == '"') read_string();
      else read_symbol(open);
    }
  }

  void read_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (const std::size_t end = after_dot ? at_ : end_of_real(source_, at_); end > at_) {
      add(Kind::real, "");
      tokens_.back().real = *real_of(source_.substr(at_, end - at_));
      return move_to(end);
    }
    const std::size_t end = end_of_integer(source_, at_);
    const auto value = integer_of(source_.substr(at_, end - at_), 0);
    if (!value) fail(fmt::format("{} is outside of the supported integers of 64 bits", source_.substr(at_, std::min<std::size_t>(end - at_, 40))));
    add(Kind::integer, "");
    tokens_.back().integer = *value;
    move_to(end);
  }

  void read_name() {
    std::size_t end = at_;
    while (end < source_.size() && is_name_letter(source_[end])) ++end;
    if (end - at_ > max_name) fail(fmt::format("a name has more than {} letters", max_name));
    if (end < source_.size() && static_cast<unsigned char>(source_[end]) >= 0x80) fail("a name has a letter outside of ASCII; this is not supported");
    add(Kind::name, source_.substr(at_, end - at_));
    move_to(end);
  }

  void read_string() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    std::string error;
    auto content = unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1), error);
    if (!content) fail(error);
    add(Kind::string, std::move(*content));
    move_to(end + 1);
  }

  void read_symbol(std::vector<char>& open) {
    static constexpr std::array two{"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view one = "+-/*%~[](){}><=.:|,;";
    const auto pair = std::find_if(two.begin(), two.end(), [&](const char* text) { return at(text, at_); });
    const char c = source_[at_];
    if (pair == two.end() && one.find(c) == one.npos)
      fail(fmt::format("the character '{}' is unexpected", source_.substr(at_, character_at(source_, at_).length)));
    if (pair == two.end()) {
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail(fmt::format("'{}' has no opening bracket", c));
        open.pop_back();
      }
    }
    add(Kind::symbol, pair != two.end() ? *pair : std::string(1, c));
    move_to(at_ + tokens_.back().text.size());
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // true: the previous tag ended with a line end
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(with_unified_line_ends(source)).run(); }

}  // namespace gyr::jinja
