// SPDX-License-Identifier: BSD-3-Clause
// Methods of strings.
#include <algorithm>
#include <array>
#include <map>

#include "src/jinja/arguments.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/methods.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"
#include "src/jinja/text_format.hpp"
#include "src/jinja/text_search.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

using StringMethod = Value (*)(Interpreter&, const Text&, const Arguments&);

template <bool left, bool right>
Value strip(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("strip", a, {"chars"});
  return text_value(without_ends(text, p.has_value(0) ? &p.text(0).bytes() : nullptr, left, right, in.budget));
}

template <bool from_right>
Value split(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("split", a, {"sep", "maxsplit"});
  const std::string* separator = p.has_value(0) ? &p.text(0).bytes() : nullptr;
  const Integer count = p.integer(1, -1);
  std::vector<Value> items;
  for (Text& part : from_right ? split_text_from_right(text, separator, count, in.budget) : split_text(text, separator, count, in.budget))
    items.push_back(text_value(std::move(part)));
  return list_value(std::move(items));
}

Value splitlines(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("splitlines", a, {"keepends"});
  std::vector<Value> items;
  for (Text& line : lines_of_text(text, p.flag(0), in.budget)) items.push_back(text_value(std::move(line)));
  return list_value(std::move(items));
}

// The text between two optional positions, as the arguments of startswith, find and count give it.
std::pair<std::size_t, std::string_view> window_of(const Parameters& p, const std::string& bytes, Budget& budget) {
  if (!p.has_value(1) && !p.has_value(2)) return {0, bytes};
  budget.step(bytes.size() / 16);
  const auto length = Integer(length_of(bytes));
  const auto place = [&](std::size_t i, Integer none) {
    Integer at = p.has_value(i) ? p.integer(i) : none;
    if (at < 0) at = std::max<Integer>(at + length, 0);
    return at;
  };
  const Integer begin = place(1, 0), end = std::min(place(2, length), length);
  if (begin > end) return {std::string::npos, {}};
  const std::size_t first = byte_of(bytes, std::size_t(begin));
  return {first, std::string_view(bytes).substr(first, byte_of(std::string_view(bytes).substr(first), std::size_t(end - begin)))};
}

template <bool at_start>
Value has_affix(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p(at_start ? "startswith" : "endswith", a, {"prefix", "start", "end"}, 1);
  const auto [first, window] = window_of(p, text.bytes(), in.budget);
  const auto fits = [&, first = first, window = window](const Value& affix) {
    if (!affix.string()) refuse("the argument of startswith and endswith must be a string or a tuple of strings, not {}", type_name(affix));
    if (first == std::string::npos) return false;
    const std::string& bytes = affix.string()->text.bytes();
    in.budget.step(1 + bytes.size() / 64);
    return at_start ? window.starts_with(bytes) : window.ends_with(bytes);
  };
  const List* list = p.at(0).list();
  if (list && list->kind == List::Kind::tuple) return {std::any_of(list->items.begin(), list->items.end(), fits)};
  return {fits(p.at(0))};
}

template <bool last, bool must>
Value find(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p(last ? "rfind" : "find", a, {"sub", "start", "end"}, 1);
  const auto [first, window] = window_of(p, text.bytes(), in.budget);
  std::size_t at = std::string::npos;
  if (first != std::string::npos)
    at = last ? find_last_bytes(window, p.text(0).bytes(), in.budget) : find_bytes(window, p.text(0).bytes(), 0, in.budget);
  if (must && at == std::string::npos) refuse("the text does not contain the searched text");
  in.budget.step(text.size() / 64);
  return {at == std::string::npos ? Integer(-1) : Integer(length_of(std::string_view(text.bytes()).substr(0, first + at)))};
}

Value count(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("count", a, {"sub", "start", "end"}, 1);
  const auto [first, window] = window_of(p, text.bytes(), in.budget);
  const std::string& sub = p.text(0).bytes();
  if (first == std::string::npos) return {Integer(0)};
  if (sub.empty()) return {Integer(length_of(window)) + 1};
  Integer n = 0;
  for (std::size_t at = 0; (at = find_bytes(window, sub, at, in.budget)) != window.npos; at += sub.size()) ++n;
  return {n};
}

Value replace(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  return text_value(replaced(text, p.text(0).bytes(), p.text(1), p.integer(2, -1), in.budget));
}

template <Letters letters>
Value change_letters(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("a method for letter case", a, {});
  return text_value(with_letters(text, letters, in.budget));
}

