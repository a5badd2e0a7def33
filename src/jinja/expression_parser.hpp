// SPDX-License-Identifier: BSD-3-Clause
// Parses expressions. The grammar and its precedences are those of Jinja 3.1.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/lexer.hpp"
#include "src/jinja/syntax.hpp"

namespace gyr::jinja {

class ExpressionParser {
 protected:
  using Kind = Expression::Kind;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& token(std::size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  bool is_symbol(std::string_view text) const { return token().kind == Token::Kind::symbol && token().text == text; }
  bool is_name(std::string_view text, std::size_t ahead = 0) const { return token(ahead).kind == Token::Kind::name && token(ahead).text == text; }
  bool take_symbol(std::string_view text);
  bool take_name(std::string_view text);
  void expect_symbol(std::string_view text);
  std::string expect_name(std::string_view what);
  const Token& next() { return tokens_[std::min(next_++, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxProblem{message, token().line}; }
  [[noreturn]] void fail_unexpected(std::string_view wanted) const;

  enum class Conditional { allowed, excluded };  // whether `a if b else c` may follow without brackets
  // A tuple may be written without brackets. `end`: name that ends it, or "".
  ExpressionPtr parse_tuple(Conditional conditional = Conditional::allowed, std::string_view end = "", bool in_brackets = false);
  ExpressionPtr parse_expression(Conditional conditional = Conditional::allowed);
  // Parses filters that are applied to `first`, which is null at the head of a block. `inline_first`: the first one has
  // no | before it.
  ExpressionPtr parse_filters(ExpressionPtr first, bool inline_first);
  Target parse_target(bool attributes, std::string_view end);

  static constexpr std::size_t max_arguments = 1000;  // named arguments of a call, parameters of a macro

  std::set<std::string> names_;  // names that were read
  std::vector<std::string> literals_;

 private:
  using Parse = ExpressionPtr (ExpressionParser::*)();

  // Guards against deep recursion while it exists.
  struct Nesting {
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser.nesting_; }
    ExpressionParser& parser;
  };
  friend class StatementParser;

  // Adds a part, which may be null. Fails if the tree becomes too deep.
  void add(Expression& node, ExpressionPtr part) const;
  void add(Expression& node, CallSyntax arguments) const;
  void deepen(Expression& node, const ExpressionPtr& part) const;
  std::unique_ptr<Expression> make(Kind kind) const { return std::make_unique<Expression>(Expression{kind, token().line}); }
  ExpressionPtr parse_chain(Kind kind, std::initializer_list<const char*> symbols, Parse part);
  ExpressionPtr parse_words(Kind kind, const char* word, Parse part);
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_filtered() { return parse_unary(true); }
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr base);
  ExpressionPtr parse_filter_expression(ExpressionPtr base);
  ExpressionPtr parse_attribute(ExpressionPtr base);
  ExpressionPtr parse_subscript(ExpressionPtr base);
  ExpressionPtr parse_call(ExpressionPtr base);
  ExpressionPtr parse_test(ExpressionPtr base);
  CallSyntax parse_arguments();
  void parse_argument(CallSyntax& arguments);
  std::string parse_dotted_name();
  bool ends_tuple(std::string_view end) const;

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
};

}  // namespace gyr::jinja
