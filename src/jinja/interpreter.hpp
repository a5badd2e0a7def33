// SPDX-License-Identifier: BSD-3-Clause
// Renders the syntax tree of a template: evaluates expressions and executes statements.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/budget.hpp"
#include "src/jinja/syntax.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// Variables of a block. A name is looked up from the inside to the outside.
struct Scope {
  std::shared_ptr<Scope> outer;
  Variables variables = {};
  bool kept = false;  // true: the interpreter keeps the scope, because a macro refers to it

  const Value* find(std::string_view name, Budget& budget) const;
  void set(const std::string& name, Value value, Budget& budget);
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  // `now`: the time that strftime_now() formats. `input_bytes`: size of the variables.
  Interpreter(std::time_t now, std::size_t input_bytes) : now(now), budget(input_bytes) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Problem; line() is then the line of the statement.
  Text render(const Block& block, Variables variables);
  int line() const { return line_; }

  Value call(const Value& callable, const Arguments& arguments);
  Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool passes_test(const std::string& name, const Value& value, const Arguments& arguments);
  Value make_namespace(Variables attributes);
  void keep(std::shared_ptr<Loop> loop) { loops_.push_back(std::move(loop)); }

  const std::time_t now;
  Budget budget;

 private:
  enum class Flow { normal, leave_loop, next_iteration };

  // Counts the levels of evaluation while it exists.
  struct Level {
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter.level_; }
    Interpreter& interpreter;
  };

  // Expressions.
  Value evaluate(const Expression& e, const ScopePtr& scope);
  Value evaluate_name(const Expression& e, const Scope& scope);
  Value evaluate_sequence(const Expression& e, const ScopePtr& scope);
  Value evaluate_dict(const Expression& e, const ScopePtr& scope);
  Value evaluate_chain(const Expression& e, const ScopePtr& scope);
  Value evaluate_concat(const Expression& e, const ScopePtr& scope);
  bool evaluate_compare(const Expression& e, const ScopePtr& scope);
  Value evaluate_words(const Expression& e, const ScopePtr& scope);
  Value evaluate_condition(const Expression& e, const ScopePtr& scope);
  Value evaluate_item(const Expression& e, const ScopePtr& scope);
  Value evaluate_slice(const Expression& e, const ScopePtr& scope);
  Value evaluate_call(const Expression& e, const ScopePtr& scope, const Value* caller);
  Value evaluate_filter(const Expression& e, const ScopePtr& scope, const Value* first);
  Arguments evaluate_arguments(const CallSyntax& syntax, const ScopePtr& scope);

  // Statements.
  Flow execute(const Block& block, const ScopePtr& scope, Text& out);
  Flow execute(const Statement& s, const ScopePtr& scope, Text& out);
  Flow execute_choice(const Statement& s, const ScopePtr& scope, Text& out);
  Flow execute_loop(const Statement& s, const ScopePtr& scope, Text& out);
  Flow execute_with(const Statement& s, const ScopePtr& scope, Text& out);
  void write(const Value& value, Text& out);
  std::vector<Value> loop_items(const Statement& s, const ScopePtr& scope);
  Text rendered(const Block& block, const ScopePtr& outer);
  void assign(const Target& target, const Value& value, Scope& scope);
  void add_attribute(Namespace& space, const std::string& name, const Value& value);
  Value make_macro(const MacroSyntax& syntax, const ScopePtr& scope);
  Text invoke(const MacroSyntax& syntax, const ScopePtr& outer, const Arguments& arguments);

  int level_ = 0, line_ = 1;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Loop>> loops_;
  std::vector<ScopePtr> scopes_;
};

}  // namespace gyr::jinja