Value join(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("join", a, {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : items_of(p.at(0), in.budget)) {
    if (!item.string()) refuse("join expects strings, and an item has the type {}", type_name(item));
    in.budget.bytes(text.memory() + item.string()->text.memory());
    if (!first) out.append(text);
    out.append(item.string()->text);
    first = false;
  }
  return text_value(std::move(out));
}

template <bool prefix>
Value remove_affix(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p(prefix ? "removeprefix" : "removesuffix", a, {"affix"}, 1);
  const std::string &bytes = text.bytes(), &affix = p.text(0).bytes();
  in.budget.bytes(text.memory());
  if (affix.empty() || !(prefix ? bytes.starts_with(affix) : bytes.ends_with(affix))) return text_value(text);
  return text_value(prefix ? text.part(affix.size(), bytes.size()) : text.part(0, bytes.size() - affix.size()));
}

template <bool last>
Value partition(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p(last ? "rpartition" : "partition", a, {"sep"}, 1);
  const std::string& separator = p.text(0).bytes();
  if (separator.empty()) refuse("the separator must not be empty");
  in.budget.bytes(text.memory());
  const std::size_t at = last ? find_last_bytes(text.bytes(), separator, in.budget) : find_bytes(text.bytes(), separator, 0, in.budget);
  const auto part = [&](std::size_t begin, std::size_t end) { return text_value(text.part(begin, end)); };
  std::vector<Value> parts;
  if (at != std::string::npos) parts = {part(0, at), part(at, at + separator.size()), part(at + separator.size(), text.size())};
  else if (last) parts = {part(0, 0), part(0, 0), part(0, text.size())};
  else parts = {part(0, text.size()), part(0, 0), part(0, 0)};
  return list_value(std::move(parts), List::Kind::tuple);
}

// True if the text has a character and all characters are of the class.
template <bool (*of_class)(char32_t)>
Value all_of_class(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("a method that tests characters", a, {});
  const std::string& bytes = text.bytes();
  in.budget.step(bytes.size() / 16);
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length)
    if (!of_class(character_at(bytes, at).point)) return {false};
  return {!bytes.empty()};
}

bool is_digit_character(char32_t c) {
  if (is_other_number(c)) refuse("isdigit is not supported for numbers such as superscripts");
  return is_decimal(c);
}

bool is_letter_or_number(char32_t c) { return is_letter(c) || is_decimal(c) || is_other_number(c); }

template <bool upper>
Value all_in_case(Interpreter& in, const Text& text, const Arguments& a) {
  const Parameters p("a method that tests letter case", a, {});
  in.budget.step(text.size() / 16);
  return {upper ? is_upper_text(text.bytes()) : is_lower_text(text.bytes())};
}

Value format_fields(Interpreter& in, const Text& text, const Arguments& a) { return text_value(formatted_text(text, a, in.budget)); }

const std::map<std::string_view, StringMethod>& string_methods() {
  static const std::map<std::string_view, StringMethod> methods{{"strip", strip<true, true>},
                                                                {"lstrip", strip<true, false>},
                                                                {"rstrip", strip<false, true>},
                                                                {"split", split<false>},
                                                                {"rsplit", split<true>},
                                                                {"splitlines", splitlines},
                                                                {"startswith", has_affix<true>},
                                                                {"endswith", has_affix<false>},
                                                                {"find", find<false, false>},
                                                                {"rfind", find<true, false>},
                                                                {"index", find<false, true>},
                                                                {"rindex", find<true, true>},
                                                                {"count", count},
                                                                {"replace", replace},
                                                                {"upper", change_letters<Letters::upper>},
                                                                {"lower", change_letters<Letters::lower>},
                                                                {"title", change_letters<Letters::title>},
                                                                {"capitalize", change_letters<Letters::capitalized>},
                                                                {"join", join},
                                                                {"removeprefix", remove_affix<true>},
                                                                {"removesuffix", remove_affix<false>},
                                                                {"partition", partition<false>},
                                                                {"rpartition", partition<true>},
                                                                {"isspace", all_of_class<is_python_space>},
                                                                {"isalpha", all_of_class<is_letter>},
                                                                {"isdecimal", all_of_class<is_decimal>},
                                                                {"isdigit", all_of_class<is_digit_character>},
                                                                {"isalnum", all_of_class<is_letter_or_number>},
                                                                {"isupper", all_in_case<true>},
                                                                {"islower", all_in_case<false>},
                                                                {"format", format_fields}};
  return methods;
}

}  // namespace

std::optional<Value> string_method(const Value& string, const std::string& name) {
  const auto text = std::get<std::shared_ptr<const String>>(string.data);
  if (const auto method = string_methods().find(name); method != string_methods().end())
    return function_value(
        name,
        [text, call = method->second, name](Interpreter& in, const Arguments& a) {
          if (text->safe) refuse("the method {} is not supported after the filter safe or escape", name);
          return call(in, text->text, a);
        },
        string);
  static constexpr std::array<std::string_view, 17> unsupported{"casefold",     "center",    "encode",      "expandtabs", "format_map", "isascii",
                                                                "isidentifier", "isnumeric", "isprintable", "istitle",    "ljust",      "maketrans",
                                                                "rjust",        "swapcase",  "translate",   "zfill",      "unescape"};
  if (std::find(unsupported.begin(), unsupported.end(), name) == unsupported.end() || (name == "unescape" && !text->safe)) return std::nullopt;
  return function_value(name, [name](Interpreter&, const Arguments&) -> Value { refuse("the method {} of strings is not supported", name); });
}

}  // namespace gyr::jinja
