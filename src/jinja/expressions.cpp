// SPDX-License-Identifier: BSD-3-Clause
// Evaluation of expressions.
#include "src/jinja/attributes.hpp"
#include "src/jinja/filters.hpp"
#include "src/jinja/functions.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"
#include "src/jinja/tests.hpp"

namespace gyr::jinja {

namespace {

constexpr int max_level = 1200;  // nested evaluations, macros included

}  // namespace

Interpreter::Level::Level(Interpreter& i) : interpreter(i) {
  if (interpreter.level_ >= max_level) refuse("macros and expressions are nested deeper than {} levels", max_level);
  ++interpreter.level_;
}

Value Interpreter::evaluate(const Expression& e, const ScopePtr& scope) {
  const Level level(*this);
  budget.step();
  using Kind = Expression::Kind;
  switch (e.kind) {
    case Kind::constant: return e.value;
    case Kind::name: return evaluate_name(e, *scope);
    case Kind::list:
    case Kind::tuple: return evaluate_sequence(e, scope);
    case Kind::dict: return evaluate_dict(e, scope);
    case Kind::chain: return evaluate_chain(e, scope);
    case Kind::concat: return evaluate_concat(e, scope);
    case Kind::compare: return {evaluate_compare(e, scope)};
    case Kind::all:
    case Kind::any: return evaluate_words(e, scope);
    case Kind::negation: return {!truth(evaluate(*e.parts[0], scope))};
    case Kind::minus: return signed_value('-', evaluate(*e.parts[0], scope));
    case Kind::plus: return signed_value('+', evaluate(*e.parts[0], scope));
    case Kind::condition: return evaluate_condition(e, scope);
    case Kind::attribute: return attribute_of(evaluate(*e.parts[0], scope), e.name, budget);
    case Kind::item: return evaluate_item(e, scope);
    case Kind::slice: return evaluate_slice(e, scope);
    case Kind::call: return evaluate_call(e, scope, nullptr);
    case Kind::filter: return evaluate_filter(e, scope, nullptr);
    case Kind::test: {
      const Value value = evaluate(*e.parts[0], scope);
      return {passes_test(e.name, value, evaluate_arguments(e.arguments, scope))};
    }
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& e, const Scope& scope) {
  if (const Value* value = scope.find(e.name, budget)) return *value;
  const Value function = global_function(e.name);
  return function.undefined() ? undefined(fmt::format("the variable '{}' is not defined", e.name)) : function;
}

Value Interpreter::evaluate_sequence(const Expression& e, const ScopePtr& scope) {
  std::vector<Value> items;
  for (const auto& part : e.parts) items.push_back(evaluate(*part, scope));
  budget.bytes(Budget::value_size + items.size() * sizeof(Value));
  return list_value(std::move(items), e.kind == Expression::Kind::list ? List::Kind::list : List::Kind::tuple);
}

Value Interpreter::evaluate_dict(const Expression& e, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> items;
  for (std::size_t i = 0; i < e.parts.size(); i += 2) {
    Value key = evaluate(*e.parts[i], scope);
    budget.bytes(Budget::value_size + key_size(key, budget));
    items.emplace_back(std::move(key), evaluate(*e.parts[i + 1], scope));
  }
  budget.bytes(Budget::value_size + items.size() * 2 * sizeof(Value));
  return dict_value(std::move(items));
}

Value Interpreter::evaluate_chain(const Expression& e, const ScopePtr& scope) {
  Value value = evaluate(*e.parts[0], scope);
  for (std::size_t i = 1; i < e.parts.size(); ++i) value = combined(e.symbols[i - 1], value, evaluate(*e.parts[i], scope), budget);
  return value;
}

Value Interpreter::evaluate_concat(const Expression& e, const ScopePtr& scope) {
  Text text;
  std::vector<Value> parts;
  for (const auto& part : e.parts) parts.push_back(evaluate(*part, scope));
  for (const Value& part : parts) append_shown(part, text, budget);
  budget.bytes(Budget::value_size);
  return text_value(std::move(text));
}

bool Interpreter::evaluate_compare(const Expression& e, const ScopePtr& scope) {
  Value left = evaluate(*e.parts[0], scope);
  for (std::size_t i = 1; i < e.parts.size(); ++i) {
    Value right = evaluate(*e.parts[i], scope);
    if (!compares(e.symbols[i - 1], left, right, budget)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_words(const Expression& e, const ScopePtr& scope) {
  Value value;
  for (const auto& part : e.parts) {
    value = evaluate(*part, scope);
    if (truth(value) == (e.kind == Expression::Kind::any)) break;
  }
  return value;
}

Value Interpreter::evaluate_condition(const Expression& e, const ScopePtr& scope) {
  if (truth(evaluate(*e.parts[0], scope))) return evaluate(*e.parts[1], scope);
  if (e.parts[2]) return evaluate(*e.parts[2], scope);
  return undefined("the condition is false and has no else");
}

Value Interpreter::evaluate_item(const Expression& e, const ScopePtr& scope) {
  const Value base = evaluate(*e.parts[0], scope);
  return item_of(base, evaluate(*e.parts[1], scope), budget);
}

Value Interpreter::evaluate_slice(const Expression& e, const ScopePtr& scope) {
  const Value base = evaluate(*e.parts[0], scope);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) bounds[i] = e.parts[i + 1] ? evaluate(*e.parts[i + 1], scope) : Value{None{}};
  return slice_of(base, bounds[0], bounds[1], bounds[2], budget);
}

Arguments Interpreter::evaluate_arguments(const CallSyntax& syntax, const ScopePtr& scope) {
  Arguments arguments;
  for (const auto& part : syntax.positional) arguments.positional.push_back(evaluate(*part, scope));
  for (const auto& [name, part] : syntax.named) arguments.named.emplace_back(name, evaluate(*part, scope));
  if (syntax.list)
    for (Value& item : items_of(evaluate(*syntax.list, scope), budget)) arguments.positional.push_back(std::move(item));
  if (!syntax.map) return arguments;
  const Value map = evaluate(*syntax.map, scope);
  if (!map.dict()) refuse("** needs a dict, not a value of type '{}'", type_name(map));
  const std::size_t written = arguments.named.size();  // the keys of the mapping differ from each other
  for (const auto& [key, value] : map.dict()->items) {
    if (!key.string()) refuse("the keys of a dict after ** must be strings");
    const std::string& keyword = key.string()->text.bytes();
    budget.bytes(4 * (Budget::value_size + keyword.size())), budget.step(written / 16);  // calls copy the names
    for (std::size_t i = 0; i < written; ++i)
      if (arguments.named[i].first == keyword) refuse("the argument '{}' is given twice", keyword);
    arguments.named.emplace_back(keyword, value);
  }
  return arguments;
}

// `caller`: block of the statement `call`, or null.
Value Interpreter::evaluate_call(const Expression& e, const ScopePtr& scope, const Value* caller) {
  const Value callable = evaluate(*e.parts[0], scope);
  Arguments arguments = evaluate_arguments(e.arguments, scope);
  if (caller) arguments.named.emplace_back("caller", *caller);
  return call(callable, arguments);
}

Value Interpreter::call(const Value& callable, const Arguments& arguments) {
  if (callable.undefined()) refuse_undefined(callable);
  if (!callable.callable()) refuse("a value of type '{}' cannot be called", type_name(callable));
  budget.bytes(Budget::value_size);
  return callable.callable()->call(*this, arguments);
}

// `first`: text of the block that the innermost filter is applied to, or null for a filter in an expression.
Value Interpreter::evaluate_filter(const Expression& e, const ScopePtr& scope, const Value* first) {
  const Level level(*this);
  Value value;
  if (!e.parts[0]) value = *first;
  else if (first && e.parts[0]->kind == Expression::Kind::filter) value = evaluate_filter(*e.parts[0], scope, first);
  else value = evaluate(*e.parts[0], scope);
  return apply_filter(e.name, value, evaluate_arguments(e.arguments, scope));
}

Value Interpreter::apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  budget.bytes(Budget::value_size);
  return filter_named(name)(*this, value, arguments);
}

bool Interpreter::passes_test(const std::string& name, const Value& value, const Arguments& arguments) {
  budget.step();
  return test_named(name)(*this, value, arguments);
}

}  // namespace gyr::jinja
