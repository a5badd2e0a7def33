// SPDX-License-Identifier: BSD-3-Clause
// Filters of sequences and mappings.
#include <algorithm>
#include <set>

#include "src/jinja/arguments.hpp"
#include "src/jinja/attribute_path.hpp"
#include "src/jinja/attributes.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

Value filter_default(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("default", a, {"default_value", "boolean"});
  if (!value.undefined() && !(p.flag(1) && !truth(value))) return value;
  return p.value(0, text_value(""));
}

Value filter_length(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("length", a, {});
  if (value.undefined()) return {Integer(0)};
  if (const String* string = value.string()) {
    in.budget.step(string->text.size() / 64);
    return {Integer(length_of(string->text.bytes()))};
  }
  if (const Dict* dict = value.dict()) return {Integer(dict->items.size())};
  if (const Loop* loop = value.loop()) return {Integer(loop->items->items.size())};
  if (!value.list() || !value.list()->has_length()) refuse("a value of type '{}' has no length", type_name(value));
  return {Integer(value.list()->items.size())};
}

Value filter_first(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("first", a, {});
  if (const List* list = value.list()) {
    if (list->next >= list->items.size()) return undefined("an empty sequence has no first item");
    return list->items[list->kind == List::Kind::iterator ? list->next++ : 0];
  }
  const std::vector<Value> items = items_of(value, in.budget);
  return items.empty() ? undefined("an empty sequence has no first item") : items.front();
}

Value filter_last(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("last", a, {});
  if (value.list() && !value.list()->has_length()) refuse("last needs a list, not a value of type '{}'", type_name(value));
  if (const List* list = value.list()) return list->items.empty() ? undefined("an empty sequence has no last item") : list->items.back();
  const std::vector<Value> items = items_of(value, in.budget);
  return items.empty() ? undefined("an empty sequence has no last item") : items.back();
}

Value filter_list(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("list", a, {});
  return list_value(items_of(value, in.budget));
}

Value filter_items(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("items", a, {});
  if (value.undefined()) return list_value({}, List::Kind::iterator);
  if (!value.dict()) refuse("items needs a dict, not a value of type '{}'", type_name(value));
  std::vector<Value> items;
  in.budget.bytes(value.dict()->items.size() * (Budget::value_size + 3 * sizeof(Value)));
  for (const auto& [key, item] : value.dict()->items) items.push_back(list_value({key, item}, List::Kind::tuple));
  return list_value(std::move(items), List::Kind::iterator);
}

Value filter_reverse(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("reverse", a, {});
  const Value none{None{}}, backwards{Integer(-1)};
  if (value.string()) return slice_of(value, none, none, backwards, in.budget);
  const bool as_list = value.list() && value.list()->kind == List::Kind::iterator;  // which Python cannot reverse without a list
  std::vector<Value> items = items_of(value, in.budget);
  std::reverse(items.begin(), items.end());
  return list_value(std::move(items), as_list ? List::Kind::list : List::Kind::iterator);
}

Value filter_join(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("join", a, {"d", "attribute"});
  const Text separator = p.has(0) ? shown_text(p.at(0), in.budget) : Text();
  const AttributePath path(p.value(1, {None{}}), in.budget);
  Text out;
  bool first = true;
  for (const Value& item : items_of(value, in.budget)) {
    in.budget.bytes(separator.memory());
    if (!first) out.append(separator);
    append_shown(path.of(item, in.budget), out, in.budget);
    first = false;
  }
  return text_value(std::move(out));
}

// Sorts items by their keys, as Python's sorted does.
void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool reverse, Budget& budget) {
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    budget.step();
    return compares("<", x.first, y.first, budget);
  });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Value filter_sort(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("sort", a, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (p.has_value(2) && p.at(2).string()) {
    std::string attribute;
    for (const char c : p.text(2).bytes() + ",")
      if (c == ',') paths.emplace_back(text_value(attribute), in.budget), attribute.clear();
      else attribute += c;
  } else {
    paths.emplace_back(p.value(2, {None{}}), in.budget);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items_of(value, in.budget)) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) keys.push_back(p.flag(1) ? path.of(item, in.budget) : without_case(path.of(item, in.budget), in.budget));
    in.budget.bytes(Budget::value_size + keys.size() * sizeof(Value));
    Value key = list_value(std::move(keys));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by(keyed, p.flag(0), in.budget);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return list_value(std::move(items));
}

