// SPDX-License-Identifier: BSD-3-Clause
// What the JSON library lets pass in a text that others wrote, and no reader should.
#pragma once

#include <optional>
#include <string_view>

namespace gyr {

// Where the text has a zero byte, if it has one. JSON has none, but the library takes the first for the end of the text, and accepts
// whatever follows.
inline std::optional<std::size_t> zero_byte(std::string_view json) {
  const auto at = json.find('\0');
  return at == json.npos ? std::nullopt : std::optional(at);
}

}  // namespace gyr
