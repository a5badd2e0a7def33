// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/random.hpp"

#include <cmath>
#include <numbers>

namespace gyr {

namespace {

std::uint32_t low(std::uint64_t x) { return std::uint32_t(x); }
std::uint32_t high(std::uint64_t x) { return std::uint32_t(x >> 32); }

// Number in [0, 1) from 53 bits of two words.
double fraction(std::uint32_t a, std::uint32_t b) { return double((std::uint64_t(a) << 32 | b) >> 11) * 0x1p-53; }

// Philox words of element i: half of the counter is the stream's name, the other half is i.
PhiloxWords block(const PhiloxKey& key, std::uint64_t name, Index i) {
  return philox({{low(std::uint64_t(i)), high(std::uint64_t(i)), low(name), high(name)}}, key);
}

}  // namespace

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

Stream::Stream(std::uint64_t seed, std::string_view name) : key_{{low(seed), high(seed)}}, name_(hash_of(name)) {}

double Stream::uniform(Index i) const {
  const auto w = block(key_, name_, i);
  return fraction(w.at[0], w.at[1]);
}

double Stream::normal(Index i) const {
  const auto w = block(key_, name_, i);
  const double radius = std::sqrt(-2 * std::log(1 - fraction(w.at[0], w.at[1])));  // 1 - u is never zero
  return radius * std::cos(2 * std::numbers::pi * fraction(w.at[2], w.at[3]));
}

}  // namespace gyr
