// SPDX-License-Identifier: BSD-3-Clause
// Loads the tokenizer that a command encodes text with.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/base/printable.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Loads a tokenizer. If `speaks`, warns on standard error about bytes without a token, because their text cannot be
// recovered from the ids. Errors as in Tokenizer::load.
inline Tokenizer encoding_tokenizer(const std::string& file, bool speaks) {
  Tokenizer tokenizer = Tokenizer::load(file);
  if (const int lacking = tokenizer.lacks_bytes(); lacking > 0 && speaks)
    std::fprintf(stderr, "warning: %s has no token of its own for %d of the 256 bytes: they become the unknown token or are left out\n",
                 printable(file).c_str(), lacking);
  return tokenizer;
}

}  // namespace gyr
