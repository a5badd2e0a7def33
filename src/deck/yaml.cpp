// SPDX-License-Identifier: BSD-3-Clause
// Builds a tree from yaml-cpp's parser events, so that limits are enforced during parsing.
#include "src/deck/yaml.hpp"

#include <utf8proc.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr {
namespace {

constexpr std::size_t max_bytes = 1 << 20, max_nodes = 10000, max_depth = 16, max_shown = 80;

using Kind = YamlValue::Kind;

std::string_view without_lines(std::string_view text, int count) {
  for (; count > 0 && !text.empty(); --count) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find_first_of("\r\n")); }

std::string_view trimmed(std::string_view text) { return text.substr(0, text.find_last_not_of(' ') + 1); }

// Remedy for a line with an unquoted value that begins with a character of YAML's own, such as the * of an alias; empty
// if the line has none.
std::string remedy_for(std::string_view line) {
  for (std::size_t at = line.find_first_of("*&!%@`|>?-"); at != line.npos; at = line.find_first_of("*&!%@`|>?-", at + 1)) {
    const std::string_view before = trimmed(line.substr(0, at));
    if (before.empty() || std::string_view(":,[-").find(before.back()) == std::string_view::npos) continue;
    const bool in_flow = before.find_first_of("[{") != before.npos;
    const std::string_view value = line.substr(at), unquoted = value.substr(0, in_flow ? value.find_first_of(",]}") : value.find(" #"));
    return fmt::format("; a value that begins with {} must be in quotes: \"{}\"", line[at], shown(trimmed(unquoted)));
  }
  return "";
}

class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, std::string origin) : text_(text), rest_(text), origin_(std::move(origin)) {}

  YamlValue take() {
    if (root_.kind == Kind::null) root_.kind = Kind::map;
    require(root_.kind == Kind::map, Exit::config, "{}: a deck is a map of sections; write `section:` and its keys below", root_.where);
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second document begins here; a deck is one document");
  }
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_special(mark, "aliases are not allowed; write the value out"); }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, Kind::null); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    check_tag(mark, tag);
    if (expects_key()) return add_key(mark, anchor, text);
    YamlValue& node = add(mark, anchor, Kind::scalar);
    node.text = text;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, add(mark, anchor, Kind::list));
  }
  void OnSequenceEnd() override { stack_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, add(mark, anchor, Kind::map));
  }
  void OnMapEnd() override { stack_.pop_back(); }

 private:
  std::string at(const YAML::Mark& mark) const { return fmt::format("{}:{}", origin_, mark.line + 1); }
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view why) const { fail(Exit::config, "{}: {}", at(mark), why); }

  [[noreturn]] void refuse_special(const YAML::Mark& mark, const std::string& why) { refuse(mark, why + remedy_for(line_of(mark))); }

  // Marks rarely decrease, so the search continues from the line of the last call.
  std::string_view line_of(const YAML::Mark& mark) {
    if (mark.line < line_) rest_ = text_, line_ = 0;
    rest_ = without_lines(rest_, mark.line - line_), line_ = mark.line;
    return first_line(rest_);
  }

  // Plain scalars carry the tag "?", quoted ones "!".
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    const std::string_view line = line_of(mark);
    const bool lone = std::size_t(mark.column) < line.size() && line[std::size_t(mark.column)] == '!';  // yaml-cpp drops such a tag
    if (lone || (!tag.empty() && tag != "?" && tag != "!")) refuse_special(mark, "tags such as " + shown(tag) + " are not allowed");
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back()->kind == Kind::map && stack_.back()->names.size() == stack_.back()->items.size();
  }

  void add_key(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& key) {
    count(mark, anchor);
    YamlValue& map = *stack_.back();
    if (const YamlValue* first = map.find(key))
      refuse(mark, fmt::format("key `{}` is given twice (first at {}); remove one", shown(key), first->where));
    if (key.find('.') != std::string::npos)
      refuse(mark, fmt::format("key `{}` has a dot; in a deck a section is a map, write `section:` and its keys below", shown(key)));
    map.names.push_back(key);
    key_line_ = at(mark);
  }

  YamlValue& add(const YAML::Mark& mark, YAML::anchor_t anchor, Kind kind) {
    count(mark, anchor);
    if (expects_key()) refuse(mark, "a key must be a plain word");
    YamlValue* node = &root_;
    const bool in_map = !stack_.empty() && stack_.back()->kind == Kind::map;
    if (!stack_.empty()) node = &stack_.back()->items.emplace_back();
    node->kind = kind;
    node->where = in_map ? key_line_ : at(mark);
    return *node;
  }

  void open(const YAML::Mark& mark, YamlValue& node) {
    if (stack_.size() >= max_depth) refuse(mark, fmt::format("nested deeper than {} levels", max_depth));
    stack_.push_back(&node);
  }

  void count(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse_special(mark, "anchors are not allowed; write the value out where it is used");
    if (++nodes_ > max_nodes) refuse(mark, fmt::format("a deck may have at most {} keys and values", max_nodes));
  }

  std::string_view text_, rest_;  // full text; text from line line_ on
  int line_ = 0;                  // number of lines before rest_
  std::string origin_, key_line_;
  YamlValue root_;
  std::vector<YamlValue*> stack_;  // the open maps and lists; a parent does not grow while its child is open
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

