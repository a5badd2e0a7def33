// SPDX-License-Identifier: BSD-3-Clause
// Filters that give numbers.
#include <cmath>
#include <limits>

#include "src/jinja/arguments.hpp"
#include "src/jinja/attribute_path.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/numbers.hpp"
#include "src/jinja/operators.hpp"

namespace gyr::jinja {

namespace {

Value filter_abs(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("abs", a, {});
  if (const double* d = value.real()) return {std::abs(*d)};
  const auto integer = as_integer(value);
  if (!integer) refuse("abs needs a number, not a value of type '{}'", type_name(value));
  return *integer < 0 ? signed_value('-', value) : Value{*integer};
}

// The real number without its fraction, as an integer.
Value truncated(double real) {
  if (!(std::abs(real) < 9.2e18)) refuse("cannot convert the real number {} to an integer of 64 bits", real);
  return {Integer(real)};
}

Value filter_int(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("int", a, {"default", "base"});
  const Value by_default = p.value(0, {Integer(0)});
  if (value.undefined()) refuse_undefined(value);
  if (const auto integer = as_integer(value)) return {*integer};
  if (const double* d = value.real()) return std::isnan(*d) ? by_default : truncated(*d);
  if (!value.string()) return by_default;
  const std::string& bytes = value.string()->text.bytes();
  bool too_large = false;
  const Integer base = p.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return by_default;
  if (const auto integer = integer_of(bytes, int(base), &too_large)) return {*integer};
  if (too_large) refuse("the integer '{}' does not fit into 64 bits", bytes.substr(0, 40));
  const auto real = real_of(bytes);
  return real && std::isfinite(*real) ? truncated(*real) : by_default;
}

Value filter_float(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("float", a, {"default"});
  if (value.undefined()) refuse_undefined(value);
  if (const auto real = number(value)) return {*real};
  const auto real = value.string() ? real_of(value.string()->text.bytes()) : std::nullopt;
  return real ? Value{*real} : p.value(0, {0.0});
}

Value filter_round(Interpreter&, const Value& value, const Arguments& a) {
  const Parameters p("round", a, {"precision", "method"});
  const std::string method = p.has(1) ? p.text(1).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor") refuse("round has the methods common, ceil and floor");
  const auto real = number(value);
  if (!real) refuse("round needs a number, not a value of type '{}'", type_name(value));
  if (p.has(0) && p.at(0).none() && method == "common") refuse("round(none) is not supported");
  const Integer precision = p.integer(0, 0);
  if (method == "common") {
    if (as_integer(value) && precision >= 0) return {*as_integer(value)};
    if (precision < 0 || precision > 300) refuse("round to {} digits is not supported", precision);
    if (!std::isfinite(*real)) return value;
    return {std::strtod(fmt::format("{:.{}f}", *real, precision).c_str(), nullptr)};  // rounds the exact decimal value, as Python does
  }
  if (precision < 0 || precision > 15) refuse("round to {} digits is not supported", precision);
  const double scale = std::pow(10.0, double(precision)), scaled = *real * scale;
  return {(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale};
}

Value filter_sum(Interpreter& in, const Value& value, const Arguments& a) {
  const Parameters p("sum", a, {"attribute", "start"});
  const AttributePath path(p.value(0, {None{}}), in.budget);
  Value total = p.value(1, {Integer(0)});
  if (total.string()) refuse("sum needs numbers or lists, not strings");
  for (const Value& item : items_of(value, in.budget)) total = combined("+", total, path.of(item, in.budget), in.budget);
  return total;
}

}  // namespace

FilterTable number_filters() {
  return {{"abs", filter_abs}, {"int", filter_int}, {"float", filter_float}, {"round", filter_round}, {"sum", filter_sum}};
}

}  // namespace gyr::jinja
