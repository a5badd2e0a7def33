// SPDX-License-Identifier: BSD-3-Clause
// A rank and its watcher, the parent process that records how the rank ended: if one ends, the other ends too.
// An end without a message is recorded once, before the launcher can notice it.
#include "src/watch/rank_watcher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/supervisor/observer.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/outcome.hpp"

namespace gyr::testing::rank_watcher_suite {

namespace {

// A process as a launcher starts it: the leader of a process group. It becomes the watcher of a rank that runs `work`.
class Launched {
 public:
  using Work = std::function<void(Kept&)>;
  Launched(
      const std::filesystem::path& exit_record, const Work& work, const std::function<void()>& before = [] {}) {
    EXPECT_EQ(::pipe2(words_, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) become(exit_record, work, before);
    ::setpgid(pid_, pid_);
    ::close(words_[1]);
    EXPECT_EQ(::read(words_[0], &rank_, sizeof rank_), ssize_t(sizeof rank_));
  }
  ~Launched() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(words_[0]);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  pid_t rank() const { return rank_; }
  bool runs() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  // Waits for the watcher to end. Returns its exit code, or minus the signal number.
  int end() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  // Waits until rank and watcher have both ended, then returns true.
  bool silence() const {
    char byte;
    return ::read(words_[0], &byte, 1) == 0;
  }

 private:
  [[noreturn]] void become(const std::filesystem::path& exit_record, const Work& work, const std::function<void()>& before) const {
    ::setpgid(0, 0);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    before();
    Kept kept(exit_record);
    const pid_t rank = ::getpid();
    if (::write(words_[1], &rank, sizeof rank) == ssize_t(sizeof rank)) work(kept);
    ::_exit(0);
  }

  int words_[2];
  pid_t pid_ = -1, rank_ = -1;
};

void die_of(int number) {
  ::signal(number, SIG_DFL);  // sanitizers and MPI install handlers for some signals
  ::raise(number);
}

[[noreturn]] void wait_forever() {
  for (;;) ::pause();
}

TEST(rank_watcher, exit_record_reads_back_unless_truncated) {
  const Folder folder;
  const auto file = exit_record_path(folder.path(), 3);
  EXPECT_FALSE(read_exit_record(file));
  const ExitRecord dead{"node\"7", 4711, 5, "SIGSEGV", 0, 1.5};
  EXPECT_TRUE(write_exit_record(file, dead));
  EXPECT_EQ(read_exit_record(file), dead);
  const std::string text = contents(file);
  for (const std::size_t length : {std::size_t(0), std::size_t(1), text.size() / 2, text.size() - 2}) {
    folder.write("half.json", text.substr(0, length));
    EXPECT_FALSE(read_exit_record(folder / "half.json")) << length;
  }
  folder.write("other.json", "{\"host\":\"a\",\"pid\":\"many\"}");
  EXPECT_FALSE(read_exit_record(folder / "other.json"));
}

TEST(rank_watcher, first_exit_record_of_an_attempt_wins) {
  const Folder folder;
  const auto file = exit_record_path(folder / "new", 0);
  std::atomic<int> written{0}, winner{-1};
  std::vector<std::thread> rank_watchers;
  for (int rank = 0; rank < 8; ++rank)
    rank_watchers.emplace_back([&, rank] {
      if (write_exit_record(file, {"h", 100 + rank, rank, "SIGKILL", 0, 0})) ++written, winner = rank;
    });
  for (std::thread& rank_watcher : rank_watchers) rank_watcher.join();
  EXPECT_EQ(written, 1);
  ASSERT_TRUE(read_exit_record(file));
  EXPECT_EQ(read_exit_record(file)->rank, winner);
}

TEST(rank_watcher, rank_killed_by_signal_is_recorded) {
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT, SIGTERM}) {
    const Folder folder;
    const auto file = exit_record_path(folder.path(), 0);
    Launched launched(
        file, [&](Kept&) { die_of(number); }, [] { ::setenv("PMI_RANK", "5", 1); });
    EXPECT_EQ(launched.end(), -number);
    const auto dead = read_exit_record(file);
    ASSERT_TRUE(dead) << number;
    EXPECT_EQ(*dead, (ExitRecord{host_name(), launched.rank(), 5, signal_name(number), 0, dead->time}));
    EXPECT_NEAR(dead->time, double(wall_nanoseconds()) * 1e-9, 60);
  }
}

TEST(rank_watcher, rank_exit_is_recorded_unless_already_explained) {
  const Folder folder;
  const auto file = exit_record_path(folder.path(), 0);
  const auto code = [&](int leaves_with, bool agreed) {
    std::filesystem::remove(file);
    return Launched(file,
                    [=](Kept& kept) {
                      if (agreed) kept.agreed();
                      ::_exit(leaves_with);
                    })
        .end();
  };
  for (const int number : {0, 3, 75}) {
    EXPECT_EQ(code(number, false), number);
    ASSERT_TRUE(read_exit_record(file)) << number;
    EXPECT_EQ(read_exit_record(file)->code, number);
    EXPECT_EQ(read_exit_record(file)->signal, "");
  }
  EXPECT_EQ(code(75, true), 75);
  EXPECT_FALSE(read_exit_record(file));
  write_outcome(folder.path(), {"running", 0, 0, -1, ""});
  EXPECT_EQ(code(0, false), 0);
  EXPECT_TRUE(read_exit_record(file));
  write_outcome(folder.path(), {"hung", 75, 3, 1, "rank 1 sleeps"});
  EXPECT_EQ(code(75, false), 75);
  EXPECT_TRUE(read_exit_record(file)) << "an outcome of an earlier attempt explains nothing";
  std::filesystem::remove(file);
  Launched explained(file, [&](Kept&) {
    write_outcome(folder.path(), {"hung", 75, 3, 1, "rank 1 sleeps"});
    ::_exit(75);
  });
  EXPECT_EQ(explained.end(), 75);
  EXPECT_FALSE(read_exit_record(file));
}

TEST(rank_watcher, group_signals_reach_the_rank_once) {
  const int real_time = SIGRTMIN + 1;  // pending real-time signals do not merge, so a duplicate would be noticed
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCONT, real_time}) {
    const Folder folder;
    sigset_t only, before;
    sigemptyset(&only);
    sigaddset(&only, number);
    ::pthread_sigmask(SIG_BLOCK, &only, &before);
    Launched launched(exit_record_path(folder.path(), 0), [&](Kept& kept) {
      kept.agreed();
      int count = 0;
      const timespec patience{2, 0}, moment{0, 20'000'000};
      while (::sigtimedwait(&only, nullptr, count == 0 ? &patience : &moment) == number) ++count;
      ::_exit(count);
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::kill(-launched.pid(), number);
    EXPECT_EQ(launched.end(), 1) << number;
  }
}

TEST(rank_watcher, rank_dies_with_its_watcher) {
  const Folder folder;
  Launched launched(exit_record_path(folder.path(), 0), [](Kept&) { wait_forever(); });
  EXPECT_NE(launched.rank(), launched.pid());
  ::kill(launched.pid(), SIGKILL);
  EXPECT_EQ(launched.end(), -SIGKILL);
  EXPECT_TRUE(launched.silence());
  EXPECT_EQ(folder.files(), 0u);  // no exit record, because the watcher was killed
}

TEST(rank_watcher, watcher_waits_for_a_stopped_rank) {
  const Folder folder;
  Launched launched(exit_record_path(folder.path(), 0), [](Kept& kept) {
    kept.agreed();
    ::raise(SIGSTOP);
    ::_exit(4);
  });
  const auto state = [&] {
    const std::string text = contents("/proc/" + std::to_string(launched.rank()) + "/stat");
    return text.substr(text.rfind(')') + 2, 1);
  };
  for (int i = 0; i < 200 && state() != "T"; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(state(), "T");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(launched.runs());
  ::kill(launched.pid(), SIGCONT);
  EXPECT_EQ(launched.end(), 4);
}

TEST(rank_watcher, works_with_closed_descriptors_and_unwritable_folder) {
  const Folder folder;
  const auto file = exit_record_path(folder.path(), 0);
  const auto closed = [] {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    ::signal(SIGCHLD, SIG_IGN);  // as the init process of some containers leaves it
  };
  EXPECT_EQ(Launched(
                file, [](Kept&) { die_of(SIGKILL); }, closed)
                .end(),
            -SIGKILL);
  EXPECT_TRUE(read_exit_record(file));
  // The exit record cannot be written, but the exit code is the same.
  folder.write("file", "");
  EXPECT_EQ(Launched(exit_record_path(folder / "file", 0), [](Kept&) { ::_exit(3); }).end(), 3);
}

TEST(rank_watcher, no_watcher_without_exit_record_path) {
  Launched launched("", [](Kept&) { ::_exit(7); });
  EXPECT_EQ(launched.rank(), launched.pid());
  EXPECT_EQ(launched.end(), 7);
}

TEST(rank_watcher, observer_reports_the_rank_of_exit_record) {
  const Folder folder;
  const auto exit_record = new_exit_record_path(folder.path(), 2), read = exit_record_path(folder.path(), 2);
  for (const auto& file : {exit_record, read}) write_exit_record(file, {"of an earlier run", 1, 0, "SIGKILL", 0, 0});
  Observer observer({}, folder.path(), 2);
  EXPECT_FALSE(observer.look());
  EXPECT_EQ(read_exit_record(read)->host, "of an earlier run") << "this start may still be refused";
  write_exit_record(exit_record, {host_name(), int(::getpid()), 7, "SIGBUS", 0, 0});
  const auto early = observer.look();  // before the first heartbeat the rank number is the launcher's
  ASSERT_TRUE(early);
  EXPECT_EQ(read_exit_record(read)->signal, "SIGBUS");
  EXPECT_EQ(early->verdict.rank, 7);
  ProgressSnapshot snapshot;
  snapshot.step = 12, snapshot.phase = "train";
  HeartbeatFile(heartbeat_path(folder.path())).write(heartbeat_of({0, 1, 2}, snapshot, 0, false));
  const auto late = observer.look();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->state, "lost");
  EXPECT_EQ(late->verdict.rank, 0);
  EXPECT_NE(late->verdict.text.find("was killed by SIGBUS; last seen at: step 12, train"), std::string::npos) << late->verdict.text;
  write_exit_record(exit_record, {"elsewhere", 17, -1, "", 3, 0});
  EXPECT_EQ(observer.finding_of_ranks()->state, "died");
  EXPECT_EQ(observer.finding_of_ranks()->code, 3);
  EXPECT_EQ(observer.finding_of_ranks()->verdict.rank, -1);
}

}  // namespace

}  // namespace gyr::testing::rank_watcher_suite