Value filter_dictsort(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = p.has(1) ? p.text(1).bytes() : "key";
  if (by != "key" && by != "value") refuse("dictsort sorts by key or by value");
  if (value.undefined()) refuse_undefined(value);
  if (!value.dict()) refuse("dictsort needs a mapping, not {}", type_name(value));
  std::vector<std::pair<Value, Value>> keyed;
  in.budget.bytes(value.dict()->items.size() * (Budget::value_size + 5 * sizeof(Value)));
  for (const auto& [key, item] : value.dict()->items) {
    const Value& by_what = by == "key" ? key : item;
    keyed.emplace_back(p.flag(0) ? by_what : without_case(by_what, in.budget), list_value({key, item}, List::Kind::tuple));
  }
  sort_by(keyed, p.flag(2), in.budget);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return list_value(std::move(items));
}

Value filter_unique(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("unique", a, {"case_sensitive", "attribute"});
  const AttributePath path(p.value(1, {None{}}), in.budget);
  std::set<std::string> seen;
  std::vector<Value> items;
  for (Value& item : items_of(value, in.budget)) {
    const Value key = p.flag(0) ? path.of(item, in.budget) : without_case(path.of(item, in.budget), in.budget);
    in.budget.bytes(Budget::value_size + key_size(key, in.budget));
    std::string hash = hash_key(key);
    if (seen.insert(std::move(hash)).second) items.push_back(std::move(item));
  }
  return list_value(std::move(items), List::Kind::iterator);
}

template <bool largest>
Value filter_extreme(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p(largest ? "max" : "min", a, {"case_sensitive", "attribute"});
  const AttributePath path(p.value(1, {None{}}), in.budget);
  std::optional<std::pair<Value, Value>> best;  // key, item
  for (Value& item : items_of(value, in.budget)) {
    Value key = path.of(item, in.budget);
    if (!p.flag(0)) key = without_case(key, in.budget);
    if (!best || (largest ? compares(">", key, best->first, in.budget) : compares("<", key, best->first, in.budget)))
      best.emplace(key, std::move(item));
  }
  return best ? best->second : undefined("an empty sequence has no largest and no smallest item");
}

Value filter_batch(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("batch", a, {"linecount", "fill_with"}, 1);
  const Integer count = p.integer(0);
  std::vector<Value> batches, batch;
  for (Value& item : items_of(value, in.budget)) {
    if (batch.empty()) in.budget.bytes(Budget::value_size);
    if (Integer(batch.size()) == count) batches.push_back(list_value(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    for (; p.has_value(1) && Integer(batch.size()) < count; batch.push_back(p.at(1))) in.budget.bytes(sizeof(Value));
    batches.push_back(list_value(std::move(batch)));
  }
  return list_value(std::move(batches), List::Kind::iterator);
}

Value filter_slice(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("slice", a, {"slices", "fill_with"}, 1);
  const std::vector<Value> items = items_of(value, in.budget);
  const Integer slices = p.integer(0), size = Integer(items.size());
  if (slices == 0) refuse("the filter slice needs a count other than 0");
  std::vector<Value> all;
  Integer begin = 0;
  for (Integer i = 0; i < slices; ++i) {
    in.budget.bytes(Budget::value_size);
    const Integer end = begin + size / slices + (i < size % slices ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (p.has_value(1) && i >= size % slices) part.push_back(p.at(1));
    all.push_back(list_value(std::move(part)));
    begin = end;
  }
  return list_value(std::move(all), List::Kind::iterator);
}

Value filter_attr(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("attr", a, {"name"}, 1);
  const std::string& name = p.text(0).bytes();
  in.budget.step(name.size() / 64);
  if (value.dict() && value.dict()->find(name)) {
    const Value attribute = attribute_of(dict_value(Dict{}), name, in.budget);  // the item itself is no attribute
    return attribute.undefined() ? attribute : attribute_of(value, name, in.budget);
  }
  return attribute_of(value, name, in.budget);
}

}  // namespace

FilterTable sequence_filters() {
  return {{"default", filter_default}, {"d", filter_default},         {"length", filter_length},      {"count", filter_length},
          {"first", filter_first},     {"last", filter_last},         {"list", filter_list},          {"items", filter_items},
          {"reverse", filter_reverse}, {"join", filter_join},         {"sort", filter_sort},          {"dictsort", filter_dictsort},
          {"unique", filter_unique},   {"max", filter_extreme<true>}, {"min", filter_extreme<false>}, {"batch", filter_batch},
          {"slice", filter_slice},     {"attr", filter_attr}};
}

}  // namespace gyr::jinja
