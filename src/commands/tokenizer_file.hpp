// SPDX-License-Identifier: BSD-3-Clause
// The tokenizer a command is told to encode with.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/base/printable.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Loads it; where `speaks`, says on standard error when text cannot be told from its ids. Errors as of Tokenizer::load.
inline Tokenizer encoding_tokenizer(const std::string& file, bool speaks) {
  Tokenizer tokenizer = Tokenizer::load(file);
  if (const int lacking = tokenizer.lacks_bytes(); lacking > 0 && speaks)
    std::fprintf(stderr, "warning: %s has no token of its own for %d of the 256 bytes: they become the unknown token or are left out\n",
                 printable(file).c_str(), lacking);
  return tokenizer;
}

}  // namespace gyr
