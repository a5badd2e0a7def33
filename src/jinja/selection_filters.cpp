// SPDX-License-Identifier: BSD-3-Clause
// Filters that apply an attribute, a filter or a test to each item. Jinja computes their results item by item when these are used; here
// they are computed at once.
#include "src/jinja/arguments.hpp"
#include "src/jinja/attribute_path.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"

namespace gyr::jinja {

namespace {

const std::string& name_in(const Arguments& a, std::size_t i, const char* what) {
  if (!a.positional[i].string()) refuse("the name of a {} must be a string, not {}", what, type_name(a.positional[i]));
  return a.positional[i].string()->text.bytes();
}

Arguments rest_of(const Arguments& a, std::size_t from) {
  Arguments rest;
  rest.positional.assign(a.positional.begin() + std::ptrdiff_t(from), a.positional.end());
  rest.named = a.named;
  return rest;
}

Value filter_map(Interpreter& in, const Value& value, const Arguments& a) {
  std::vector<Value> items;
  if (!truth(value)) return list_value({}, List::Kind::iterator);
  if (a.positional.empty()) {
    const Parameters p("map", a, {"attribute", "default"});
    if (!p.has(0)) refuse("map needs a filter or the argument 'attribute'");
    const AttributePath path(p.at(0), in.budget);
    const Value by_default = p.value(1, {None{}});
    for (const Value& item : items_of(value, in.budget)) items.push_back(path.of(item, in.budget, by_default.none() ? nullptr : &by_default));
  } else {
    const std::string& name = name_in(a, 0, "filter");
    const Arguments rest = rest_of(a, 1);
    for (const Value& item : items_of(value, in.budget)) items.push_back(in.apply_filter(name, item, rest));
  }
  return list_value(std::move(items), List::Kind::iterator);
}

template <bool attribute, bool wanted>
Value filter_select(Interpreter& in, const Value& value, const Arguments& a) {
  if (!truth(value)) return list_value({}, List::Kind::iterator);
  if (attribute && a.positional.empty()) refuse("selectattr and rejectattr need the name of an attribute");
  const AttributePath path(attribute ? a.positional[0] : Value{None{}}, in.budget);
  const std::size_t test = attribute ? 1 : 0;
  const std::string name = a.positional.size() > test ? name_in(a, test, "test") : "";
  const Arguments rest = name.empty() ? Arguments{} : rest_of(a, test + 1);
  std::vector<Value> items;
  for (Value& item : items_of(value, in.budget)) {
    const Value tested = path.of(item, in.budget);
    const bool passes = name.empty() ? truth(tested) : in.passes_test(name, tested, rest);
    if (passes == wanted) items.push_back(std::move(item));
  }
  return list_value(std::move(items), List::Kind::iterator);
}

}  // namespace

FilterTable selection_filters() {
  return {{"map", filter_map},
          {"select", filter_select<false, true>},
          {"reject", filter_select<false, false>},
          {"selectattr", filter_select<true, true>},
          {"rejectattr", filter_select<true, false>}};
}

}  // namespace gyr::jinja
