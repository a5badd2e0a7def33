// SPDX-License-Identifier: BSD-3-Clause
// Text of messages: bounded in length, valid UTF-8, with its start and its end.
#include "kernels/base/printable.hpp"

#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::printable_suite {
namespace {

TEST(printable, long_messages_keep_their_start_and_end) {
  std::mt19937 random(seed_of_run());
  const std::string letters[] = {"a", "b", " ", "/", "'", "ä", "漢", "😀", "\x1b", "\xff", "."};
  for (int draw = 0; draw < 2000; ++draw) {
    std::string text;
    const unsigned kinds = 1 + random() % std::size(letters);
    for (std::size_t n = random() % 3 == 0 ? random() % 6000 : random() % 100; n > 0; --n) text += letters[random() % kinds];
    const std::string line = printable_line(text), full = printable(text);
    EXPECT_LE(line.size(), 4003u);
    EXPECT_EQ(printable(line), line) << "a character was cut";
    if (full.size() <= 160) {
      EXPECT_EQ(line, full);
    }
    EXPECT_EQ(line.substr(0, std::min<std::size_t>(line.size(), 70)), full.substr(0, std::min<std::size_t>(line.size(), 70)));
    EXPECT_TRUE(full.ends_with(line.substr(line.size() - std::min<std::size_t>(line.size(), 15)))) << line;
  }
}

TEST(printable, message_of_three_thousand_bytes_is_complete) {
  std::string list = "the keys are";
  while (list.size() < 3000) list += " learning_rate,";
  EXPECT_EQ(printable_line(list), list);
  EXPECT_LT(printable_line(list + list).size(), 4000u);
}

TEST(printable, paths_are_shown_in_full) {
  const std::string path = "/scratch/" + std::string(400, 'x') + "/deck.yaml: cannot be opened";
  EXPECT_EQ(printable_line(path), path);
  EXPECT_EQ(printable_line("key " + std::string(5000, 'k') + " is unknown").size(), 4u + 80 + 3 + 20 + 11);
}

}  // namespace
}  // namespace gyr::testing::printable_suite
