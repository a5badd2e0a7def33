// SPDX-License-Identifier: BSD-3-Clause
// Values of the template language, with the semantics of Python: truth, equality, order, and the number of levels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "src/jinja/text.hpp"

namespace gyr::jinja {

struct String;
struct List;
struct Dict;
struct Namespace;
struct Callable;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> why;  // message of the error that most operations on it cause
};
struct None {};
using Integer = std::int64_t;

struct Value {
  std::variant<Undefined, None, bool, Integer, double, std::shared_ptr<const String>, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>, std::shared_ptr<const Callable>, std::shared_ptr<Loop>>
      data;

  bool undefined() const { return std::holds_alternative<Undefined>(data); }
  bool none() const { return std::holds_alternative<None>(data); }
  // The content if the value has this type, otherwise null.
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const Integer* integer() const { return std::get_if<Integer>(&data); }  // null for a boolean
  const double* real() const { return std::get_if<double>(&data); }
  const String* string() const { return pointed<const String>(); }
  const List* list() const { return pointed<const List>(); }
  const Dict* dict() const { return pointed<const Dict>(); }
  Namespace* space() const { return pointed<Namespace>(); }
  const Callable* callable() const { return pointed<const Callable>(); }
  Loop* loop() const { return pointed<Loop>(); }

 private:
  template <class T>
  T* pointed() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data);
    return pointer ? pointer->get() : nullptr;
  }
};

struct String {
  Text text;
  bool safe = false;  // true: result of the filter safe or escape (Markup)
};

// Any sequence except strings. Iterators are passed over once; their items are computed in advance.
struct List {
  enum class Kind { list, tuple, range, keys, values, items, iterator };
  Kind kind;
  std::vector<Value> items;
  std::size_t depth;             // levels of nested values
  mutable std::size_t next = 0;  // iterator: number of items passed over
  std::string shown = {};        // range: its text

  bool has_index() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::range; }
  bool has_length() const { return kind != Kind::iterator; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  std::size_t depth = 1;
  std::unordered_map<std::string, std::size_t> index = {};  // position by hash_key()

  // Adds an item, or replaces the value of an equal key. Problem if the key cannot be hashed.
  void set(Value key, Value value);
  // Null if there is no such key. Problem if the key cannot be hashed.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// Values that a template can change. The interpreter keeps all of them until the end of a rendering, which ends cycles.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;  // for messages
  std::function<Value(Interpreter&, const Arguments&)> call;
  std::size_t depth = 1;
  std::string shown = {};  // its text; empty if the text contains an address
};

// The variable `loop` of a for loop.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;              // from 0
  std::optional<Value> changed = {};  // argument of the previous call of loop.changed(); the interpreter keeps such loops, as namespaces
};

inline constexpr std::size_t max_depth = 100;        // levels of nested values
inline constexpr std::size_t max_attributes = 1000;  // of a namespace

Value undefined(std::string why);
Value text_value(Text text, bool safe = false);
Value text_value(std::string_view written);  // with the origin "written by the template"
// Problem if the values are nested too deeply.
Value list_value(std::vector<Value> items, List::Kind kind = List::Kind::list);
Value dict_value(std::vector<std::pair<Value, Value>> items);
Value dict_value(Dict dict);
Value function_value(std::string name, std::function<Value(Interpreter&, const Arguments&)> call, const Value& bound = {});

std::size_t depth_of(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Order as by Python's a < b (negative), a > b (positive). Problem for types without an order; empty if a number is not
// a number.
std::optional<int> order(const Value& a, const Value& b);
std::string type_name(const Value& value);  // Python's name of the type
// A string that is the same for equal values only. Problem for values that cannot be hashed, such as lists.
std::string hash_key(const Value& value);
// The number as a floating-point value, for booleans too; empty for other types.
std::optional<double> number(const Value& value);
// The integer, for booleans too.
std::optional<Integer> as_integer(const Value& value);
// Problem, with the reason of an undefined value.
[[noreturn]] void refuse_undefined(const Value& value);

}  // namespace gyr::jinja
