// SPDX-License-Identifier: BSD-3-Clause
// Methods of dicts and lists.
#include <algorithm>
#include <array>

#include "src/jinja/arguments.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/methods.hpp"
#include "src/jinja/operators.hpp"

namespace gyr::jinja {

namespace {

Value unsafe_method(const Value& object, const std::string& name) {
  return undefined(fmt::format("the method {} of a value of type '{}' is excluded, because it would change the value", name, type_name(object)));
}

Value dict_view(Interpreter& in, const Dict& dict, List::Kind kind) {
  in.budget.bytes(dict.items.size() * (kind == List::Kind::items ? Budget::value_size + 3 * sizeof(Value) : sizeof(Value)));
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (kind == List::Kind::items) items.push_back(list_value({key, value}, List::Kind::tuple));
    else items.push_back(kind == List::Kind::keys ? key : value);
  }
  return list_value(std::move(items), kind);
}

Value index_in(Interpreter& in, const List& list, const Arguments& a) {
  const Parameters p("index", a, {"value"}, 1);
  for (std::size_t i = 0; i < list.items.size(); ++i)
    if (compares("==", list.items[i], p.at(0), in.budget)) return {Integer(i)};
  refuse("the value is not in the {}", list.kind == List::Kind::tuple ? "tuple" : "list");
}

Value count_in(Interpreter& in, const List& list, const Arguments& a) {
  const Parameters p("count", a, {"value"}, 1);
  return {Integer(std::count_if(list.items.begin(), list.items.end(), [&](const Value& item) {
    in.budget.step();
    return compares("==", item, p.at(0), in.budget);
  }))};
}

template <std::size_t N>
bool lists(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<Value> dict_method(const Value& value, const std::string& name) {
  static constexpr std::array<std::string_view, 5> unsafe{"clear", "pop", "popitem", "setdefault", "update"};
  if (lists(unsafe, name)) return unsafe_method(value, name);
  const auto dict = std::get<std::shared_ptr<const Dict>>(value.data);
  if (name == "get")
    return function_value(
        name,
        [dict](Interpreter& in, const Arguments& a) {
          if (!a.named.empty()) refuse("dict.get takes no keyword arguments");
          const Parameters p("get", a, {"key", "default"}, 1);
          in.budget.step(key_size(p.at(0), in.budget) / 64);
          const Value* item = dict->find(p.at(0));
          return item ? *item : p.value(1, {None{}});
        },
        value);
  const bool items = name == "items", keys = name == "keys";
  if (items || keys || name == "values") {
    const auto kind = items ? List::Kind::items : keys ? List::Kind::keys : List::Kind::values;
    return function_value(
        name,
        [dict, kind, name](Interpreter& in, const Arguments& a) {
          const Parameters p(name.c_str(), a, {});
          return dict_view(in, *dict, kind);
        },
        value);
  }
  if (name == "copy")
    return function_value(
        name,
        [value](Interpreter&, const Arguments& a) {
          const Parameters p("copy", a, {});
          return value;
        },
        value);
  if (name != "fromkeys") return std::nullopt;
  return function_value(name, [](Interpreter&, const Arguments&) -> Value { refuse("the method fromkeys is not supported"); });
}

std::optional<Value> list_method(const Value& value, const std::string& name) {
  const auto list = std::get<std::shared_ptr<const List>>(value.data);
  static constexpr std::array<std::string_view, 8> unsafe{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static constexpr std::array<std::string_view, 10> of_others{"start", "stop",    "step",       "send",    "close",
                                                              "throw", "mapping", "isdisjoint", "grouper", "list"};
  if (list->kind == List::Kind::list && lists(unsafe, name)) return unsafe_method(value, name);
  if (list->has_index() && list->kind != List::Kind::range && (name == "index" || name == "count"))
    return function_value(
        name,
        [list, index = name == "index"](Interpreter& in, const Arguments& a) { return index ? index_in(in, *list, a) : count_in(in, *list, a); },
        value);
  if (list->kind == List::Kind::list && name == "copy")
    return function_value(
        name,
        [value](Interpreter&, const Arguments& a) {
          const Parameters p("copy", a, {});
          return value;
        },
        value);
  if (list->kind != List::Kind::list && list->kind != List::Kind::tuple && (lists(of_others, name) || name == "index" || name == "count"))
    refuse("the attribute '{}' of a value of type '{}' is not supported", name, type_name(value));
  return std::nullopt;
}

}  // namespace gyr::jinja
