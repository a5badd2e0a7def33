// SPDX-License-Identifier: BSD-3-Clause
// Advice for a --dtype that only llama.cpp's own tools can write.
#pragma once

#include <regex>
#include <string>

#include "kernels/base/error.hpp"

namespace gyr {

// Commands that make a GGUF file of this type; empty if `value` is not the name of a llama.cpp type. `exports`: the
// command that writes model.gguf.
inline std::string llama_type_advice(const std::string& value, const std::string& exports) {
  static const std::regex types("(i?q[1-8]|tq[12])_[0-9a-z_]+|mxfp4(_moe)?|f16", std::regex::icase);
  if (!std::regex_match(value, types)) return "";
  return fmt::format("llama.cpp quantizes an exported file itself: `{}`, then `llama-quantize model.gguf out.gguf {}`", exports, value);
}

}  // namespace gyr
