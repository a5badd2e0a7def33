// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/operators.hpp"

#include <algorithm>
#include <cmath>

#include "src/jinja/characters.hpp"
#include "src/jinja/show.hpp"
#include "src/jinja/text_format.hpp"
#include "src/jinja/text_search.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

[[noreturn]] void refuse_types(std::string_view symbol, const Value& a, const Value& b) {
  refuse("the operator {} does not apply to values of types '{}' and '{}'", symbol, type_name(a), type_name(b));
}
[[noreturn]] void refuse_size() { refuse("an integer does not fit into 64 bits"); }

Value checked(bool overflow, Integer result) {
  if (overflow) refuse_size();
  return {result};
}

// Division towards minus infinity, and its remainder.
Value floor_division(Integer a, Integer b, bool remainder) {
  if (b == 0) refuse("// and % need a divisor other than 0");
  if (b == -1)
    return remainder ? Value{Integer(0)} : checked(a == std::numeric_limits<Integer>::min(), a == std::numeric_limits<Integer>::min() ? 0 : -a);
  const Integer quotient = a / b, rest = a % b;
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);
  return {remainder ? rest + (adjust ? b : 0) : quotient - (adjust ? 1 : 0)};
}

Value integer_power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) refuse("0 cannot be raised to a negative power");
    return {std::pow(double(base), double(exponent))};
  }
  Integer result = 1;
  if (base == 0 || base == 1) return {exponent == 0 ? Integer(1) : base};
  if (base == -1) return {Integer(exponent % 2 == 0 ? 1 : -1)};
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) refuse_size();
  return {result};
}

Value combined_integers(std::string_view symbol, Integer a, Integer b) {
  if (symbol == "+" || symbol == "-" || symbol == "*") {
    Integer result = 0;
    const bool overflow = symbol == "+"   ? __builtin_add_overflow(a, b, &result)
                          : symbol == "-" ? __builtin_sub_overflow(a, b, &result)
                                          : __builtin_mul_overflow(a, b, &result);
    return checked(overflow, result);
  }
  if (symbol == "//") return floor_division(a, b, false);
  if (symbol == "%") return floor_division(a, b, true);
  if (symbol == "**") return integer_power(a, b);
  if (b == 0) refuse("/ needs a divisor other than 0");
  constexpr Integer exact = Integer(1) << 53;
  if (std::max(a, b) > exact || std::min(a, b) < -exact) refuse("a division of integers above 2^53 is not supported");
  return {double(a) / double(b)};
}

Value combined_reals(std::string_view symbol, double a, double b) {
  if (symbol == "+") return {a + b};
  if (symbol == "-") return {a - b};
  if (symbol == "*") return {a * b};
  if (symbol == "**") {
    const double power = std::pow(a, b);
    if ((std::isinf(power) && std::isfinite(a) && std::isfinite(b)) || (std::isnan(power) && !std::isnan(a) && !std::isnan(b)))
      refuse("{} ** {} is no finite real number", a, b);
    return {power};
  }
  if (b == 0) refuse("{} needs a divisor other than 0", symbol);
  if (symbol == "/") return {a / b};
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 ? (b < 0) != (rest < 0) : false) rest += b, quotient -= 1;
  if (rest == 0) rest = std::copysign(0.0, b);
  if (symbol == "%") return {rest};
  const double floor = quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient);
  return {quotient - floor > 0.5 ? floor + 1 : floor};
}

Value joined_strings(const String& a, const String& b, Budget& budget) {
  budget.bytes(a.text.memory() + b.text.memory());
  if (a.safe != b.safe) refuse("+ of a text after the filter safe or escape and another text is not supported; use ~");
  Text text = a.text;
  text.append(b.text);
  return text_value(std::move(text), a.safe);
}

Value joined_lists(const List& a, const List& b, Budget& budget) {
  budget.bytes((a.items.size() + b.items.size()) * sizeof(Value));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return list_value(std::move(items), a.kind);
}

bool is_plain(const List& list) { return list.kind == List::Kind::list || list.kind == List::Kind::tuple; }

