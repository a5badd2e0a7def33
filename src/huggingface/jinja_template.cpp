// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/jinja_template.hpp"

#include <algorithm>

#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

// One piece of a turn: literal text, the message's role, or its content.
struct FormatPiece {
  enum class Kind { text, role, content } kind;
  std::string text = {};
};
using FormatPieces = std::vector<FormatPiece>;

// A token of the template: literal text, an {{ expression }}, or a {% statement %}.
struct TemplateToken {
  enum class Kind { text, expression, statement } kind;
  std::string text;
  std::size_t at;  // character offset of the token in the template
};

// A character, escaped for a format string of ChatTemplate.
std::string escaped(char c) {
  switch (c) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    case '\\': return "\\\\";
    case '{': return "{{";
    case '}': return "}}";
    default: return {c};
  }
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}
// Removes white space outside of quotes and unifies the quotes, so that equivalent spellings compare equal.
std::string squeezed(std::string_view text) {
  std::string out;
  char quote = 0;
  for (const char c : text) {
    if (!quote && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) continue;
    if (quote ? c == quote : c == '\'' || c == '"') quote = quote ? 0 : c, out += '\'';
    else out += c;
  }
  return out;
}

class TemplateReader {
 public:
  explicit TemplateReader(const JinjaTemplate& source) : source_(source) { cut(); }

  std::string read() {
    if (is_statement("ifnotadd_generation_promptisdefined")) read_default();
    if (next_ < tokens_.size() && tokens_[next_].kind != TemplateToken::Kind::statement) refuse("is written before the first message");
    if (!is_statement("formessageinmessages")) refuse("is not `for message in messages`");
    ++next_;
    const FormatPieces turn = read_turn();
    if (next_ < tokens_.size()) read_prompt(turn);
    if (next_ < tokens_.size()) refuse("follows the loop over messages and is not supported");
    return written(turn);
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    const std::size_t at = next_ < tokens_.size() ? tokens_[next_].at : source_.text.size();
    const std::string what = next_ < tokens_.size() ? fmt::format("`{}` ", shown(tokens_[next_].text.substr(0, 60))) : "the end of the template ";
    refuse_at(at, what + why);
  }
  [[noreturn]] void refuse_at(std::size_t at, const std::string& what) const {
    fail(Exit::data, "{}: the chat template cannot be converted: character {}: {}; give the format with --template", source_.origin, at + 1, what);
  }

  // Splits the template into text and tags, with the white-space rules of transformers. The line end after a statement
  // is removed, and so are blanks between the start of a line and a statement. A minus sign in a tag strips all white
  // space on its side.
  void cut() {
    const std::string& s = source_.text;
    std::size_t at = 0;
    bool strip = false, line_end = false;  // set by the previous tag for the text after it
    while (at < s.size()) {
      std::size_t open = at;
      while (open < s.size() && !(s[open] == '{' && open + 1 < s.size() && (s[open + 1] == '{' || s[open + 1] == '%' || s[open + 1] == '#'))) ++open;
      std::string text = s.substr(at, open - at);
      if (line_end && text.starts_with('\n')) text.erase(0, 1);
      if (strip) text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
      if (open == s.size()) {
        if (text.ends_with('\n')) text.pop_back();
        add(TemplateToken::Kind::text, std::move(text), at);
        return;
      }
      const char kind = s[open + 1], last = kind == '{' ? '}' : kind;
      const std::size_t close = end_of_tag(open, last);
      std::size_t begin = open + 2, end = close;
      const bool minus = s[begin] == '-', plus = s[begin] == '+';
      if (minus) text.erase(text.find_last_not_of(" \t\r\n") + 1);
      else if (kind != '{' && !plus) strip_line(text, open);
      begin += minus || plus;
      strip = end > begin && s[end - 1] == '-';
      line_end = kind != '{' && !strip;
      if (strip) --end;
      add(TemplateToken::Kind::text, std::move(text), at);
      const TemplateToken::Kind what = kind == '{' ? TemplateToken::Kind::expression : TemplateToken::Kind::statement;
      if (kind != '#') tokens_.push_back({what, trimmed(s.substr(begin, end - begin)), open});
      at = close + 2;
    }
  }
  void add(TemplateToken::Kind kind, std::string text, std::size_t at) {
    if (!text.empty()) tokens_.push_back({kind, std::move(text), at});
  }
  // Position where the tag that opens at `open` ends. Quoted strings in the tag may contain anything.
  std::size_t end_of_tag(std::size_t open, char last) const {
    const std::string& s = source_.text;
    char quote = 0;
    for (std::size_t i = open + 2; i + 1 < s.size(); ++i) {
      if (quote) {
        if (s[i] == '\\') ++i;
        else if (s[i] == quote) quote = 0;
      } else if (last != '#' && (s[i] == '\'' || s[i] == '"')) {
        quote = s[i];
      } else if (s[i] == last && s[i + 1] == '}') {
        return i;
      }
    }
    refuse_at(open, "a tag is not closed");
  }
  void strip_line(std::string& text, std::size_t open) const {
    const std::size_t blank = text.find_last_not_of(" \t") + 1;  // 0 if the text has only blanks
    const bool from_beginning = blank > 0 ? text[blank - 1] == '\n' : open == text.size() || source_.text[open - text.size() - 1] == '\n';
    if (from_beginning) text.resize(blank);
  }

