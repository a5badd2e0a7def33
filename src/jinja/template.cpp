// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/template.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/jinja/parser.hpp"
#include "src/jinja/problem.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

// A message that may contain text of the template or of the conversation, truncated.
std::string shortened(const std::string& message) {
  constexpr std::size_t longest = 300;
  if (message.size() <= longest) return printable(message);
  return printable(std::string_view(message).substr(0, valid_utf8_prefix(std::string_view(message).substr(0, longest)))) + " ...";
}

}  // namespace

Template::Template(const std::string& source, std::string origin) : origin_(std::move(origin)) {
  require(source.size() <= max_bytes, Exit::data, "{}: the chat template has {} bytes; the maximum is {}", origin_, source.size(), max_bytes);
  require(valid_utf8_prefix(source) == source.size(), Exit::data, "{}: the chat template is not valid UTF-8 at byte {}", origin_,
          valid_utf8_prefix(source) + 1);
  try {
    syntax_ = std::make_shared<const Syntax>(parse(source));
  } catch (const SyntaxProblem& problem) {
    fail(Exit::data, "{}: the chat template cannot be read: line {}: {}; correct it, or give the format with --template", origin_, problem.line,
         shortened(problem.message));
  }
}

Text Template::render(Variables variables, std::time_t now, std::size_t input_bytes) const {
  Interpreter interpreter(now, input_bytes);
  try {
    return interpreter.render(syntax_->body, std::move(variables));
  } catch (const Problem& problem) {
    throw Problem(fmt::format("line {} of the chat template: {}", interpreter.line(), shortened(problem.what())));
  }
}

bool Template::reads(const std::string& name) const { return std::binary_search(syntax_->names.begin(), syntax_->names.end(), name); }

}  // namespace gyr::jinja
