// SPDX-License-Identifier: BSD-3-Clause
// Started on a processor older than the one it was compiled for, the program must exit with a message before it
// executes an unsupported instruction. QEMU's user-mode emulation (Debian: qemu-user-static) provides the older
// processor.
#include <gtest/gtest.h>

#include "kernels/base/error.hpp"
#include "regression/support/process.hpp"

namespace gyr::testing::processor_suite {

namespace {

const Words older{"/usr/bin/qemu-x86_64-static", "-cpu", "Nehalem"};

bool can_be_seen() { return std::filesystem::exists(older[0]) && run({"--version"}).out.find("native arch") != std::string::npos; }

int messages(const Result& r) {
  int count = 0;
  for (const std::string& line : lines_of(r.err)) count += line.starts_with("gyrfalcon: this program was compiled for another processor");
  return count;
}

Words launched(int ranks) {
  Words command = launcher();
  command.insert(command.end(), {"-n", std::to_string(ranks)});
  return command;
}

}  // namespace

TEST(processor, error_names_missing_instructions_of_an_older_processor) {
  if (!can_be_seen()) GTEST_SKIP() << "needs qemu-x86_64-static and a program compiled with -march=native";
  Words command = older;
  command.insert(command.end(), {program(), "--version"});
  const Result r = execute(command);
  EXPECT_EQ(r.code, int(Exit::device)) << output_of(r);
  EXPECT_EQ(messages(r), 1) << output_of(r);
  EXPECT_NE(r.err.find(" avx2"), std::string::npos) << output_of(r);
  EXPECT_NE(r.err.find("-DGYR_NATIVE_ARCH=OFF"), std::string::npos) << output_of(r);
  EXPECT_EQ(r.out, "");
}

// One of two ranks runs on such a processor. The other rank must not wait for it forever.
TEST(processor, job_with_one_older_machine_ends) {
  if (!can_be_seen()) GTEST_SKIP() << "needs qemu-x86_64-static and a program compiled with -march=native";
  const Words training{program(), "train", "no-such-deck.yaml"};
  Words command = launched(1);
  command.insert(command.end(), training.begin(), training.end());
  command.insert(command.end(), {":", "-n", "1"});
  command.insert(command.end(), older.begin(), older.end());
  command.insert(command.end(), training.begin(), training.end());
  const Result r = execute(command, {.limit = 60});
  EXPECT_EQ(r.code, int(Exit::device)) << output_of(r);
  EXPECT_EQ(messages(r), 1) << output_of(r);
}

}  // namespace gyr::testing::processor_suite
