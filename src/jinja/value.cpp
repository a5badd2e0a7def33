// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/value.hpp"

#include <algorithm>
#include <cmath>

#include "src/jinja/problem.hpp"

namespace gyr::jinja {

namespace {

std::size_t deeper(std::size_t depth) {
  if (depth >= max_depth) refuse("values are nested deeper than {} levels", max_depth);
  return depth + 1;
}

bool equal_lists(const List& a, const List& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.kind == List::Kind::iterator || a.kind == List::Kind::values) return false;
  if (a.kind == List::Kind::keys || a.kind == List::Kind::items) refuse("a comparison of dict views is not supported");
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other && equal(item.second, *other);
  });
}

template <class T>
int sign_of_order(const T& a, const T& b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Order of an integer and a real number, without rounding the integer.
int order_mixed(Integer a, double b) {
  if (b >= 9.3e18) return -1;
  if (b <= -9.3e18) return 1;
  const double floor = std::floor(b);
  if (floor >= 9223372036854775808.0) return -1;
  if (floor < -9223372036854775808.0) return 1;
  const int by_floor = sign_of_order(a, Integer(floor));
  return by_floor != 0 ? by_floor : b > floor ? -1 : 0;
}

// Order of two numbers; empty if one is not a number.
std::optional<int> order_numbers(const Value& a, const Value& b) {
  const auto i = as_integer(a), j = as_integer(b);
  if (i && j) return sign_of_order(*i, *j);
  const double x = *number(a), y = *number(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  if (i) return order_mixed(*i, y);
  if (j) return -order_mixed(*j, x);
  return sign_of_order(x, y);
}

}  // namespace

Value undefined(std::string why) { return {Undefined{std::make_shared<const std::string>(std::move(why))}}; }
Value text_value(Text text, bool safe) { return {std::make_shared<const String>(String{std::move(text), safe})}; }
Value text_value(std::string_view written) { return text_value(Text(std::string(written))); }

Value list_value(std::vector<Value> items, List::Kind kind) {
  std::size_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return {std::make_shared<const List>(List{kind, std::move(items), deeper(depth)})};
}

Value dict_value(Dict dict) {
  std::size_t depth = 0;
  for (const auto& [key, value] : dict.items) depth = std::max({depth, depth_of(key), depth_of(value)});
  dict.depth = deeper(depth);
  return {std::make_shared<const Dict>(std::move(dict))};
}
Value dict_value(std::vector<std::pair<Value, Value>> items) {
  Dict dict;
  for (auto& [key, value] : items) dict.set(std::move(key), std::move(value));
  return dict_value(std::move(dict));
}

Value function_value(std::string name, std::function<Value(Interpreter&, const Arguments&)> call, const Value& bound) {
  return {std::make_shared<const Callable>(Callable{std::move(name), std::move(call), deeper(depth_of(bound))})};
}

void Dict::set(Value key, Value value) {
  const auto [place, fresh] = index.emplace(hash_key(key), items.size());
  if (fresh) items.emplace_back(std::move(key), std::move(value));
  else items[place->second].second = std::move(value);
}
const Value* Dict::find(const Value& key) const {
  const auto place = index.find(hash_key(key));
  return place == index.end() ? nullptr : &items[place->second].second;
}
const Value* Dict::find(std::string_view key) const {
  const auto place = index.find(fmt::format("s{}", key));
  return place == index.end() ? nullptr : &items[place->second].second;
}

Value* Namespace::find(std::string_view name) {
  const auto place = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == name; });
  return place == attributes.end() ? nullptr : &place->second;
}

std::size_t depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Callable* callable = value.callable()) return callable->depth;
  if (const Loop* loop = value.loop()) return deeper(loop->items->depth);
  return 0;
}

bool truth(const Value& value) {
  if (value.undefined() || value.none()) return false;
  if (const bool* b = value.boolean()) return *b;
  if (const Integer* i = value.integer()) return *i != 0;
  if (const double* d = value.real()) return *d != 0;
  if (const String* s = value.string()) return !s->text.empty();
  if (const List* list = value.list()) return !list->has_length() || !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.undefined() || b.undefined()) return a.undefined() && b.undefined();
  if (a.none() || b.none()) return a.none() && b.none();
  if (number(a) && number(b)) return order_numbers(a, b) == 0;
  if (const String* s = a.string(), *t = b.string(); s && t) return s->text.bytes() == t->text.bytes();
  if (const List* l = a.list(), *m = b.list(); l && m) return equal_lists(*l, *m);
  if (const Dict* d = a.dict(), *e = b.dict(); d && e) return equal_dicts(*d, *e);
  if (a.space() || b.space()) return a.space() == b.space();
  if (a.callable() || b.callable()) return a.callable() == b.callable();
  if (a.loop() || b.loop()) return a.loop() == b.loop();
  return false;
}

std::optional<int> order(const Value& a, const Value& b) {
  if (a.undefined()) refuse_undefined(a);
  if (b.undefined()) refuse_undefined(b);
  if (number(a) && number(b)) return order_numbers(a, b);
  if (const String* s = a.string(), *t = b.string(); s && t) return s->text.bytes().compare(t->text.bytes());  // the order of code points
  const List *l = a.list(), *m = b.list();
  if (!l || !m || l->kind != m->kind || !(l->kind == List::Kind::list || l->kind == List::Kind::tuple))
    refuse("values of types '{}' and '{}' have no order", type_name(a), type_name(b));
  for (std::size_t i = 0; i < std::min(l->items.size(), m->items.size()); ++i)
    if (!equal(l->items[i], m->items[i])) return order(l->items[i], m->items[i]);
  return sign_of_order(l->items.size(), m->items.size());
}

std::string type_name(const Value& value) {
  static constexpr const char* of_list[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};
  if (const List* list = value.list()) return of_list[std::size_t(list->kind)];
  if (const String* string = value.string()) return string->safe ? "Markup" : "str";
  static constexpr const char* names[] = {"Undefined", "NoneType", "bool", "int", "float", "", "", "dict", "Namespace", "function", "LoopContext"};
  return names[value.data.index()];
}

std::string hash_key(const Value& value) {
  if (const String* s = value.string()) return fmt::format("s{}", s->text.bytes());
  if (const auto i = as_integer(value)) return fmt::format("n{}", *i);
  if (const double* d = value.real()) {
    if (std::floor(*d) == *d && std::abs(*d) < 9e15) return fmt::format("n{}", Integer(*d));
    return fmt::format("f{}", *d);
  }
  if (value.none()) return "none";
  if (value.undefined()) return "undefined";
  if (const List* list = value.list(); list && list->kind == List::Kind::tuple) {
    std::string key = "t";
    for (const Value& item : list->items) {
      const std::string part = hash_key(item);
      key += std::to_string(part.size()) + ":" + part;
      if (key.size() > 65536) refuse("a tuple as a key has more than 65536 bytes");
    }
    return key;
  }
  refuse("a value of type '{}' cannot be a key", type_name(value));
}

std::optional<double> number(const Value& value) {
  if (const double* d = value.real()) return *d;
  const auto i = as_integer(value);
  return i ? std::optional(double(*i)) : std::nullopt;
}

std::optional<Integer> as_integer(const Value& value) {
  if (const Integer* i = value.integer()) return *i;
  if (const bool* b = value.boolean()) return Integer(*b);
  return std::nullopt;
}

void refuse_undefined(const Value& value) {
  const auto* undefined = std::get_if<Undefined>(&value.data);
  refuse("{}", undefined && undefined->why ? *undefined->why : "an undefined value is used");
}

}  // namespace gyr::jinja
