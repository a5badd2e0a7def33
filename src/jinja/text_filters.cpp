// SPDX-License-Identifier: BSD-3-Clause
// Filters that give text.
#include "src/jinja/arguments.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/json_text.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"
#include "src/jinja/text_format.hpp"
#include "src/jinja/text_search.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

bool is_safe(const Value& value) { return value.string() && value.string()->safe; }

template <Letters letters>
Value filter_letters(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("the filter", a, {});
  return text_value(with_letters(shown_text(value, in.budget), letters, in.budget), is_safe(value));
}

// Jinja's own rule for titles: a word begins after white space, a hyphen or an opening bracket.
Value filter_title(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("title", a, {});
  const Text text = shown_text(value, in.budget);
  const std::string& bytes = text.bytes();
  const auto separates = [](char32_t c) { return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const bool separator = separates(character_at(bytes, at).point);
    while (at < bytes.size() && separates(character_at(bytes, at).point) == separator) at += character_at(bytes, at).length;
    const std::size_t first = begin + character_at(bytes, begin).length;
    out.append(with_letters(text.part(begin, first), Letters::upper, in.budget));
    out.append(with_letters(text.part(first, at), Letters::lower, in.budget));
  }
  return text_value(std::move(out));
}

Value filter_trim(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("trim", a, {"chars"});
  return text_value(without_ends(shown_text(value, in.budget), p.has_value(0) ? &p.text(0).bytes() : nullptr, true, true, in.budget), is_safe(value));
}

Value filter_replace(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  const Text old = shown_text(p.at(0), in.budget), other = shown_text(p.at(1), in.budget);
  return text_value(replaced(shown_text(value, in.budget), old.bytes(), other, p.has_value(2) ? p.integer(2) : -1, in.budget));
}

Value filter_string(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("string", a, {});
  return value.string() ? value : text_value(shown_text(value, in.budget));
}

Value filter_safe(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("safe", a, {});
  return text_value(shown_text(value, in.budget), true);
}

// Text with HTML's special characters escaped.
Value filter_escape(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("escape", a, {});
  if (is_safe(value)) return value;
  const Text text = shown_text(value, in.budget);
  in.budget.bytes(5 * text.memory());
  Text out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const char* escape = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '\'' ? "&#39;" : c == '"' ? "&#34;" : nullptr;
    if (escape) out.append_changed(escape, text, at);
    else out.append(text, at, at + 1);
  }
  return text_value(std::move(out), true);
}
Value filter_forceescape(Interpreter& in, const Value& value, const Arguments& a) {
  return filter_escape(in, text_value(shown_text(value, in.budget)), a);
}

Value filter_format(Interpreter& in, const Value& value, const Arguments& a) {
  if (!a.named.empty() && !a.positional.empty()) refuse("format cannot take positional and named arguments");
  if (is_safe(value)) refuse("format after the filter safe or escape is not supported");
  const Text format = shown_text(value, in.budget);
  if (a.named.empty()) return text_value(printf_text(format, list_value(a.positional, List::Kind::tuple), in.budget));
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, item] : a.named) items.emplace_back(text_value(name), item);
  return text_value(printf_text(format, dict_value(std::move(items)), in.budget));
}

Value filter_indent(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("indent", a, {"width", "first", "blank"});
  if (value.undefined()) refuse_undefined(value);
  if (!value.string()) refuse("indent needs a string, not {}", type_name(value));
  if (is_safe(value)) refuse("indent after the filter safe or escape is not supported");
  Text indention;
  if (p.has(0) && p.at(0).string()) indention = p.text(0);
  else {
    const Integer width = std::max<Integer>(p.integer(0, 4), 0);
    in.budget.bytes(std::size_t(width));
    indention = Text(std::string(std::size_t(width), ' '));
  }
  Text source = value.string()->text;
  source.append("\n");
  const std::vector<Text> lines = lines_of_text(source, false, in.budget);
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    in.budget.bytes(lines[i].memory() + indention.memory() + 1);
    if (i > 0) out.append("\n");
    if (i > 0 ? p.flag(2) || !lines[i].empty() : p.flag(1)) out.append(indention);
    out.append(lines[i]);
  }
  return text_value(std::move(out));
}

JsonStyle style_of(const Parameters& p) {
  JsonStyle style;
  style.ascii = p.flag(0);
  if (p.has_value(1)) {
    constexpr Integer widest = 100;
    if (p.at(1).string()) style.indent = p.text(1).bytes();
    else if (p.integer(1) > widest) refuse("tojson with an indent of more than {} is not supported", widest);
    else style.indent = std::string(std::size_t(std::max<Integer>(p.integer(1), 0)), ' ');
    style.item_end = ",";
  }
  if (p.has_value(2)) {
    const List* pair = p.at(2).list();
    if (!pair || pair->items.size() != 2 || !pair->items[0].string() || !pair->items[1].string()) refuse("the separators of tojson are two strings");
    style.item_end = pair->items[0].string()->text.bytes(), style.key_end = pair->items[1].string()->text.bytes();
  }
  style.sort_keys = p.flag(3);
  return style;
}

Value filter_tojson(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return text_value(json_text(value, style_of(p), in.budget));
}

}  // namespace

FilterTable text_filters() {
  return {{"upper", filter_letters<Letters::upper>},
          {"lower", filter_letters<Letters::lower>},
          {"capitalize", filter_letters<Letters::capitalized>},
          {"title", filter_title},
          {"trim", filter_trim},
          {"replace", filter_replace},
          {"string", filter_string},
          {"safe", filter_safe},
          {"escape", filter_escape},
          {"e", filter_escape},
          {"forceescape", filter_forceescape},
          {"format", filter_format},
          {"indent", filter_indent},
          {"tojson", filter_tojson}};
}

}  // namespace gyr::jinja
