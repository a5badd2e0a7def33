// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "src/jinja/expression_parser.hpp"

namespace gyr::jinja {

class StatementParser : private ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Syntax parse() {
    syntax_.body = parse_block({}, "");
    if (token().kind != Token::Kind::end) fail_unexpected("text or a tag");
    syntax_.names.assign(names_.begin(), names_.end());
    syntax_.literals = std::move(literals_);
    return std::move(syntax_);
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;
  using Words = std::initializer_list<const char*>;

  StatementPtr make(Statement::Kind kind) const { return std::make_unique<Statement>(Statement{kind, token().line}); }

  // Parses statements up to a tag that begins with one of `ends`, whose name becomes the current token. `open`: name of the tag that these
  // end, for messages.
  Block parse_block(Words ends, std::string_view open) {
    const Nesting nesting(*this);
    Block block;
    while (token().kind != Token::Kind::end) {
      if (token().kind == Token::Kind::text) {
        auto text = make(Statement::Kind::text);
        literals_.push_back(token().text);
        text->text = text_value(next().text);
        block.push_back(std::move(text));
      } else if (token().kind == Token::Kind::begin_output) {
        ++next_;
        auto output = make(Statement::Kind::output);
        output->expression = parse_tuple();
        end_tag(Token::Kind::end_output);
        block.push_back(std::move(output));
      } else {
        ++next_;  // begin_statement
        if (std::any_of(ends.begin(), ends.end(), [&](const char* end) { return is_name(end); })) return block;
        block.push_back(parse_statement());
        end_tag(Token::Kind::end_statement);
      }
    }
    if (ends.size() > 0) fail(fmt::format("the block {{% {} %}} is not closed; add {{% {} %}}", open, *(ends.end() - 1)));
    return block;
  }
  void end_tag(Token::Kind kind) {
    if (token().kind != kind) fail_unexpected("the end of the tag");
    ++next_;
  }
  // Parses the rest of an opening tag and its block. The closing tag's name is consumed.
  Block parse_body(Words ends, std::string_view open) {
    take_symbol(":");
    end_tag(Token::Kind::end_statement);
    return parse_block(ends, open);
  }
  Block parse_full_body(const char* end, std::string_view open) {
    Block block = parse_body({end}, open);
    ++next_;
    return block;
  }

  StatementPtr parse_statement() {
    const std::string name = token().kind == Token::Kind::name ? token().text : "";
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "generation") return parse_generation();
    if (name == "break" || name == "continue") return parse_jump();
    static constexpr const char* unsupported[] = {"include", "import", "from", "extends", "block", "autoescape", "print", "do", "trans", "debug"};
    if (std::any_of(std::begin(unsupported), std::end(unsupported), [&](const char* tag) { return name == tag; }))
      fail(fmt::format("the statement '{}' is not supported", name));
    if (name.empty()) fail_unexpected("the name of a statement");
    fail(fmt::format("there is no statement '{}', or it has no matching begin", name));
  }

  StatementPtr parse_if() {
    auto choice = make(Statement::Kind::choice);
    do {
      ++next_;
      choice->conditions.push_back(parse_tuple(Conditional::excluded));
      choice->blocks.push_back(parse_body({"elif", "else", "endif"}, "if"));
    } while (is_name("elif"));
    if (next().text == "else") choice->blocks.push_back(parse_full_body("endif", "if"));
    return choice;
  }

  StatementPtr parse_for() {
    auto loop = make(Statement::Kind::loop);
    ++next_;
    loop->targets.push_back(parse_target(false, "in"));
    if (!take_name("in")) fail_unexpected("'in'");
    loop->expression = parse_tuple(Conditional::excluded, "recursive");
    if (take_name("if")) loop->conditions.push_back(parse_expression());
    if (is_name("recursive")) fail("recursive loops are not supported; use a macro that calls itself");
    ++loops_;
    loop->blocks.push_back(parse_body({"else", "endfor"}, "for"));
    --loops_;
    if (next().text == "else") loop->blocks.push_back(parse_full_body("endfor", "for"));
    return loop;
  }

