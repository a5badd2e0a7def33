// SPDX-License-Identifier: BSD-3-Clause
// Syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// Arguments of a call, a filter or a test.
struct CallSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list, map;  // arguments written as *list and **map; may be null
};

struct Expression {
  enum class Kind {
    constant,   // value
    name,       // name
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value, ...
    chain,      // parts joined by the binary operators in `symbols`, from left to right
    concat,     // parts joined by ~
    compare,    // parts compared by the operators in `symbols`
    all,        // parts joined by `and`
    any,        // parts joined by `or`
    negation,   // not parts[0]
    minus,      // -parts[0]
    plus,       // +parts[0]
    condition,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
    attribute,  // parts[0].name
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]]; each bound may be null
    call,       // parts[0](arguments)
    filter,     // parts[0] | name(arguments); parts[0] is null at the head of a filter block
    test,       // parts[0] is name(arguments)
  };
  Kind kind;
  int line;
  int depth = 1;  // levels of the tree below this node
  std::string name = {};
  Value value = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> symbols = {};  // [i]: operator before parts[i + 1]
  CallSyntax arguments = {};
};

// Target of an assignment: names, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name = {}, attribute = {};
  std::vector<Target> tuple = {};
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

// Signature and body of a macro, or of the block of a call.
struct MacroSyntax {
  struct Parameter {
    std::string name;
    ExpressionPtr by_default;  // may be null
  };
  std::string name = {};
  std::vector<Parameter> parameters = {};
  Block body = {};
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // true: the body reads this name, and no parameter has it
};

struct Statement {
  enum class Kind {
    text,            // text
    output,          // {{ expression }}
    choice,          // if, elif: conditions[i] selects blocks[i]; a further block is that of else
    loop,            // for target in expression if condition: blocks[0]; else: blocks[1]
    assign,          // set target = expression
    capture,         // set target | filters: blocks[0]; `expression` is the outermost filter, or null
    macro,           // macro
    call,            // call of `expression` with the block `macro`
    filter,          // filter expression: blocks[0]
    with,            // targets[i] = conditions[i]: blocks[0]
    generation,      // blocks[0]
    leave_loop,      // break
    next_iteration,  // continue
  };
  Kind kind;
  int line;
  Value text = {};
  ExpressionPtr expression = {};
  std::vector<ExpressionPtr> conditions = {};
  std::vector<Target> targets = {};
  std::vector<Block> blocks = {};
  MacroSyntax macro = {};
};

struct Syntax {
  Block body = {};
  std::vector<std::string> names = {};     // all names that the template reads, sorted
  std::vector<std::string> literals = {};  // all texts and string literals
  bool generation = false;                 // true: there is a {% generation %} block
};

}  // namespace gyr::jinja
