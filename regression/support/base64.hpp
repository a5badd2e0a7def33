// SPDX-License-Identifier: BSD-3-Clause
// Decoder of base64 (RFC 4648), for encoded files inside JSON.
#pragma once

#include <string>

namespace gyr::testing {

inline std::string bytes_of_base64(const std::string& text) {
  static const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | unsigned(alphabet.find(c)), count += 6;
    if (count >= 8) count -= 8, bytes += char(bits >> count);
  }
  return bytes;
}

}  // namespace gyr::testing
