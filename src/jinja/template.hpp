// SPDX-License-Identifier: BSD-3-Clause
// A template in the part of Jinja that chat templates use, rendered as transformers renders it: sandboxed, with
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, and its own tojson, raise_exception and strftime_now.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "src/jinja/interpreter.hpp"
#include "src/jinja/syntax.hpp"
#include "src/jinja/text.hpp"

namespace gyr::jinja {

class Template {
 public:
  static constexpr std::size_t max_bytes = std::size_t(1) << 20;

  // `origin`: name of the file in messages. Exit::data with the line if the template is malformed, is not UTF-8, is larger
  // than max_bytes or uses something that is not supported.
  Template(const std::string& source, std::string origin);

  // Renders the template. Throws Problem with the line for an error of the template, such as a call of raise_exception(),
  // and where a limit on time or memory is exceeded (budget.hpp). `input_bytes`: size of the variables, which raises
  // these limits. Thread-safe.
  Text render(Variables variables, std::time_t now, std::size_t input_bytes) const;

  bool has_generation() const { return syntax_->generation; }  // true: there is a {% generation %} block
  bool reads(const std::string& name) const;                   // true: the template reads a variable or calls a function of this name
  const std::vector<std::string>& literals() const { return syntax_->literals; }  // text and strings of the template
  const std::string& origin() const { return origin_; }

 private:
  std::string origin_;
  std::shared_ptr<const Syntax> syntax_;  // shared by copies
};

}  // namespace gyr::jinja
