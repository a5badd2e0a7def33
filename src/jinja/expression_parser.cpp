// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/expression_parser.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/jinja/filters.hpp"
#include "src/jinja/tests.hpp"

namespace gyr::jinja {

namespace {

constexpr int max_nesting = 200;  // brackets, operators and blocks

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& p) : parser(p) {
  if (parser.nesting_ >= max_nesting) parser.fail(fmt::format("expressions and blocks are nested deeper than {} levels", max_nesting));
  ++parser.nesting_;
}

void ExpressionParser::deepen(Expression& node, const ExpressionPtr& part) const {
  if (part) node.depth = std::max(node.depth, part->depth + 1);
  if (node.depth > max_nesting) fail(fmt::format("an expression has more than {} levels", max_nesting));
}
void ExpressionParser::add(Expression& node, ExpressionPtr part) const {
  deepen(node, part);
  node.parts.push_back(std::move(part));
}
void ExpressionParser::add(Expression& node, CallSyntax arguments) const {
  for (const auto& part : arguments.positional) deepen(node, part);
  for (const auto& [name, part] : arguments.named) deepen(node, part);
  deepen(node, arguments.list), deepen(node, arguments.map);
  node.arguments = std::move(arguments);
}

bool ExpressionParser::take_symbol(std::string_view text) {
  if (!is_symbol(text)) return false;
  ++next_;
  return true;
}
bool ExpressionParser::take_name(std::string_view text) {
  if (!is_name(text)) return false;
  ++next_;
  return true;
}
void ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) fail_unexpected(fmt::format("'{}'", text));
}
std::string ExpressionParser::expect_name(std::string_view what) {
  if (token().kind != Token::Kind::name) fail_unexpected(what);
  return next().text;
}

void ExpressionParser::fail_unexpected(std::string_view wanted) const {
  const Token& t = token();
  using K = Token::Kind;
  const std::string found = t.kind == K::name || t.kind == K::symbol    ? fmt::format("'{}'", t.text)
                            : t.kind == K::string                       ? "a string"
                            : t.kind == K::integer || t.kind == K::real ? "a number"
                            : t.kind == K::end                          ? "the end of the template"
                                                                        : "the end of the tag";
  fail(fmt::format("{} is expected, but {} follows", wanted, found));
}

bool ExpressionParser::ends_tuple(std::string_view end) const {
  const auto kind = token().kind;
  return kind == Token::Kind::end_output || kind == Token::Kind::end_statement || is_symbol(")") || (!end.empty() && is_name(end));
}

