// SPDX-License-Identifier: BSD-3-Clause
// Splits a template into tokens, with the white-space rules that transformers sets (trim_blocks, lstrip_blocks): the
// line end after a statement is removed, and so are blanks between the start of a line and a statement. A minus sign in
// a tag strips all white space on its side, and a plus sign keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr::jinja {

struct Token {
  enum class Kind { text, begin_output, end_output, begin_statement, end_statement, name, string, integer, real, symbol, end };
  Kind kind;
  std::string text;  // text, content of a string, name or symbol
  int line = 1;
  std::int64_t integer = 0;
  double real = 0;
};

// Error of the lexer or the parser: a message and the line of the template.
struct SyntaxProblem {
  std::string message;
  int line;
};

// `source` is valid UTF-8. The last token has kind `end`. Throws SyntaxProblem.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace gyr::jinja