  bool is_statement(std::string_view squeezed_text) const {
    return next_ < tokens_.size() && tokens_[next_].kind == TemplateToken::Kind::statement && squeezed(tokens_[next_].text) == squeezed_text;
  }
  void expect(std::string_view statement, const char* why) {
    if (!is_statement(statement)) refuse(why);
    ++next_;
  }
  void read_default() {
    ++next_;
    expect("setadd_generation_prompt=false", "does more than set add_generation_prompt");
    expect("endif", "does more than set add_generation_prompt");
  }

  // Reads the body of the loop over messages, up to its endfor.
  FormatPieces read_turn() {
    if (branch_role()) return read_branches();
    FormatPieces turn = read_output();
    expect("endfor", "is not supported in the loop over messages");
    check(turn);
    return turn;
  }

  // Reads consecutive text and expressions, up to the next statement.
  FormatPieces read_output() {
    FormatPieces pieces;
    for (; next_ < tokens_.size() && tokens_[next_].kind != TemplateToken::Kind::statement; ++next_)
      if (tokens_[next_].kind == TemplateToken::Kind::text) append(pieces, {FormatPiece::Kind::text, tokens_[next_].text});
      else read_expression(pieces);
    return pieces;
  }
  static void append(FormatPieces& pieces, FormatPiece piece) {
    if (piece.kind == FormatPiece::Kind::text && !pieces.empty() && pieces.back().kind == FormatPiece::Kind::text) pieces.back().text += piece.text;
    else if (piece.kind != FormatPiece::Kind::text || !piece.text.empty()) pieces.push_back(std::move(piece));
  }

  // Reads an expression: string literals, special tokens and message fields, joined by + or ~.
  void read_expression(FormatPieces& pieces) {
    const std::string& e = tokens_[next_].text;
    std::size_t at = 0;
    const auto blanks = [&] { at = std::min(e.find_first_not_of(" \t\r\n", at), e.size()); };
    for (bool more = true; more;) {
      blanks();
      if (at < e.size() && (e[at] == '\'' || e[at] == '"')) {
        append(pieces, {FormatPiece::Kind::text, read_literal(e, at)});
      } else {
        std::size_t end = at;
        while (end < e.size() && e[end] != '+' && e[end] != '~') ++end;
        append(pieces, find_piece(squeezed(e.substr(at, end - at))));
        at = end;
      }
      blanks();
      more = at < e.size();
      if (more && e[at] != '+' && e[at] != '~') refuse("is not a concatenation of strings, tokens, role and content");
      ++at;
    }
  }
  std::string read_literal(const std::string& e, std::size_t& at) const {
    const char quote = e[at++];
    std::string text;
    for (; at < e.size() && e[at] != quote; ++at) {
      if (e[at] != '\\') {
        text += e[at];
        continue;
      }
      const char c = ++at < e.size() ? e[at] : 0;
      if (c == 'n') text += '\n';
      else if (c == 't') text += '\t';
      else if (c == 'r') text += '\r';
      else if (c == '\\' || c == '\'' || c == '"') text += c;
      else refuse("has an escape that is not supported");
    }
    ++at;
    return text;
  }
  FormatPiece find_piece(const std::string& name) const {
    if (name == "message['role']" || name == "message.role") return {FormatPiece::Kind::role};
    if (name == "message['content']" || name == "message.content") return {FormatPiece::Kind::content};
    if (const auto token = source_.tokens.find(name); token != source_.tokens.end()) return {FormatPiece::Kind::text, token->second};
    refuse("is not a concatenation of strings, tokens, role and content");
  }

