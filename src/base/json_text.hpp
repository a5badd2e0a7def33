// SPDX-License-Identifier: BSD-3-Clause
// Check for an error in JSON text that the JSON library does not detect.
#pragma once

#include <optional>
#include <string_view>

namespace gyr {

// Position of the first zero byte in the text, if there is one. JSON has none, but the library treats it as the end of
// the text and accepts whatever follows.
inline std::optional<std::size_t> zero_byte(std::string_view json) {
  const auto at = json.find('\0');
  return at == json.npos ? std::nullopt : std::optional(at);
}

}  // namespace gyr
