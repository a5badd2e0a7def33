// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/random.hpp"

#include <cmath>
#include <numbers>

namespace gyr {

namespace {

constexpr int rounds = 10;
constexpr std::uint64_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
constexpr std::uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, sqrt(3) - 1

// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

std::uint32_t low(std::uint64_t x) { return std::uint32_t(x); }
std::uint32_t high(std::uint64_t x) { return std::uint32_t(x >> 32); }

// 53 bits of two words as a number in [0, 1).
double fraction(std::uint32_t a, std::uint32_t b) { return double((std::uint64_t(a) << 32 | b) >> 11) * 0x1p-53; }

// The stream's name is half of the counter, the index of the element the other half.
std::array<std::uint32_t, 4> block(std::array<std::uint32_t, 2> key, std::uint64_t name, Index i) {
  return philox({low(std::uint64_t(i)), high(std::uint64_t(i)), low(name), high(name)}, key);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  auto [a, b, c, d] = counter;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t p = multiplier[0] * a, q = multiplier[1] * c;
    a = high(q) ^ b ^ key[0];
    b = low(q);
    c = high(p) ^ d ^ key[1];
    d = low(p);
    key = {key[0] + weyl[0], key[1] + weyl[1]};
  }
  return {a, b, c, d};
}

Stream::Stream(std::uint64_t seed, std::string_view name) : key_{low(seed), high(seed)}, name_(hash(name)) {}

double Stream::uniform(Index i) const {
  const auto w = block(key_, name_, i);
  return fraction(w[0], w[1]);
}

double Stream::normal(Index i) const {
  const auto w = block(key_, name_, i);
  const double radius = std::sqrt(-2 * std::log(1 - fraction(w[0], w[1])));  // 1 - u is never zero
  return radius * std::cos(2 * std::numbers::pi * fraction(w[2], w[3]));
}

}  // namespace gyr