// Rejects text that yaml-cpp would accept or repair silently.
void check_text(const std::string& text, const std::string& origin) {
  require(text.size() <= max_bytes, Exit::config, "{}: {} bytes; a deck may have at most {}", origin, text.size(), max_bytes);
  Index line = 1;
  bool indent = true;
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t c = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i, text.size() - i, &c);
    require(length > 0, Exit::config, "{}:{}: not UTF-8 text at byte {}", origin, line, i);
    const bool control = (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
    require(!control, Exit::config, "{}:{}: control character 0x{:02x} at byte {}; remove it", origin, line, int(c), i);
    require(!(indent && c == '\t'), Exit::config, "{}:{}: a tab in the indentation; indent with spaces", origin, line);
    indent = c == '\n' || (indent && c == ' ');
    line += c == '\n';
    i += std::size_t(length);
  }
}

template <class T>
bool all_digits_of(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_plain(const YamlValue& node) { return node.kind == Kind::scalar && !node.quoted; }

std::string_view without_sign(std::string_view text) { return text.starts_with('-') ? text.substr(1) : text; }

bool is_number(std::string_view text, double& value) {
  const std::string_view size = without_sign(text);
  if (size == ".inf" || size == "inf") {
    value = size.size() == text.size() ? HUGE_VAL : -HUGE_VAL;
    return true;
  }
  const bool digits = !size.empty() && size.find_first_not_of("0123456789.eE+-") == size.npos;  // excludes nan, infinity and hexadecimal
  return digits && all_digits_of(text, value);
}

}  // namespace

YamlValue* YamlValue::find(std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  const auto i = std::size_t(at - names.begin());
  return at != names.end() && i < items.size() ? &items[i] : nullptr;
}

YamlValue parse_yaml(const std::string& text, const std::string& origin) {
  check_text(text, origin);
  Builder builder(text, origin);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    const bool unaligned = e.msg == "end of map not found" || e.msg == "end of sequence not found";
    const std::string remedy = remedy_for(first_line(without_lines(text, e.mark.line)));
    fail(Exit::config, "{}:{}:{}: {}{}", origin, e.mark.line + 1, e.mark.column + 1,
         unaligned ? "this line is indented differently from the lines before it in its section" : e.msg, remedy);
  }
  return builder.take();
}

std::string read_yaml(const YamlValue& node, bool& value) {
  const bool is_true = node.text == "true" || node.text == "True";  // Python's spelling is accepted
  if (!is_plain(node) || (!is_true && node.text != "false" && node.text != "False")) return "is neither true nor false";
  value = is_true;
  return "";
}

std::string read_yaml(const YamlValue& node, Index& value) {
  if (!is_plain(node)) return "is not an integer";
  const std::string_view size = without_sign(node.text);
  if (size.size() > 1 && size[0] == '0') return "is not an integer: it begins with 0";
  if (all_digits_of(node.text, value)) return "";
  double number = 0;
  if (!is_number(node.text, number) || number != std::floor(number)) return "is not an integer";
  if (std::abs(number) >= 0x1p63) return "is not a 64-bit integer";
  const bool exact = std::abs(number) <= 0x1p53;
  if (exact && node.text.find_first_of("eE") != std::string::npos) {
    value = Index(number);
    return "";
  }
  return fmt::format("is not written as an integer; write {}", Index(number));
}

std::string read_yaml(const YamlValue& node, double& value) { return is_plain(node) && is_number(node.text, value) ? "" : "is not a number"; }

std::string read_yaml(const YamlValue& node, std::string& value) {
  if (node.kind == Kind::null) return "is not text; write \"\" for an empty text, and ~KEY on the command line to remove a key";
  if (node.kind == Kind::list) {
    const std::string text = shown(one_line(node));
    return fmt::format("is a list, not text; write it in quotes, \"{0}\", in a shell as '...=\"{0}\"'", text);
  }
  if (node.kind != Kind::scalar) return "is not text; write one value, in \"quotes\" where it has special characters";
  value = node.text;
  return "";
}

std::string one_line(const YamlValue& value) {
  if (value.kind == Kind::null) return "null";
  if (value.kind == Kind::scalar) return value.text;
  std::string text;
  for (const YamlValue& item : value.items) text += (text.empty() ? "" : ", ") + one_line(item);
  return "[" + text + "]";
}

std::map<std::string, std::string> values_by_path(const YamlValue& map) {
  std::map<std::string, std::string> values;
  for (std::size_t i = 0; i < map.names.size(); ++i) {
    if (map.items[i].kind != Kind::map) values[map.names[i]] = one_line(map.items[i]);
    else
      for (const auto& [path, value] : values_by_path(map.items[i])) values[map.names[i] + "." + path] = value;
  }
  return values;
}

std::string shown(std::string_view text) {
  std::size_t size = std::min(text.size(), max_shown);
  while (size < text.size() && size > 0 && (text[size] & 0xc0) == 0x80) --size;  // do not cut inside a UTF-8 character
  const std::string line = printable(text.substr(0, size));
  return text.size() > size ? line + "..." : line;
}

std::string shown(const YamlValue& node) {
  switch (node.kind) {
    case Kind::null: return "(nothing)";
    case Kind::list: return fmt::format("(a list of {})", node.items.size());
    case Kind::map: return fmt::format("(a map of {} keys)", node.items.size());
    case Kind::scalar: return node.quoted ? '"' + shown(node.text) + '"' : shown(node.text);
  }
  return "";
}

}  // namespace gyr
