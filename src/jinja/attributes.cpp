// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/attributes.hpp"

#include <algorithm>
#include <array>

#include "src/jinja/arguments.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/methods.hpp"
#include "src/jinja/operators.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

Value loop_attribute(const Value& value, const std::string& name) {
  const std::shared_ptr<Loop>& loop = std::get<std::shared_ptr<Loop>>(value.data);
  const auto& items = loop->items->items;
  const auto index = Integer(loop->index), length = Integer(items.size());
  if (name == "index") return {index + 1};
  if (name == "index0") return {index};
  if (name == "revindex") return {length - index};
  if (name == "revindex0") return {length - index - 1};
  if (name == "first") return {index == 0};
  if (name == "last") return {index + 1 == length};
  if (name == "length") return {length};
  if (name == "depth") return {Integer(1)};
  if (name == "depth0") return {Integer(0)};
  if (name == "previtem") return index > 0 ? items[std::size_t(index) - 1] : undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < length ? items[std::size_t(index) + 1] : undefined("there is no next item");
  if (name == "cycle")
    return function_value(
        "cycle",
        [loop](Interpreter&, const Arguments& a) {
          if (a.positional.empty() || !a.named.empty()) refuse("loop.cycle needs the items to cycle through");
          return a.positional[loop->index % a.positional.size()];
        },
        value);
  if (name == "changed")
    return function_value(
        "changed",
        [loop](Interpreter& interpreter, const Arguments& a) {
          const Value now = list_value(a.positional, List::Kind::tuple);
          interpreter.budget.bytes(Budget::value_size + a.positional.size() * sizeof(Value));
          if (loop->changed && compares("==", *loop->changed, now, interpreter.budget)) return Value{false};
          if (!loop->changed) interpreter.keep(loop);
          loop->changed = now;
          return Value{true};
        },
        value);
  return undefined("loop has no such attribute");
}

// Names of attributes that Python's objects have, but that are not supported here.
template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The attribute of the value's type; empty if there is none.
std::optional<Value> own_attribute(const Value& value, const std::string& name, Budget& budget) {
  budget.step(name.size() / 64);
  if (Namespace* space = value.space()) {
    budget.step(space->attributes.size() / 16);
    const Value* attribute = space->find(name);
    return attribute ? std::optional(*attribute) : std::nullopt;
  }
  if (value.loop()) {
    Value attribute = loop_attribute(value, name);
    return attribute.undefined() && name != "previtem" && name != "nextitem" ? std::nullopt : std::optional(attribute);
  }
  if (name.starts_with("__") && name.ends_with("__")) return undefined("attributes that begin and end with __ are excluded");
  if (value.string()) return string_method(value, name);
  if (value.dict()) return dict_method(value, name);
  if (value.list()) return list_method(value, name);
  static constexpr std::array<std::string_view, 13> of_numbers{"real",       "imag",      "numerator",        "denominator", "conjugate",
                                                               "bit_length", "bit_count", "as_integer_ratio", "is_integer",  "to_bytes",
                                                               "from_bytes", "hex",       "fromhex"};
  static constexpr std::array<std::string_view, 7> of_functions{"name", "arguments", "caller", "catch_kwargs", "catch_varargs", "current", "reset"};
  if ((number(value) && is_one_of(name, of_numbers)) || (value.callable() && is_one_of(name, of_functions)))
    refuse("the attribute '{}' of a value of type '{}' is not supported", name, type_name(value));
  return std::nullopt;
}

// The undefined value for an absent attribute. Its message names at most the first characters of a long name.
Value absent_attribute(const Value& value, std::string_view name) {
  const std::string_view shown = name.substr(0, valid_utf8_prefix(name.substr(0, 60)));
  return undefined(fmt::format("a value of type '{}' has no attribute or item '{}'", type_name(value), shown));
}

// Position of a character or item; empty if it is outside.
std::optional<std::size_t> position_of(Integer index, std::size_t size) {
  if (index < 0) index += Integer(size);
  return index >= 0 && index < Integer(size) ? std::optional(std::size_t(index)) : std::nullopt;
}

}  // namespace

std::optional<Value> only_item_of(const Value& value, const Value& key, Budget& budget) {
  if (value.undefined()) refuse_undefined(value);
  if (const Dict* dict = value.dict()) {
    const bool hashable = !key.list() || key.list()->kind == List::Kind::tuple;
    if (!hashable || key.dict() || key.space() || key.callable() || key.loop()) return std::nullopt;
    budget.step(key_size(key, budget) / 64);
    const Value* item = dict->find(key);
    return item ? std::optional(*item) : std::nullopt;
  }
  const auto index = as_integer(key);
  if (!index) return std::nullopt;
  if (const List* list = value.list()) {
    const auto at = list->has_index() ? position_of(*index, list->items.size()) : std::nullopt;
    return at ? std::optional(list->items[*at]) : std::nullopt;
  }
  const String* string = value.string();
  if (!string) return std::nullopt;
  const std::string& bytes = string->text.bytes();
  budget.step(bytes.size() / 64);
  const auto at = position_of(*index, is_ascii(bytes) ? bytes.size() : length_of(bytes));
  if (!at) return std::nullopt;
  const std::size_t begin = byte_of(bytes, *at);
  budget.bytes(Budget::value_size);
  return text_value(string->text.part(begin, begin + byte_of(std::string_view(bytes).substr(begin), 1)), string->safe);
}

Value attribute_of(const Value& value, const std::string& name, Budget& budget) {
  if (value.undefined()) refuse_undefined(value);
  if (auto attribute = own_attribute(value, name, budget)) return *attribute;
  if (value.dict())
    if (const Value* item = value.dict()->find(name)) return *item;
  return absent_attribute(value, name);
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  if (auto item = only_item_of(value, key, budget)) return *item;
  if (!key.string()) return undefined(fmt::format("a value of type '{}' has no such item", type_name(value)));
  const std::string& name = key.string()->text.bytes();
  if (auto attribute = own_attribute(value, name, budget)) return *attribute;
  return absent_attribute(value, name);
}

}  // namespace gyr::jinja
