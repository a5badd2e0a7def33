// SPDX-License-Identifier: BSD-3-Clause
// The file of an iteration's rollouts: what is written is read again, and damage is refused.
#include "src/policy/rollout_file.hpp"

#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/hdf5/file.hpp"

namespace gyr::testing::rollout_file_suite {
namespace {

void expect_equal(const Rollouts& a, const Rollouts& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.reward_names, b.reward_names);
  EXPECT_EQ(a.next_prompt, b.next_prompt);
  EXPECT_EQ(a.kl_coefficient, b.kl_coefficient);
  ASSERT_EQ(a.all.size(), b.all.size());
  for (std::size_t i = 0; i < a.all.size(); ++i) {
    const Rollout &x = a.all[i], &y = b.all[i];
    EXPECT_EQ(std::tie(x.prompt, x.sample, x.tokens, x.begin, x.end, x.said, x.old, x.reference, x.values, x.rewards, x.reward),
              std::tie(y.prompt, y.sample, y.tokens, y.begin, y.end, y.said, y.old, y.reference, y.values, y.rewards, y.reward));
  }
}

TEST(rollout_file, rollouts_are_read_as_written) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 20; ++draw) {
    Rollouts r = drawn_rollouts(random);
    if (random() % 2)
      for (Rollout& one : r.all) one.old.clear(), one.reference.clear();
    if (random() % 2)
      for (Rollout& one : r.all) one.values.clear();
    r.next_prompt = Index(random() % 1000), r.kl_coefficient = double(random() % 1000) / 7;
    if (random() % 2) r.all[random() % r.all.size()].reward.reset();
    const auto path = rollout_path(folder.path(), r.iteration);
    write_rollouts(path, r);
    expect_equal(read_rollouts(path), r);
  }
}

TEST(rollout_file, contradicting_lengths_are_refused) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  const auto refused = [&](const std::function<void(Rollouts&)>& damage) {
    Rollouts r = drawn_rollouts(random);
    damage(r);
    const auto path = rollout_path(folder.path(), 1);
    write_rollouts(path, r);
    const Error error = error_of([&] { read_rollouts(path); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find("its arrays contradict each other"), std::string::npos) << error.what();
  };
  refused([](Rollouts& r) { r.all[0].said.pop_back(); });
  refused([](Rollouts& r) { r.all[0].begin = Index(r.all[0].tokens.size()); });
  refused([](Rollouts& r) { r.all[0].begin = 0; });
  refused([](Rollouts& r) { r.all.back().old.clear(); });
  refused([](Rollouts& r) { r.all.back().values.pop_back(); });
  refused([](Rollouts& r) { r.group = Index(r.all.size()) + 1; });
  const Error absent = error_of([&] { read_rollouts(rollout_path(folder.path(), 99)); });
  EXPECT_EQ(absent.code, Exit::missing);
}

// Changed bytes give an error with the name of the file, or rollouts that fit together.
TEST(rollout_file, changed_bytes_never_crash) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  int refused = 0;
  for (int draw = 0; draw < 20; ++draw) {
    const Rollouts r = drawn_rollouts(random);
    const auto path = rollout_path(folder.path(), 1);
    write_rollouts(path, r);
    const std::string written = contents(path);
    for (int damage = 0; damage < 100; ++damage) {
      std::string bytes = written;
      if (random() % 5 == 0) bytes.resize(random() % bytes.size());
      else
        for (std::size_t i = 0; i < 1 + random() % 8; ++i) bytes[random() % bytes.size()] = char(random());
      put_contents(path, bytes);
      try {
        expect_equal(read_rollouts(path), r);
        EXPECT_EQ(bytes, written);
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code, Exit::data);
        EXPECT_NE(std::string(error.what()).find(path.filename().string()), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(refused, 1950) << "few draws change a byte into itself";
}

// Damages the rollouts of a file whose checksum is right.
void damage(Rollouts& r, std::mt19937& random) {
  Rollout& x = r.all[random() % r.all.size()];
  const auto resized = [&](auto& values) { values.resize(random() % 9); };
  switch (random() % 11) {
    case 0: return resized(x.said);
    case 1: return resized(x.old);
    case 2: return resized(x.reference);
    case 3: return resized(x.values);
    case 4: return resized(x.tokens);
    case 5: return resized(x.rewards);
    case 6: x.begin = Index(random() % 12) - 3; return;
    case 7: x.end = TextEnd(int(random() % 256) - 100); return;
    case 8: r.group = Index(random() % 20) - 5; return;
    case 9: r.reward_names.resize(2, "name"); return;
    default: r.all.resize(random() % r.all.size()); return;
  }
}

TEST(rollout_file, damaged_rollouts_are_refused_or_fit_together) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  int refused = 0;
  for (int draw = 0; draw < 300; ++draw) {
    Rollouts r = drawn_rollouts(random);
    damage(r, random);
    const auto path = rollout_path(folder.path(), 1);
    try {
      write_rollouts(path, r);
      const Rollouts again = read_rollouts(path);
      ASSERT_GT(again.group, 0);
      EXPECT_EQ(Index(again.all.size()) % again.group, 0);
      for (const Rollout& one : again.all) {
        EXPECT_TRUE(one.begin >= 1 && one.length() >= 1 && one.end <= TextEnd::length) << "draw " << draw;
        EXPECT_EQ(Index(one.said.size()), one.length()) << "draw " << draw;
        EXPECT_EQ(one.rewards.size(), again.reward_names.size()) << "draw " << draw;
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code == Exit::data || error.code == Exit::io) << error.what();
    }
  }
  EXPECT_GT(refused, 90);
}

}  // namespace
}  // namespace gyr::testing::rollout_file_suite
