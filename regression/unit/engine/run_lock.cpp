// SPDX-License-Identifier: BSD-3-Clause
// Lock of an output folder: one run at a time holds it. The lock of a dead run does not block the next run on the same
// machine.
#include "src/job/run_lock.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/watch/stop.hpp"

namespace gyr::testing::run_lock_suite {
namespace {

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

TEST(run_lock, lock_is_held_by_one_run_only) {
  const Folder folder;
  {
    const RunLock first(folder.path());
    EXPECT_EQ(first.note(), "");
    for (const bool take_over : {false, true}) {  // the lock of a live run is never taken over
      const Error error = error_of([&] { RunLock(folder.path(), {.take_over = take_over}); });
      EXPECT_EQ(error.code, Exit::io);
      for (const std::string& part : {(folder / "lock").string(), std::to_string(getpid()), host(), std::string("output.folder")})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << ": " << error.what();
    }
  }
  const RunLock next(folder.path());
  EXPECT_EQ(next.note(), "");
}

TEST(run_lock, lock_of_dead_local_run_is_taken_over) {
  const Folder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    const RunLock lock(folder.path());
    _exit(0);  // without releasing the lock
  }
  waitpid(pid, nullptr, 0);
  const RunLock lock(folder.path());
  EXPECT_NE(lock.note().find("taken over from process " + std::to_string(pid)), std::string::npos) << lock.note();
}

std::string boot_id() {
  std::string id = contents("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

TEST(run_lock, lock_records_host_process_and_boot) {
  const Folder folder;
  const RunLock lock(folder.path());
  const auto json = nlohmann::json::parse(contents(folder / "lock"));
  EXPECT_EQ(json.at("host"), host());
  EXPECT_EQ(json.at("pid"), getpid());
  EXPECT_EQ(json.at("boot"), boot_id());
}

constexpr const char* elsewhere = R"({"host": "elsewhere", "pid": 77, "job": "4711"})";

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(run_lock, idle_lock_of_another_machine_is_taken_over) {
  const Folder folder;
  folder.write("lock", elsewhere);
  std::string message, note;
  const double seconds = seconds_of([&] {
    const RunLock lock(folder.path(), {.patience = 0.5, .notify = [&](const std::string& line) { message += line; }});
    note = lock.note();
  });
  EXPECT_GE(seconds, 0.5);
  for (const std::string& text : {message, note}) EXPECT_NE(text.find("process 77 on elsewhere, job 4711"), std::string::npos) << text;
  EXPECT_NE(message.find("0.5 s"), std::string::npos) << message;
  EXPECT_NE(message.find("--take-over"), std::string::npos) << message;
}

TEST(run_lock, lock_of_live_remote_run_is_not_taken) {
  for (const char* sign : {"lock", "heartbeat.bin"}) {
    SCOPED_TRACE(sign);
    const Folder folder;
    folder.write("lock", elsewhere);
    std::atomic<bool> done{false};
    std::thread holder([&] {  // a live holder updates its file every 200 ms
      for (int beat = 0; !done; ++beat) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        std::ofstream(folder / sign, std::ios::app) << (beat % 2 ? " " : "\n");
      }
    });
    const Error error = error_of([&] { RunLock lock(folder.path(), {.patience = 20}); });
    done = true;
    holder.join();
    EXPECT_EQ(error.code, Exit::io);
    for (const char* part : {"process 77 on elsewhere, job 4711", "signs of life"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(contents(folder / "lock").find("elsewhere"), std::string::npos);
  }
}

// Several machines, or a machine before and after a restart, may have the same name. A process ID has a meaning only on
// the machine and boot that wrote it. Locks of older versions have no boot ID.
TEST(run_lock, only_locks_of_this_boot_are_freed_immediately) {
  for (const std::string& name : {host(), std::string("elsewhere")})
    for (const std::string& boot : {boot_id(), std::string("0b6f1c4e-0000-4000-8000-000000000000"), std::string()}) {
      const Folder folder;
      folder.write("lock", fmt::format(R"({{"host": "{}", "pid": 77, "job": "", "boot": "{}"}})", name, boot));
      std::string note;
      const double seconds = seconds_of([&] { note = RunLock(folder.path(), {.patience = 0.5}).note(); });
      const bool here = name == host() && (boot == boot_id() || boot.empty());
      EXPECT_EQ(note.find("no sign of life") == std::string::npos, here) << name << " " << boot << ": " << note;
      EXPECT_EQ(seconds < 0.5, here) << name << " " << boot;
    }
}

TEST(run_lock, take_over_option_takes_a_remote_lock_immediately) {
  const Folder folder;
  folder.write("lock", elsewhere);
  const RunLock lock(folder.path(), {.take_over = true});
  EXPECT_NE(lock.note().find("elsewhere"), std::string::npos);
}

TEST(run_lock, lock_of_previous_attempt_is_taken_over) {
  const Folder folder;
  const auto before = [&](const char* id, int attempt) {
    folder.write("lock",
                 fmt::format(R"({{"host": "elsewhere", "pid": 77, "job": "{}", "scheduler": "slurm", "cluster": "big", "step": "0", "attempt": {}}})",
                             id, attempt));
  };
  for (const auto& [name, value] :
       {std::pair("SLURM_JOB_ID", "36"), {"SLURM_CLUSTER_NAME", "big"}, {"SLURM_RESTART_COUNT", "1"}, {"SLURM_STEP_ID", "0"}})
    setenv(name, value, 1);
  before("36", 0);
  std::string note;
  const double seconds = seconds_of([&] { note = RunLock(folder.path()).note(); });
  EXPECT_NE(note.find("its job has been started again"), std::string::npos) << note;
  EXPECT_LT(seconds, 2);
  for (const auto& [id, attempt] : {std::pair("36", 1), {"35", 0}}) {  // another job step of this attempt; another element of a job array
    before(id, attempt);
    EXPECT_GE(seconds_of([&] { note = RunLock(folder.path(), {.patience = 0.5}).note(); }), 0.5);
    EXPECT_NE(note.find("no sign of life"), std::string::npos) << note;
  }
  for (const char* name : {"SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"}) unsetenv(name);
}

TEST(run_lock, waiting_for_a_lock_ends_on_stop_signal) {
  const Folder folder;
  folder.write("lock", elsewhere);
  const StopSignals signals;
  std::thread sender([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(getpid(), SIGTERM);
  });
  const Error error = error_of([&] { RunLock lock(folder.path()); });
  sender.join();
  EXPECT_EQ(error.code, Exit::again) << error.what();
}

// A lock is lost if its path has no file, another file or another owner. require_held() checks this at once, and the
// heartbeat every second.
TEST(run_lock, lock_is_lost_with_its_file) {
  const auto losing = [](const char* words, const std::function<void(const Folder&)>& how) {
    SCOPED_TRACE(words);
    const Folder folder;
    std::filesystem::create_directory(folder / "out");
    RunLock lock(folder / "out");
    lock.require_held();
    how(folder);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_TRUE(lock.lost());
    const Error error = error_of([&] { lock.require_held(); });
    EXPECT_EQ(error.code, Exit::io);
    for (const std::string& part : {(folder / "out/lock").string(), std::string(words)})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  losing("deleted", [](const Folder& f) { std::filesystem::remove_all(f / "out"); });
  losing("deleted or moved", [](const Folder& f) { std::filesystem::rename(f / "out", f / "moved"); });
  losing("another run", [](const Folder& f) {
    std::filesystem::remove_all(f / "out");
    std::filesystem::create_directory(f / "out");
    put_contents(f / "out/lock", "");
  });
  losing("process 77 on elsewhere", [](const Folder& f) { put_contents(f / "out/lock", elsewhere); });
}

TEST(run_lock, lock_has_heartbeat_and_is_emptied_on_release) {
  const Folder folder;
  {
    const RunLock lock(folder.path());
    const std::string before = contents(folder / "lock");
    EXPECT_EQ(RunLock::token_in(folder / "lock"), lock.token());
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    EXPECT_NE(contents(folder / "lock"), before);
    EXPECT_EQ(contents(folder / "lock").size(), before.size());
  }
  EXPECT_EQ(contents(folder / "lock"), "");
}

TEST(run_lock, refused_start_removes_only_its_own_file) {
  const Folder folder;
  for (const bool existed : {false, true}) {
    if (existed) folder.write("lock", "");
    {
      RunLock lock(folder.path());
      lock.remove_if_created();
    }
    EXPECT_EQ(std::filesystem::exists(folder / "lock"), existed);
  }
}

TEST(run_lock, process_ids_compare_within_one_namespace_only) {
  const Folder folder;
  EXPECT_FALSE(RunLock::shares_processes(folder.path())) << "there is no lock";
  const RunLock lock(folder.path());
  EXPECT_TRUE(RunLock::shares_processes(folder.path()));
  for (const char* key : {"host", "boot", "pid_namespace"}) {
    auto other = nlohmann::json::parse(contents(folder / "lock"));
    other[key] = "another";
    const Folder foreign;
    foreign.write("lock", other.dump());
    EXPECT_FALSE(RunLock::shares_processes(foreign.path())) << key;
  }
}

TEST(run_lock, living_holder_of_either_lock_is_named) {
  for (const char* const name : {RunLock::of_run, RunLock::of_supervisor}) {
    const Folder folder;
    EXPECT_EQ(RunLock::living_holder(folder.path()), "");
    nlohmann::json owner;
    {
      const RunLock lock(folder.path(), {}, name);
      EXPECT_TRUE(RunLock::living_holder(folder.path()).starts_with(fmt::format("process {} on ", getpid()))) << name;
      owner = nlohmann::json::parse(contents(folder / name));
    }
    EXPECT_EQ(RunLock::living_holder(folder.path()), "") << "the lock is released";
    const auto with = [&](const char* key, const nlohmann::json& value) {
      auto other = owner;
      other[key] = value;
      folder.write(name, other.dump());
    };
    with("pid", 0x3fffffff);
    EXPECT_EQ(RunLock::living_holder(folder.path()), "") << "its process is gone";
    with("host", "elsewhere");
    EXPECT_NE(RunLock::living_holder(folder.path()).find(" on elsewhere"), std::string::npos) << "it has just been written";
    std::filesystem::last_write_time(folder / name, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
    EXPECT_EQ(RunLock::living_holder(folder.path()), "") << "it is no longer written";
  }
}

TEST(run_lock, lock_with_unreadable_owner_is_free) {
  const Folder folder;
  for (const char* text : {"", "{", "[]", R"({"host": 3})", "\xff\xfe"}) {
    folder.write("lock", text);
    EXPECT_NO_THROW(RunLock(folder.path())) << text;
  }
}

}  // namespace
}  // namespace gyr::testing::run_lock_suite
