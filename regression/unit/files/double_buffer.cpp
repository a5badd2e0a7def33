// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/double_buffer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gyr::testing::double_buffer_suite {

namespace {

constexpr std::size_t blocks = 3;
const std::vector<Aside> sides{Aside::filling, Aside::draining};

void put(std::span<std::byte> block, std::size_t number) { std::memcpy(block.data(), &number, sizeof number); }
std::size_t got(std::span<std::byte> block) {
  std::size_t number;
  std::memcpy(&number, block.data(), sizeof number);
  return number;
}
void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

TEST(double_buffer, delivers_every_block_once_in_order) {
  for (const Aside aside : sides)
    for (const std::size_t count : {0, 1, 2, 3, 4, 1000}) {
      std::vector<std::size_t> arrived;
      convey(
          count, sizeof count, aside, [](std::size_t i, auto block) { put(block, i * i); },
          [&](std::size_t i, auto block) {
            EXPECT_EQ(i, arrived.size());
            arrived.push_back(got(block));
          });
      ASSERT_EQ(arrived.size(), count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(arrived[i], i * i);
    }
}

TEST(double_buffer, blocks_have_the_requested_size) {
  const auto check = [](std::size_t, std::span<std::byte> block) { EXPECT_EQ(block.size(), 77u); };
  for (const Aside aside : sides) convey(5, 77, aside, check, check);
}

// The number of blocks bounds the memory, whichever side is slow. Within this bound the faster side does run ahead.
TEST(double_buffer, producer_is_at_most_three_blocks_ahead) {
  for (const Aside aside : sides)
    for (const bool slow_drain : {false, true}) {
      std::atomic<std::size_t> filled = 0, drained = 0, most = 0;
      convey(
          30, 8, aside,
          [&](std::size_t i, auto) {
            EXPECT_LT(i - drained, blocks);
            if (!slow_drain) rest();
            filled = i + 1;
          },
          [&](std::size_t i, auto) {
            if (slow_drain) rest();
            EXPECT_GT(filled, i);
            most = std::max<std::size_t>(most, filled - i);
            drained = i + 1;
          });
      if (slow_drain) {
        EXPECT_GT(most, 1u);
      }
    }
}

TEST(double_buffer, exception_on_either_side_ends_both) {
  for (const Aside aside : sides)
    for (const bool by_filler : {true, false})
      for (const std::size_t at : {0, 1, 5, 99}) {
        std::size_t last_filled = 0, last_drained = 0;
        const auto side = [&](bool fails, std::size_t& last) {
          return [&last, fails, at](std::size_t i, auto) {
            if (fails && i == at) throw std::runtime_error("at " + std::to_string(i));
            last = i;
          };
        };
        try {
          convey(100, 8, aside, side(by_filler, last_filled), side(!by_filler, last_drained));
          ADD_FAILURE() << "convey() threw no exception";
        } catch (const std::runtime_error& error) {
          EXPECT_EQ(error.what(), "at " + std::to_string(at));
        }
        EXPECT_LT(last_drained, std::max<std::size_t>(at, 1));
        EXPECT_LT(last_filled, at + blocks);
      }
}

}  // namespace gyr::testing::double_buffer_suite