  StatementPtr parse_set() {
    auto statement = make(Statement::Kind::assign);
    ++next_;
    statement->targets.push_back(parse_target(true, ""));
    if (take_symbol("=")) {
      statement->expression = parse_tuple();
      return statement;
    }
    statement->kind = Statement::Kind::capture;
    statement->expression = parse_filters(nullptr, false);
    statement->blocks.push_back(parse_inner_body("endset", "set"));
    return statement;
  }

  // Parses a block that is rendered apart from the loop around it, which it can therefore not leave.
  Block parse_inner_body(const char* end, std::string_view open) {
    const int loops = std::exchange(loops_, 0);
    Block block = parse_full_body(end, open);
    loops_ = loops;
    return block;
  }

  MacroSyntax parse_signature_and_body(bool signature, const char* end, std::string_view open, ExpressionPtr* call) {
    MacroSyntax macro;
    if (open == "macro") macro.name = expect_name("the name of the macro");
    if (signature) parse_signature(macro);
    if (call) *call = parse_expression();
    std::set<std::string> before = std::exchange(names_, {});
    macro.body = parse_inner_body(end, open);
    const auto uses = [&](const std::string& name) {
      return names_.contains(name) && std::none_of(macro.parameters.begin(), macro.parameters.end(), [&](const auto& p) { return p.name == name; });
    };
    macro.uses_caller = uses("caller"), macro.uses_varargs = uses("varargs"), macro.uses_kwargs = uses("kwargs");
    before.merge(names_);
    names_ = std::move(before);
    return macro;
  }

  void parse_signature(MacroSyntax& macro) {
    expect_symbol("(");
    while (!is_symbol(")")) {
      MacroSyntax::Parameter parameter{expect_name("the name of a parameter"), nullptr};
      if (std::any_of(macro.parameters.begin(), macro.parameters.end(), [&](const auto& other) { return other.name == parameter.name; }))
        fail(fmt::format("the parameter '{}' is given twice", parameter.name));
      if (macro.parameters.size() >= max_arguments) fail(fmt::format("a macro has more than {} parameters", max_arguments));
      if (take_symbol("=")) parameter.by_default = parse_expression();
      else if (!macro.parameters.empty() && macro.parameters.back().by_default) fail("a parameter without a default follows one with a default");
      macro.parameters.push_back(std::move(parameter));
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
  }

  StatementPtr parse_macro() {
    auto statement = make(Statement::Kind::macro);
    ++next_;
    statement->macro = parse_signature_and_body(true, "endmacro", "macro", nullptr);
    return statement;
  }

  StatementPtr parse_call_block() {
    auto statement = make(Statement::Kind::call);
    ++next_;
    statement->macro = parse_signature_and_body(is_symbol("("), "endcall", "call", &statement->expression);
    if (statement->expression->kind != Expression::Kind::call) throw SyntaxProblem{"the statement 'call' needs a call", statement->line};
    return statement;
  }

  StatementPtr parse_filter_block() {
    auto statement = make(Statement::Kind::filter);
    ++next_;
    statement->expression = parse_filters(nullptr, true);
    statement->blocks.push_back(parse_inner_body("endfilter", "filter"));
    return statement;
  }

  StatementPtr parse_with() {
    auto statement = make(Statement::Kind::with);
    ++next_;
    while (token().kind != Token::Kind::end_statement) {
      if (!statement->targets.empty()) expect_symbol(",");
      statement->targets.push_back(parse_target(false, "="));
      expect_symbol("=");
      statement->conditions.push_back(parse_expression());
    }
    statement->blocks.push_back(parse_full_body("endwith", "with"));
    return statement;
  }

  StatementPtr parse_generation() {
    auto statement = make(Statement::Kind::generation);
    ++next_;
    syntax_.generation = true;
    statement->blocks.push_back(parse_inner_body("endgeneration", "generation"));
    return statement;
  }

  StatementPtr parse_jump() {
    auto statement = make(is_name("break") ? Statement::Kind::leave_loop : Statement::Kind::next_iteration);
    if (loops_ == 0) fail(fmt::format("'{}' is outside of a loop", token().text));
    ++next_;
    return statement;
  }

  Syntax syntax_;
  int loops_ = 0;  // enclosing loops that `break` can leave
};

Syntax parse(std::string_view source) { return StatementParser(tokens_of(source)).parse(); }

}  // namespace gyr::jinja