ExpressionPtr ExpressionParser::parse_tuple(Conditional conditional, std::string_view end, bool in_brackets) {
  auto tuple = make(Kind::tuple);
  bool comma = false;
  while (!ends_tuple(end)) {
    add(*tuple, parse_expression(conditional));
    if (!take_symbol(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  if (!tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (!in_brackets) fail_unexpected("an expression");
  return tuple;
}

ExpressionPtr ExpressionParser::parse_expression(Conditional conditional) {
  const Nesting nesting(*this);
  return conditional == Conditional::allowed ? parse_condition() : parse_or();
}

ExpressionPtr ExpressionParser::parse_condition() {
  ExpressionPtr value = parse_or();
  while (is_name("if")) {
    auto choice = make(Kind::condition);
    ++next_;
    add(*choice, parse_or());
    add(*choice, std::move(value));
    add(*choice, nullptr);
    if (take_name("else")) {
      const Nesting nesting(*this);
      choice->parts.pop_back(), add(*choice, parse_condition());
    }
    value = std::move(choice);
  }
  return value;
}

// Parses parts with operators of one precedence between them, as one node.
ExpressionPtr ExpressionParser::parse_chain(Kind kind, std::initializer_list<const char*> symbols, Parse part) {
  auto chain = make(kind);
  add(*chain, (this->*part)());
  while (std::any_of(symbols.begin(), symbols.end(), [&](const char* symbol) { return is_symbol(symbol); })) {
    chain->symbols.push_back(next().text);
    add(*chain, (this->*part)());
  }
  if (chain->parts.size() == 1) return std::move(chain->parts[0]);
  return chain;
}

ExpressionPtr ExpressionParser::parse_words(Kind kind, const char* word, Parse part) {
  auto chain = make(kind);
  add(*chain, (this->*part)());
  while (take_name(word)) add(*chain, (this->*part)());
  if (chain->parts.size() == 1) return std::move(chain->parts[0]);
  return chain;
}

ExpressionPtr ExpressionParser::parse_or() { return parse_words(Kind::any, "or", &ExpressionParser::parse_and); }
ExpressionPtr ExpressionParser::parse_and() { return parse_words(Kind::all, "and", &ExpressionParser::parse_not); }

ExpressionPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto negation = make(Kind::negation);
  ++next_;
  add(*negation, parse_not());
  return negation;
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto chain = make(Kind::compare);
  add(*chain, parse_sum());
  while (true) {
    static constexpr const char* symbols[] = {"==", "!=", "<", "<=", ">", ">="};
    if (std::any_of(std::begin(symbols), std::end(symbols), [&](const char* symbol) { return is_symbol(symbol); })) {
      chain->symbols.push_back(next().text);
    } else if (take_name("in")) {
      chain->symbols.emplace_back("in");
    } else if (is_name("not") && is_name("in", 1)) {
      next_ += 2;
      chain->symbols.emplace_back("not in");
    } else {
      break;
    }
    add(*chain, parse_sum());
  }
  if (chain->parts.size() == 1) return std::move(chain->parts[0]);
  return chain;
}

ExpressionPtr ExpressionParser::parse_sum() { return parse_chain(Kind::chain, {"+", "-"}, &ExpressionParser::parse_concat); }
ExpressionPtr ExpressionParser::parse_concat() { return parse_chain(Kind::concat, {"~"}, &ExpressionParser::parse_product); }
ExpressionPtr ExpressionParser::parse_product() { return parse_chain(Kind::chain, {"*", "/", "//", "%"}, &ExpressionParser::parse_power); }
ExpressionPtr ExpressionParser::parse_power() { return parse_chain(Kind::chain, {"**"}, &ExpressionParser::parse_filtered); }

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
  ExpressionPtr value;
  if (is_symbol("-") || is_symbol("+")) {
    const Nesting nesting(*this);
    auto sign = make(is_symbol("-") ? Kind::minus : Kind::plus);
    ++next_;
    add(*sign, parse_unary(false));
    value = std::move(sign);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filter_expression(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  switch (token().kind) {
    case Token::Kind::name: return parse_name();
    case Token::Kind::string: return parse_string();
    case Token::Kind::integer:
    case Token::Kind::real: {
      auto constant = make(Kind::constant);
      if (token().kind == Token::Kind::integer) constant->value.data = token().integer;
      else constant->value.data = token().real;
      ++next_;
      return constant;
    }
    default: break;
  }
  if (is_symbol("[")) return parse_list();
  if (is_symbol("{")) return parse_dict();
  if (!take_symbol("(")) fail_unexpected("an expression");
  ExpressionPtr inner = parse_tuple(Conditional::allowed, "", true);
  expect_symbol(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_name() {
  auto node = make(Kind::constant);
  const std::string name = next().text;
  if (name == "true" || name == "True") node->value.data = true;
  else if (name == "false" || name == "False") node->value.data = false;
  else if (name == "none" || name == "None") node->value.data = None{};
  else {
    node->kind = Kind::name;
    node->name = name;
    names_.insert(name);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_string() {
  auto constant = make(Kind::constant);
  std::string text;
  while (token().kind == Token::Kind::string) text += next().text;
  literals_.push_back(text);
  constant->value = text_value(text);
  return constant;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto list = make(Kind::list);
  expect_symbol("[");
  while (!is_symbol("]")) {
    add(*list, parse_expression());
    if (!take_symbol(",")) break;
  }
  expect_symbol("]");
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto dict = make(Kind::dict);
  expect_symbol("{");
  while (!is_symbol("}")) {
    add(*dict, parse_expression());
    expect_symbol(":");
    add(*dict, parse_expression());
    if (!take_symbol(",")) break;
  }
  expect_symbol("}");
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr base) {
  while (true) {
    if (is_symbol(".")) base = parse_attribute(std::move(base));
    else if (is_symbol("[")) base = parse_subscript(std::move(base));
    else if (is_symbol("(")) base = parse_call(std::move(base));
    else return base;
  }
}

ExpressionPtr ExpressionParser::parse_filter_expression(ExpressionPtr base) {
  while (true) {
    if (is_symbol("|")) base = parse_filters(std::move(base), false);
    else if (is_name("is")) base = parse_test(std::move(base));
    else if (is_symbol("(")) base = parse_call(std::move(base));
    else return base;
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr base) {
  auto node = make(Kind::attribute);
  expect_symbol(".");
  add(*node, std::move(base));
  if (token().kind == Token::Kind::integer) {
    node->kind = Kind::item;
    add(*node, parse_primary());
  } else {
    node->name = expect_name("the name of an attribute");
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr base) {
  auto node = make(Kind::item);
  expect_symbol("[");
  add(*node, std::move(base));
  const bool begins = !is_symbol(":");
  add(*node, begins ? parse_expression() : nullptr);
  if (begins && is_symbol(",")) {  // a tuple as the key
    auto tuple = make(Kind::tuple);
    add(*tuple, std::move(node->parts[1]));
    node->parts.pop_back();
    while (take_symbol(",")) add(*tuple, parse_expression());
    add(*node, std::move(tuple));
  } else if (take_symbol(":")) {
    node->kind = Kind::slice;
    add(*node, is_symbol(":") || is_symbol("]") ? nullptr : parse_expression());
    add(*node, take_symbol(":") && !is_symbol("]") ? parse_expression() : nullptr);
  }
  expect_symbol("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr base) {
  auto node = make(Kind::call);
  add(*node, std::move(base));
  add(*node, parse_arguments());
  return node;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name("the name of a filter or test");
  while (take_symbol(".")) name.append(1, '.').append(expect_name("the name of a filter or test"));
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr first, bool inline_first) {
  while (inline_first || take_symbol("|")) {
    inline_first = false;
    auto node = make(Kind::filter);
    const int line = token().line;
    node->name = parse_dotted_name();
    if (const std::string why = why_no_filter(node->name); !why.empty()) throw SyntaxProblem{why, line};
    add(*node, std::move(first));
    if (is_symbol("(")) add(*node, parse_arguments());
    first = std::move(node);
  }
  return first;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr base) {
  auto node = make(Kind::test);
  ++next_;
  const bool negated = take_name("not");
  const int line = token().line;
  node->name = parse_dotted_name();
  if (const std::string why = why_no_test(node->name); !why.empty()) throw SyntaxProblem{why, line};
  add(*node, std::move(base));
  using K = Token::Kind;
  const K kind = token().kind;
  if (is_symbol("(")) {
    add(*node, parse_arguments());
  } else if (kind == K::string || kind == K::integer || kind == K::real || is_symbol("[") || is_symbol("{") ||
             (kind == K::name && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) fail("a test cannot follow another one; put the first one into brackets");
    CallSyntax arguments;
    arguments.positional.push_back(parse_postfix(parse_primary()));
    add(*node, std::move(arguments));
  }
  if (!negated) return node;
  auto negation = std::make_unique<Expression>(Expression{Kind::negation, node->line});
  add(*negation, std::move(node));
  return negation;
}

CallSyntax ExpressionParser::parse_arguments() {
  const Nesting nesting(*this);
  CallSyntax arguments;
  expect_symbol("(");
  while (!is_symbol(")")) {
    parse_argument(arguments);
    if (!take_symbol(",")) break;
  }
  expect_symbol(")");
  return arguments;
}

void ExpressionParser::parse_argument(CallSyntax& arguments) {
  static constexpr const char* misplaced = "the arguments of a call are in the wrong order";
  if (take_symbol("*")) {
    if (arguments.list || arguments.map) fail(misplaced);
    arguments.list = parse_expression();
  } else if (take_symbol("**")) {
    if (arguments.map) fail(misplaced);
    arguments.map = parse_expression();
  } else if (token().kind == Token::Kind::name && token(1).kind == Token::Kind::symbol && token(1).text == "=") {
    if (arguments.map) fail(misplaced);
    std::string name = next().text;
    if (std::any_of(arguments.named.begin(), arguments.named.end(), [&](const auto& other) { return other.first == name; }))
      fail(fmt::format("the argument '{}' is given twice", name));
    if (arguments.named.size() >= max_arguments) fail(fmt::format("a call has more than {} named arguments", max_arguments));
    ++next_;
    arguments.named.emplace_back(std::move(name), parse_expression());
  } else {
    if (arguments.list || arguments.map || !arguments.named.empty()) fail(misplaced);
    arguments.positional.push_back(parse_expression());
  }
}

Target ExpressionParser::parse_target(bool attributes, std::string_view end) {
  const Nesting nesting(*this);
  std::vector<Target> targets;
  bool comma = false;
  while (!ends_tuple(end)) {
    Target target;
    if (take_symbol("(")) {
      target = parse_target(attributes, "");
      expect_symbol(")");
    } else {
      target.name = expect_name("the name of a variable");
      static const std::set<std::string> constants{"true", "True", "false", "False", "none", "None"};
      if (constants.contains(target.name)) fail(fmt::format("'{}' cannot be assigned", target.name));
      if (attributes && take_symbol(".")) target.attribute = expect_name("the name of an attribute"), names_.insert(target.name);
    }
    targets.push_back(std::move(target));
    if (!take_symbol(",")) break;
    comma = true;
  }
  if (targets.empty()) fail_unexpected("the name of a variable");
  if (!comma) return std::move(targets[0]);
  return {"", "", std::move(targets), true};
}

}  // namespace gyr::jinja
