// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/jinja_template.hpp"

#include <algorithm>

#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

// What a template writes: text, or a message's role or content.
struct FormatPiece {
  enum class Kind { text, role, content } kind;
  std::string text = {};
};
using FormatPieces = std::vector<FormatPiece>;

// Text between tags, {{ an expression }} or {% a statement %}.
struct TemplateToken {
  enum class Kind { text, expression, statement } kind;
  std::string text;
  std::size_t at;  // in the template
};

// A character as format strings have it.
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
// Without white space outside of quotes, and with one kind of quotes, so that spellings compare.
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
    if (next_ < tokens_.size() && tokens_[next_].kind != TemplateToken::Kind::statement) refuse("writes before the first message");
    if (!is_statement("formessageinmessages")) refuse("is not `for message in messages`");
    ++next_;
    const FormatPieces turn = read_turn();
    if (next_ < tokens_.size()) read_prompt(turn);
    if (next_ < tokens_.size()) refuse("stands behind the turns");
    return written(turn);
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    const std::size_t at = next_ < tokens_.size() ? tokens_[next_].at : source_.text.size();
    const std::string what = next_ < tokens_.size() ? fmt::format("`{}` ", shown(tokens_[next_].text.substr(0, 60))) : "its end ";
    refuse_at(at, what + why);
  }
  [[noreturn]] void refuse_at(std::size_t at, const std::string& what) const {
    fail(Exit::data, "{}: the chat template cannot be taken: character {}: {}; write its form with --template", source_.origin, at + 1, what);
  }

  // Tags apart, with transformers' rules for the white space around them: a line end behind a statement belongs to it, and so do blanks
  // before it from the line's beginning on; a minus takes all white space on its side.
  void cut() {
    const std::string& s = source_.text;
    std::size_t at = 0;
    bool strip = false, line_end = false;  // what the tag before asks of the text
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
  // Where the tag that opens here ends: quotes may hold anything.
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
    const std::size_t blank = text.find_last_not_of(" \t") + 1;  // 0 where there is nothing else
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
    expect("setadd_generation_prompt=false", "does more than to set add_generation_prompt");
    expect("endif", "does more than to set add_generation_prompt");
  }

  // The body of the loop, up to its end.
  FormatPieces read_turn() {
    if (branch_role()) return read_branches();
    FormatPieces turn = read_output();
    expect("endfor", "is not supported in the loop over messages");
    check(turn);
    return turn;
  }

  // Text and expressions in a row.
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

  // Texts, names of tokens and parts of the message, joined by + or ~.
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
      if (more && e[at] != '+' && e[at] != '~') refuse("is more than texts, role and content joined by +");
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
    refuse("is more than texts, tokens, role and content joined by +");
  }

  // The role of {% if message['role'] == 'user' %}, where this is such a statement.
  std::optional<std::string> branch_role() const {
    if (next_ >= tokens_.size() || tokens_[next_].kind != TemplateToken::Kind::statement) return std::nullopt;
    const std::string s = squeezed(tokens_[next_].text);
    for (const char* begin : {"ifmessage['role']=='", "elifmessage['role']=='", "ifmessage.role=='", "elifmessage.role=='"}) {
      const std::string_view start = begin;
      if (s.starts_with(start) && s.find('\'', start.size()) == s.size() - 1) return s.substr(start.size(), s.size() - start.size() - 1);
    }
    return std::nullopt;
  }
  // Branches by role, each of which must be one form with its role filled in.
  FormatPieces read_branches() {
    std::optional<FormatPieces> common;
    bool assistant = false;
    while (const auto role = branch_role()) {
      ++next_;
      const FormatPieces turn = with_role(read_output(), *role);
      check(turn);
      if (common && written(*common) != written(turn)) refuse("ends a branch that writes another form than the one before");
      common = turn;
      assistant = assistant || *role == "assistant";
    }
    expect("endif", "is not a branch on one role");
    expect("endfor", "is not supported in the loop over messages");
    if (!assistant) refuse("comes after branches of which none is the assistant's");
    return *common;
  }
  // The role's name in the text before the content becomes the role.
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

  // Role, then content, each once.
  void check(const FormatPieces& turn) const {
    std::string order;
    for (const FormatPiece& p : turn)
      if (p.kind != FormatPiece::Kind::text) order += p.kind == FormatPiece::Kind::role ? 'r' : 'c';
    if (order != "rc") refuse("ends a turn that does not write its role and then its content, each once");
  }

  // {% if add_generation_prompt %}, what begins an answer, {% endif %}
  void read_prompt(const FormatPieces& turn) {
    expect("ifadd_generation_prompt", "is not supported");
    std::string prompt, wanted;
    for (const FormatPiece& p : read_output()) {
      if (p.kind != FormatPiece::Kind::text) refuse("comes after a part of a message that is none");
      prompt += p.text;
    }
    for (const FormatPiece& p : turn) {
      if (p.kind == FormatPiece::Kind::content) break;
      wanted += p.kind == FormatPiece::Kind::role ? "assistant" : p.text;
    }
    if (prompt != wanted) refuse("comes after another beginning of an answer than that of the assistant's turns");
    expect("endif", "is not supported");
  }

  // As a format string; equal forms are equal strings.
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