// sequence * count.
std::optional<Value> repeated(const Value& sequence, const Value& count, Budget& budget) {
  const auto times = as_integer(count);
  if (!times) return std::nullopt;
  const std::size_t n = std::size_t(std::max<Integer>(*times, 0));
  const auto charge = [&](std::size_t size) {
    if (n > 0 && size > std::numeric_limits<std::size_t>::max() / n) refuse("the template creates too much text");
    budget.bytes(size * n), budget.step(size > 0 ? n : 0);
  };
  if (const String* string = sequence.string()) {
    charge(string->text.memory());
    Text text;
    for (std::size_t i = 0; i < n && !string->text.empty(); ++i) text.append(string->text);
    return text_value(std::move(text), string->safe);
  }
  const List* list = sequence.list();
  if (!list || !is_plain(*list)) return std::nullopt;
  charge(list->items.size() * sizeof(Value));
  std::vector<Value> items;
  for (std::size_t i = 0; i < n && !list->items.empty(); ++i) items.insert(items.end(), list->items.begin(), list->items.end());
  return list_value(std::move(items), list->kind);
}

// Number of items that a comparison of two values visits, as an upper bound for one level of nesting.
std::size_t visited(const Value& value) {
  if (const String* string = value.string()) return string->text.size() / 64;
  if (const List* list = value.list()) return list->items.size();
  if (const Dict* dict = value.dict()) return dict->items.size();
  return 0;
}
// Charges all levels.
void charge_comparison(const Value& value, Budget& budget) {
  budget.step(visited(value));
  if (const List* list = value.list()) {
    for (const Value& item : list->items)
      if (visited(item) > 0) charge_comparison(item, budget);
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items) {
      budget.step(key_size(key, budget) / 64);
      if (visited(item) > 0) charge_comparison(item, budget);
    }
  }
}

bool is_equal(const Value& a, const Value& b, Budget& budget) {
  if (visited(a) > 0 && visited(b) > 0) charge_comparison(visited(a) < visited(b) ? a : b, budget);
  return equal(a, b);
}

}  // namespace

std::size_t key_size(const Value& key, Budget& budget) {
  if (const String* string = key.string()) return string->text.size();
  const List* list = key.list();
  if (!list || list->kind != List::Kind::tuple) return 0;
  std::size_t size = 0;
  for (const Value& item : list->items) {
    budget.step();
    size += key_size(item, budget);
  }
  return size;
}

Value combined(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  if (symbol == "%" && a.string()) {
    if (a.string()->safe) refuse("% of a text after the filter safe or escape is not supported");
    return text_value(printf_text(a.string()->text, b, budget));
  }
  if (a.undefined()) refuse_undefined(a);
  if (b.undefined()) refuse_undefined(b);
  if (const auto i = as_integer(a), j = as_integer(b); i && j) return combined_integers(symbol, *i, *j);
  if (const auto x = number(a), y = number(b); x && y) return combined_reals(symbol, *x, *y);
  if (symbol == "+") {
    if (a.string() && b.string()) return joined_strings(*a.string(), *b.string(), budget);
    if (a.list() && b.list() && a.list()->kind == b.list()->kind && is_plain(*a.list())) return joined_lists(*a.list(), *b.list(), budget);
  } else if (symbol == "*") {
    if (auto value = repeated(a, b, budget)) return *value;
    if (auto value = repeated(b, a, budget)) return *value;
  }
  refuse_types(symbol, a, b);
}

Value signed_value(char sign, const Value& value) {
  if (value.undefined()) refuse_undefined(value);
  if (const auto i = as_integer(value)) {
    if (sign == '-' && *i == std::numeric_limits<Integer>::min()) refuse_size();
    return {sign == '-' ? -*i : *i};
  }
  if (const double* d = value.real()) return {sign == '-' ? -*d : *d};
  refuse("the sign {} does not apply to a value of type '{}'", sign, type_name(value));
}

bool compares(std::string_view symbol, const Value& a, const Value& b, Budget& budget) {
  if (symbol == "==") return is_equal(a, b, budget);
  if (symbol == "!=") return !is_equal(a, b, budget);
  if (symbol == "in") return contains(b, a, budget);
  if (symbol == "not in") return !contains(b, a, budget);
  for (std::size_t level = 0; level <= depth_of(a); ++level) charge_comparison(a, budget);  // order() may visit the lowest level once per level
  const auto sign = order(a, b);
  if (!sign) return false;
  if (symbol == "<") return *sign < 0;
  if (symbol == "<=") return *sign <= 0;
  return symbol == ">" ? *sign > 0 : *sign >= 0;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.undefined()) return false;
  if (const String* string = container.string()) {
    if (!item.string()) refuse("a string contains strings only, not a value of type '{}'", type_name(item));
    return find_bytes(string->text.bytes(), item.string()->text.bytes(), 0, budget) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    budget.step(key_size(item, budget) / 64);
    return dict->find(item) != nullptr;
  }
  const List* list = container.list();
  if (!list) refuse("'in' needs a string, list or dict, not a value of type '{}'", type_name(container));
  for (std::size_t i = list->next; i < list->items.size(); ++i) {
    budget.step();
    if (list->kind == List::Kind::iterator) list->next = i + 1;
    if (is_equal(list->items[i], item, budget)) return true;
  }
  return false;
}

