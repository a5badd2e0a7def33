// SPDX-License-Identifier: BSD-3-Clause
// Error of a template, without its place. The parser and the interpreter add the line.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace gyr::jinja {

struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Problem(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gyr::jinja
