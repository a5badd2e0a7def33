// SPDX-License-Identifier: BSD-3-Clause
// Execution of statements.
#include <algorithm>

#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"

namespace gyr::jinja {

const Value* Scope::find(std::string_view name, Budget& budget) const {
  std::size_t passed = 0;  // variables and scopes without the name
  const Value* found = nullptr;
  for (const Scope* scope = this; scope && !found; scope = scope->outer.get()) {
    const auto place = std::find_if(scope->variables.begin(), scope->variables.end(), [&](const auto& v) { return v.first == name; });
    passed += 1 + std::size_t(place - scope->variables.begin());
    if (place != scope->variables.end()) found = &place->second;
  }
  budget.step(passed / 16);
  return found;
}

void Scope::set(const std::string& name, Value value, Budget& budget) {
  budget.step(variables.size() / 16);
  const auto place = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
  if (place == variables.end()) variables.emplace_back(name, std::move(value));
  else place->second = std::move(value);
}

// Macros, namespaces and loops may refer to each other in cycles. Each is emptied while all are still alive, so that no
// chain of destructors becomes deep.
Interpreter::~Interpreter() {
  for (const auto& scope : scopes_) scope->variables.clear(), scope->outer.reset();
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& loop : loops_) loop->changed.reset();
}

Text Interpreter::render(const Block& block, Variables variables) {
  auto given = std::make_shared<Scope>(Scope{nullptr, std::move(variables)});
  return rendered(block, given);
}

// Renders a block in a scope of its own.
Text Interpreter::rendered(const Block& block, const ScopePtr& outer) {
  Text text;
  execute(block, std::make_shared<Scope>(Scope{outer}), text);
  return text;
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePtr& scope, Text& out) {
  const Level level(*this);
  for (const auto& statement : block)
    if (const Flow flow = execute(*statement, scope, out); flow != Flow::normal) return flow;
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& s, const ScopePtr& scope, Text& out) {
  line_ = s.line;
  budget.step();
  using Kind = Statement::Kind;
  switch (s.kind) {
    case Kind::text: write(s.text, out); break;
    case Kind::output: write(evaluate(*s.expression, scope), out); break;
    case Kind::choice: return execute_choice(s, scope, out);
    case Kind::loop: return execute_loop(s, scope, out);
    case Kind::assign: assign(s.targets[0], evaluate(*s.expression, scope), *scope); break;
    case Kind::capture: {
      Value text = text_value(rendered(s.blocks[0], scope));
      if (s.expression) text = evaluate_filter(*s.expression, scope, &text);
      assign(s.targets[0], text, *scope);
      break;
    }
    case Kind::macro: scope->set(s.macro.name, make_macro(s.macro, scope), budget); break;
    case Kind::call: {
      const Value caller = make_macro(s.macro, scope);
      write(evaluate_call(*s.expression, scope, &caller), out);
      break;
    }
    case Kind::filter: {
      const Value text = text_value(rendered(s.blocks[0], scope));
      write(evaluate_filter(*s.expression, scope, &text), out);
      break;
    }
    case Kind::with: return execute_with(s, scope, out);
    case Kind::generation: {
      Text text = rendered(s.blocks[0], scope);
      text.mark_generated();
      budget.bytes(text.memory());
      out.append(text);
      break;
    }
    case Kind::leave_loop: return Flow::leave_loop;
    case Kind::next_iteration: return Flow::next_iteration;
  }
  return Flow::normal;
}

void Interpreter::write(const Value& value, Text& out) { append_shown(value, out, budget); }

Interpreter::Flow Interpreter::execute_choice(const Statement& s, const ScopePtr& scope, Text& out) {
  std::size_t branch = 0;
  while (branch < s.conditions.size() && !truth(evaluate(*s.conditions[branch], scope))) ++branch;
  return branch < s.blocks.size() ? execute(s.blocks[branch], scope, out) : Flow::normal;
}

// Items of a loop that pass its condition, which sees the loop's variables but not `loop`.
std::vector<Value> Interpreter::loop_items(const Statement& s, const ScopePtr& scope) {
  std::vector<Value> items = items_of(evaluate(*s.expression, scope), budget);
  if (s.conditions.empty()) return items;
  std::vector<Value> selected;
  for (Value& item : items) {
    const auto inner = std::make_shared<Scope>(Scope{scope});
    assign(s.targets[0], item, *inner);
    if (truth(evaluate(*s.conditions[0], inner))) selected.push_back(std::move(item));
  }
  return selected;
}

Interpreter::Flow Interpreter::execute_loop(const Statement& s, const ScopePtr& scope, Text& out) {
  budget.bytes(3 * Budget::value_size);  // the list, the loop and the scope of a turn
  const Value items = list_value(loop_items(s, scope));
  const auto loop = std::make_shared<Loop>(Loop{std::get<std::shared_ptr<const List>>(items.data)});
  bool completed = false;  // true: a turn ran to its end; Jinja skips the block of `else` only then
  for (; loop->index < loop->items->items.size(); ++loop->index) {
    const auto inner = std::make_shared<Scope>(Scope{scope});
    inner->set("loop", {loop}, budget);
    assign(s.targets[0], loop->items->items[loop->index], *inner);
    const Flow flow = execute(s.blocks[0], inner, out);
    completed = completed || flow == Flow::normal;
    if (flow == Flow::leave_loop) break;
  }
  if (completed || s.blocks.size() < 2) return Flow::normal;
  return execute(s.blocks[1], std::make_shared<Scope>(Scope{scope}), out);
}

