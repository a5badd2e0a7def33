// SPDX-License-Identifier: BSD-3-Clause
// The Fletcher-32 checksum of an HDF5 chunk equals its definition for every content and length.
#include "src/hdf5/fletcher32.hpp"

#include <random>
#include <vector>

#include "regression/support/testing.hpp"

namespace gyr::testing::fletcher32_suite {
namespace {

using Bytes = std::vector<unsigned char>;

// Reference: the definition, one 16-bit word at a time. A sum that was not zero is never reduced to zero.
std::uint32_t defined(const Bytes& bytes, std::size_t first) {
  std::uint64_t plain = 0, weighted = 0;
  const auto reduced = [](std::uint64_t x) { return x > 65535 ? (x - 1) % 65535 + 1 : x; };
  for (std::size_t i = first; i < bytes.size(); i += 2) {
    plain = reduced(plain + 256u * bytes[i] + (i + 1 < bytes.size() ? bytes[i + 1] : 0));
    weighted = reduced(weighted + plain);
  }
  return std::uint32_t(weighted << 16 | plain);
}

void expect_defined(const Bytes& bytes, std::size_t first = 0) {
  EXPECT_EQ(hdf5::fletcher32(bytes.data() + first, bytes.size() - first), defined(bytes, first)) << bytes.size() << " from " << first;
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

TEST(fletcher32, equals_definition_for_every_length) {
  for (std::size_t count = 0; count < 2100; ++count) expect_defined(random_bytes(count));
  for (const std::size_t count : {65535u, 65536u, 131071u, 2097152u, 2097153u}) expect_defined(random_bytes(count));
}

TEST(fletcher32, data_may_begin_at_any_address) {
  const Bytes bytes = random_bytes(5000);
  for (std::size_t first = 0; first < 33; ++first) expect_defined(bytes, first);
}

// Inputs with the largest intermediate sums, and with sums whose remainder is zero. Only all-zero data has the checksum
// zero.
TEST(fletcher32, large_sums_neither_overflow_nor_become_zero) {
  for (const std::size_t count : {1u, 2u, 511u, 512u, 513u, 1024u, 131072u, 2097152u}) {
    EXPECT_EQ(hdf5::fletcher32(Bytes(count, 0).data(), count), 0u);
    expect_defined(Bytes(count, 255));
    Bytes lone(count, 0);
    lone.back() = 255;
    expect_defined(lone);
    lone.front() = 255;
    expect_defined(lone);
  }
  EXPECT_EQ(hdf5::fletcher32(Bytes(1024, 255).data(), 1024), 0xffffffffu);
}

TEST(fletcher32, changes_with_every_bit) {
  Bytes bytes = random_bytes(1337);
  const std::uint32_t sum = hdf5::fletcher32(bytes.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<unsigned char>(1 << bit);
      ASSERT_NE(hdf5::fletcher32(bytes.data(), bytes.size()), sum) << i << "." << bit;
      bytes[i] ^= static_cast<unsigned char>(1 << bit);
    }
}

}  // namespace
}  // namespace gyr::testing::fletcher32_suite
