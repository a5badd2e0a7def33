// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target for tokenizer.json. Any bytes are rejected with Exit::data, or give a tokenizer that encodes and decodes.
// Seeds: the files of regression/golden/tokenizers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.hpp"
#include "src/tokenizer/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using gyr::Tokenizer;
  constexpr std::string_view text = "The caf\xc3\xa9 costs 1234, I'll <|endoftext|>\r\n\t\xe6\x9d\xb1\xf0\x9f\x98\x80 \xff <0x41> aaaaaaaa";
  try {
    const auto tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto specials : {Tokenizer::Specials::as_text, Tokenizer::Specials::complete}) {
      const auto ids = tokenizer.encode(text, specials);
      for (const auto id : ids)
        if (!tokenizer.has(id)) std::abort();
      tokenizer.decode(ids);
      tokenizer.decode(ids, Tokenizer::Shown::without_specials);
    }
  } catch (const gyr::Error& error) {
    if (error.code != gyr::Exit::data) std::abort();
  }
  return 0;
}
