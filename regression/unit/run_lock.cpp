// SPDX-License-Identifier: BSD-3-Clause
// One run at a time has an output folder; what a dead one has left stands in nobody's way on its own machine.
#include "src/run_lock.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "regression/folder.hpp"
#include "regression/testing.hpp"

namespace gyr::testing {
namespace {

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

TEST(run_lock, is_given_to_one_run_at_a_time) {
  const Folder folder;
  {
    const RunLock first(folder.path());
    EXPECT_EQ(first.note(), "");
    for (const bool take_over : {false, true}) {  // a run that lives is never pushed aside
      const Error error = error_of([&] { RunLock(folder.path(), take_over); });
      EXPECT_EQ(error.code, Exit::io);
      for (const std::string& part : {(folder / "lock").string(), std::to_string(getpid()), host(), std::string("output.folder")})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << ": " << error.what();
    }
  }
  const RunLock next(folder.path());
  EXPECT_EQ(next.note(), "");
}

TEST(run_lock, of_a_run_that_died_here_is_taken_over_with_a_note) {
  const Folder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    const RunLock lock(folder.path());
    _exit(0);  // without giving it back
  }
  waitpid(pid, nullptr, 0);
  const RunLock lock(folder.path());
  EXPECT_NE(lock.note().find("taken over from process " + std::to_string(pid)), std::string::npos) << lock.note();
}

TEST(run_lock, of_another_machine_needs_to_be_taken_over_by_hand) {
  const Folder folder;
  folder.write("lock", R"({"host": "elsewhere", "pid": 77, "job": "4711"})");
  const Error error = error_of([&] { RunLock lock(folder.path()); });
  EXPECT_EQ(error.code, Exit::io);
  for (const char* part : {"process 77 on elsewhere, job 4711", "--take-over"})
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  EXPECT_NE(contents(folder / "lock").find("elsewhere"), std::string::npos);
  const RunLock lock(folder.path(), true);
  EXPECT_NE(lock.note().find("elsewhere"), std::string::npos);
}

TEST(run_lock, with_an_unreadable_owner_is_nobodys) {
  const Folder folder;
  for (const char* text : {"", "{", "[]", R"({"host": 3})", "\xff\xfe"}) {
    folder.write("lock", text);
    EXPECT_NO_THROW(RunLock(folder.path())) << text;
  }
}

}  // namespace
}  // namespace gyr::testing
