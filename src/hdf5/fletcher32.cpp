// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/fletcher32.hpp"

#include <bit>
#include <cstring>

namespace gyr::hdf5 {

namespace {

// Words per block. Their weighted sum is at most 65535 * 256 * 257 / 2 and fits 32 bits, so the compiler can vectorise
// the loop.
constexpr std::uint32_t block = 256;

constexpr std::uint64_t remainder(std::uint64_t x) { return x == 0 ? 0 : (x - 1) % 65535 + 1; }

}  // namespace

std::uint32_t fletcher32(const void* bytes, std::size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  std::uint64_t plain = 0, weighted = 0;
  for (; count >= 2 * block; count -= 2 * block, at += 2 * block) {
    std::uint16_t words[block];
    std::memcpy(words, at, sizeof words);
    std::uint32_t sum = 0, falling = 0;
    for (std::uint32_t i = 0; i < block; ++i) sum += words[i], falling += words[i] * (block - i);
    weighted = remainder(weighted + block * plain + falling);
    plain = remainder(plain + sum);
  }
  while (count > 0) {
    const std::size_t n = count > 1 ? 2 : 1;
    std::uint16_t word = 0;
    std::memcpy(&word, at, n);
    plain += word, weighted += plain;
    at += n, count -= n;
  }
  // Swapping the bytes of a word multiplies it by 256 modulo 65535. Words are therefore summed in native byte order,
  // and only the result is swapped.
  constexpr std::uint64_t swap = std::endian::native == std::endian::little ? 256 : 1;
  return std::uint32_t(remainder(swap * remainder(weighted)) << 16 | remainder(swap * remainder(plain)));
}

}  // namespace gyr::hdf5