std::vector<Value> items_of(const Value& value, Budget& budget) {
  std::vector<Value> items;
  if (value.undefined()) return items;
  if (const List* list = value.list()) {
    budget.bytes((list->items.size() - list->next) * sizeof(Value));
    items.assign(list->items.begin() + std::ptrdiff_t(list->next), list->items.end());
    if (list->kind == List::Kind::iterator) list->next = list->items.size();
  } else if (const Dict* dict = value.dict()) {
    budget.bytes(dict->items.size() * sizeof(Value));
    for (const auto& [key, item] : dict->items) items.push_back(key);
  } else if (const String* string = value.string()) {
    const std::string& bytes = string->text.bytes();
    budget.bytes(length_of(bytes) * (sizeof(Value) + Budget::value_size));
    for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length)
      items.push_back(text_value(string->text.part(at, at + character_at(bytes, at).length)));
  } else {
    refuse("a value of type '{}' has no items", type_name(value));
  }
  return items;
}

namespace {

// Positions that a slice selects from `size` items: first, step and count.
struct Selection {
  Integer first, step;
  std::size_t count;
};

std::optional<Integer> bound_of(const Value& value) {
  if (value.none()) return std::nullopt;
  if (value.undefined() || !as_integer(value)) refuse("the bounds of a slice must be integers or none");
  return *as_integer(value);
}

Selection selection_of(Integer size, const Value& begin, const Value& end, const Value& step) {
  const Integer by = bound_of(step).value_or(1);
  if (by == 0) refuse("the step of a slice must not be 0");
  const Integer low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto clamped = [&](const Value& value, Integer none) {
    const auto bound = bound_of(value);
    if (!bound) return none;
    return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
  };
  const Integer first = clamped(begin, by > 0 ? low : high), last = clamped(end, by > 0 ? high : low);
  const Integer span = by > 0 ? last - first : first - last;
  if (span <= 0) return {first, by, 0};
  const auto width = by > 0 ? std::uint64_t(by) : -std::uint64_t(by);
  return {first, by, std::size_t((std::uint64_t(span) - 1) / width + 1)};
}

Text text_slice(const Text& text, const Selection& s) {
  const std::string& bytes = text.bytes();
  if (s.step == 1) {
    const std::size_t begin = byte_of(bytes, std::size_t(s.first));
    return text.part(begin, begin + byte_of(std::string_view(bytes).substr(begin), s.count));
  }
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length) starts.push_back(at);
  starts.push_back(bytes.size());
  Text out;
  for (std::size_t i = 0; i < s.count; ++i) {
    const auto at = std::size_t(s.first + Integer(i) * s.step);
    out.append(text, starts[at], starts[at + 1]);
  }
  return out;
}

}  // namespace

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (value.undefined()) refuse_undefined(value);
  if (const String* string = value.string()) {
    budget.bytes(string->text.memory() * (step.none() ? 1 : sizeof(std::size_t)));
    return text_value(text_slice(string->text, selection_of(Integer(length_of(string->text.bytes())), begin, end, step)), string->safe);
  }
  const List* list = value.list();
  if (!list || !list->has_index()) refuse("a value of type '{}' has no slices", type_name(value));
  const Selection s = selection_of(Integer(list->items.size()), begin, end, step);
  budget.bytes(s.count * sizeof(Value));
  if (list->kind == List::Kind::range) refuse("a slice of a range is not supported; apply the filter list first");
  std::vector<Value> items;
  for (std::size_t i = 0; i < s.count; ++i) items.push_back(list->items[std::size_t(s.first + Integer(i) * s.step)]);
  return list_value(std::move(items), list->kind);
}

}  // namespace gyr::jinja