Interpreter::Flow Interpreter::execute_with(const Statement& s, const ScopePtr& scope, Text& out) {
  const auto inner = std::make_shared<Scope>(Scope{scope});
  for (std::size_t i = 0; i < s.targets.size(); ++i) assign(s.targets[i], evaluate(*s.conditions[i], scope), *inner);
  return execute(s.blocks[0], inner, out);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.is_tuple) {
    const std::vector<Value> items = items_of(value, budget);
    if (items.size() != target.tuple.size()) refuse("{} values cannot be assigned to {} variables", items.size(), target.tuple.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.tuple[i], items[i], scope);
  } else if (target.attribute.empty()) {
    scope.set(target.name, value, budget);
  } else {
    const Value* space = scope.find(target.name, budget);
    if (!space || !space->space()) refuse("cannot assign an attribute of '{}', which is not a namespace", target.name);
    if (target.attribute.starts_with('_')) refuse("a namespace cannot have the attribute '{}', which begins with _", target.attribute);
    if (Value* present = space->space()->find(target.attribute)) *present = value;
    else add_attribute(*space->space(), target.attribute, value);
  }
}

void Interpreter::add_attribute(Namespace& space, const std::string& name, const Value& value) {
  if (space.attributes.size() >= max_attributes) refuse("a namespace with more than {} attributes is not supported", max_attributes);
  budget.bytes(Budget::value_size);
  space.attributes.emplace_back(name, value);
}

Value Interpreter::make_namespace(Variables attributes) {
  if (attributes.size() > max_attributes) refuse("a namespace with more than {} attributes is not supported", max_attributes);
  budget.bytes((1 + attributes.size()) * Budget::value_size);
  namespaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(attributes)}));
  return {namespaces_.back()};
}

Value Interpreter::make_macro(const MacroSyntax& syntax, const ScopePtr& scope) {
  for (ScopePtr s = scope; s && !s->kept; s = s->outer) {
    s->kept = true;
    scopes_.push_back(s);
    budget.bytes(Budget::value_size + s->variables.size() * sizeof s->variables[0]);
  }
  budget.bytes(2 * Budget::value_size);
  const auto call = [&syntax, scope = std::weak_ptr<Scope>(scope)](Interpreter& interpreter, const Arguments& arguments) {
    return text_value(interpreter.invoke(syntax, scope.lock(), arguments));
  };
  return {std::make_shared<const Callable>(
      Callable{syntax.name, call, 1, syntax.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", syntax.name)})};
}

Text Interpreter::invoke(const MacroSyntax& syntax, const ScopePtr& outer, const Arguments& arguments) {
  const int line = line_;
  const auto inner = std::make_shared<Scope>(Scope{outer});
  const std::size_t count = syntax.parameters.size(), given = std::min(arguments.positional.size(), count);
  budget.step((arguments.named.size() + 1) * (count + 1) / 16);
  Variables named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto place = std::find_if(named.begin(), named.end(), [&](const auto& v) { return v.first == name; });
    if (place == named.end()) return std::nullopt;
    Value value = std::move(place->second);
    named.erase(place);
    return value;
  };
  for (std::size_t i = 0; i < given; ++i) inner->set(syntax.parameters[i].name, arguments.positional[i], budget);
  std::vector<std::optional<Value>> rest;
  for (std::size_t i = given; i < count; ++i) rest.push_back(take(syntax.parameters[i].name));
  if (syntax.uses_caller) inner->set("caller", take("caller").value_or(undefined("the macro is not called by a call block")), budget);
  if (!named.empty() && !syntax.uses_kwargs) refuse("the macro '{}' has no parameter '{}'", syntax.name, named[0].first);
  if (arguments.positional.size() > count && !syntax.uses_varargs)
    refuse("the macro '{}' has {} parameters, but {} arguments are given", syntax.name, count, arguments.positional.size());
  if (syntax.uses_varargs) {
    const auto first = arguments.positional.begin() + std::ptrdiff_t(given);
    inner->set("varargs", list_value(std::vector<Value>(first, arguments.positional.end()), List::Kind::tuple), budget);
  }
  if (syntax.uses_kwargs) {
    std::vector<std::pair<Value, Value>> items;
    for (auto& [name, value] : named) items.emplace_back(text_value(name), std::move(value));
    inner->set("kwargs", dict_value(std::move(items)), budget);
  }
  for (std::size_t i = given; i < count; ++i) {
    const auto& parameter = syntax.parameters[i];
    if (rest[i - given]) inner->set(parameter.name, *rest[i - given], budget);
    else if (parameter.by_default) inner->set(parameter.name, evaluate(*parameter.by_default, inner), budget);
    else inner->set(parameter.name, undefined(fmt::format("the parameter '{}' has no value", parameter.name)), budget);
  }
  Text text;
  execute(syntax.body, inner, text);
  line_ = line;
  return text;
}

}  // namespace gyr::jinja
