// SPDX-License-Identifier: BSD-3-Clause
// Content of a quoted string in a template, with the escapes of Python.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gyr::jinja {

// Replaces the escapes in the text between the quotes. Empty, with a message in `error`, for an invalid escape.
std::optional<std::string> unescaped(std::string_view quoted, std::string& error);

}  // namespace gyr::jinja