  // Role in a statement {% if message['role'] == 'user' %}; nullopt for any other statement.
  std::optional<std::string> branch_role() const {
    if (next_ >= tokens_.size() || tokens_[next_].kind != TemplateToken::Kind::statement) return std::nullopt;
    const std::string s = squeezed(tokens_[next_].text);
    for (const char* begin : {"ifmessage['role']=='", "elifmessage['role']=='", "ifmessage.role=='", "elifmessage.role=='"}) {
      const std::string_view start = begin;
      if (s.starts_with(start) && s.find('\'', start.size()) == s.size() - 1) return s.substr(start.size(), s.size() - start.size() - 1);
    }
    return std::nullopt;
  }
  // Reads branches on the role. All must have the same form once the role's name is replaced by a placeholder.
  FormatPieces read_branches() {
    std::optional<FormatPieces> common;
    bool assistant = false;
    while (const auto role = branch_role()) {
      ++next_;
      const FormatPieces turn = with_role(read_output(), *role);
      check(turn);
      if (common && written(*common) != written(turn)) refuse("ends a branch whose form differs from that of the previous branch");
      common = turn;
      assistant = assistant || *role == "assistant";
    }
    expect("endif", "is not a branch on one role");
    expect("endfor", "is not supported in the loop over messages");
    if (!assistant) refuse("follows branches on the role without one for the assistant");
    return *common;
  }
  // Replaces the role's name by the role placeholder, if it occurs exactly once in the text at the start of the turn.
  FormatPieces with_role(FormatPieces pieces, const std::string& role) const {
    if (std::any_of(pieces.begin(), pieces.end(), [](const FormatPiece& p) { return p.kind == FormatPiece::Kind::role; })) return pieces;
    if (pieces.empty() || pieces[0].kind != FormatPiece::Kind::text || role.empty()) return pieces;
    const std::size_t at = pieces[0].text.find(role);
    if (at == std::string::npos || pieces[0].text.find(role, at + 1) != std::string::npos) return pieces;
    FormatPieces out;
    append(out, {FormatPiece::Kind::text, pieces[0].text.substr(0, at)});
    append(out, {FormatPiece::Kind::role});
    append(out, {FormatPiece::Kind::text, pieces[0].text.substr(at + role.size())});
    for (std::size_t i = 1; i < pieces.size(); ++i) append(out, pieces[i]);
    return out;
  }

  // Checks that a turn has its role and then its content, each exactly once.
  void check(const FormatPieces& turn) const {
    std::string order;
    for (const FormatPiece& p : turn)
      if (p.kind != FormatPiece::Kind::text) order += p.kind == FormatPiece::Kind::role ? 'r' : 'c';
    if (order != "rc") refuse("ends a turn that does not write role and then content, each once");
  }

  // Reads {% if add_generation_prompt %}, the text that starts an assistant turn, {% endif %}.
  void read_prompt(const FormatPieces& turn) {
    expect("ifadd_generation_prompt", "is not supported");
    std::string prompt, wanted;
    for (const FormatPiece& p : read_output()) {
      if (p.kind != FormatPiece::Kind::text) refuse("follows a role or content in the generation prompt, which may contain only text");
      prompt += p.text;
    }
    for (const FormatPiece& p : turn) {
      if (p.kind == FormatPiece::Kind::content) break;
      wanted += p.kind == FormatPiece::Kind::role ? "assistant" : p.text;
    }
    if (prompt != wanted) refuse("follows a generation prompt that differs from the start of an assistant turn");
    expect("endif", "is not supported");
  }

  // The turn as a format string. Equal forms give equal strings.
  static std::string written(const FormatPieces& turn) {
    std::string format;
    for (const FormatPiece& p : turn) {
      if (p.kind != FormatPiece::Kind::text) format += p.kind == FormatPiece::Kind::role ? "{role}" : "{content}";
      for (const char c : p.text) format += escaped(c);
    }
    return format;
  }

  const JinjaTemplate& source_;
  std::vector<TemplateToken> tokens_;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_of(const JinjaTemplate& source) { return TemplateReader(source).read(); }

}  // namespace gyr
