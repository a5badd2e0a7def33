// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/tests.hpp"

#include <map>

#include "src/jinja/arguments.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"

namespace gyr::jinja {

namespace {

using Predicate = bool (*)(const Value&);

// A test without arguments.
Test plain(Predicate predicate) {
  return [predicate](Interpreter&, const Value& value, const Arguments& a) {
    const Parameters p("the test", a, {});
    return predicate(value);
  };
}

bool is_iterable(const Value& value) { return value.undefined() || value.string() || value.list() || value.dict() || value.loop(); }
bool is_sequence(const Value& value) { return value.undefined() || value.string() || value.dict() || (value.list() && value.list()->has_index()); }

const Value& argument_of(const Arguments& a) {
  static const char* const names = "other";
  if (a.positional.size() != 1 || !a.named.empty()) refuse("the test needs one argument, '{}'", names);
  return a.positional[0];
}

enum class Symbol { eq, ne, gt, ge, lt, le, in };
template <Symbol symbol>
bool comparison(Interpreter& in, const Value& value, const Arguments& a) {
  static constexpr const char* symbols[] = {"==", "!=", ">", ">=", "<", "<=", "in"};
  return compares(symbols[int(symbol)], value, argument_of(a), in.budget);
}

bool is_divisible(Interpreter& in, const Value& value, const Arguments& a) {
  return equal(combined("%", value, argument_of(a), in.budget), {Integer(0)});
}
template <bool odd>
bool has_parity(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("the test", a, {});
  return equal(combined("%", value, {Integer(2)}, in.budget), {Integer(odd ? 1 : 0)});
}

template <bool upper>
bool in_letter_case(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("the test", a, {});
  const Text text = shown_text(value, in.budget);
  return upper ? is_upper_text(text.bytes()) : is_lower_text(text.bytes());
}

// Identity, which is that of the object in Python. Supported for values whose identity does not depend on how they were computed.
bool is_same(Interpreter&, const Value& value, const Arguments& a) {
  const Value& other = argument_of(a);
  const auto single = [](const Value& v) { return v.none() || v.boolean(); };
  if (single(value) || single(other)) return value.data.index() == other.data.index() && equal(value, other);
  if (value.space() && other.space()) return value.space() == other.space();
  refuse("the test sameas is supported for true, false, none and namespaces only");
}

bool is_filter(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("the test", a, {});
  return value.string() && why_no_filter(value.string()->text.bytes()).empty();
}
bool is_test(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("the test", a, {});
  return value.string() && why_no_test(value.string()->text.bytes()).empty();
}

const std::map<std::string_view, Test>& all_tests() {
  static const std::map<std::string_view, Test> tests{{"defined", plain([](const Value& v) { return !v.undefined(); })},
                                                      {"undefined", plain([](const Value& v) { return v.undefined(); })},
                                                      {"none", plain([](const Value& v) { return v.none(); })},
                                                      {"boolean", plain([](const Value& v) { return v.boolean() != nullptr; })},
                                                      {"true", plain([](const Value& v) { return v.boolean() && *v.boolean(); })},
                                                      {"false", plain([](const Value& v) { return v.boolean() && !*v.boolean(); })},
                                                      {"integer", plain([](const Value& v) { return v.integer() != nullptr; })},
                                                      {"float", plain([](const Value& v) { return v.real() != nullptr; })},
                                                      {"number", plain([](const Value& v) { return number(v).has_value(); })},
                                                      {"string", plain([](const Value& v) { return v.string() != nullptr; })},
                                                      {"mapping", plain([](const Value& v) { return v.dict() != nullptr; })},
                                                      {"callable", plain([](const Value& v) { return v.callable() || v.loop() || v.undefined(); })},
                                                      {"escaped", plain([](const Value& v) { return v.string() && v.string()->safe; })},
                                                      {"iterable", plain(is_iterable)},
                                                      {"sequence", plain(is_sequence)},
                                                      {"odd", has_parity<true>},
                                                      {"even", has_parity<false>},
                                                      {"divisibleby", is_divisible},
                                                      {"upper", in_letter_case<true>},
                                                      {"lower", in_letter_case<false>},
                                                      {"sameas", is_same},
                                                      {"filter", is_filter},
                                                      {"test", is_test},
                                                      {"in", comparison<Symbol::in>},
                                                      {"==", comparison<Symbol::eq>},
                                                      {"eq", comparison<Symbol::eq>},
                                                      {"equalto", comparison<Symbol::eq>},
                                                      {"!=", comparison<Symbol::ne>},
                                                      {"ne", comparison<Symbol::ne>},
                                                      {">", comparison<Symbol::gt>},
                                                      {"gt", comparison<Symbol::gt>},
                                                      {"greaterthan", comparison<Symbol::gt>},
                                                      {">=", comparison<Symbol::ge>},
                                                      {"ge", comparison<Symbol::ge>},
                                                      {"<", comparison<Symbol::lt>},
                                                      {"lt", comparison<Symbol::lt>},
                                                      {"lessthan", comparison<Symbol::lt>},
                                                      {"<=", comparison<Symbol::le>},
                                                      {"le", comparison<Symbol::le>}};
  return tests;
}

}  // namespace

std::string why_no_test(const std::string& name) { return all_tests().contains(name) ? "" : fmt::format("there is no test '{}'", name); }

const Test& test_named(const std::string& name) {
  const auto test = all_tests().find(name);
  if (test == all_tests().end()) refuse("{}", why_no_test(name));
  return test->second;
}

}  // namespace gyr::jinja
