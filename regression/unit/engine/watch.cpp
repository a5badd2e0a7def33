// SPDX-License-Identifier: BSD-3-Clause
// Conclusions that the watchdog and the supervisor draw from heartbeats and times.
#include "src/history/useful_time.hpp"
#include "src/supervisor/observer.hpp"
#include "src/supervisor/supervisor.hpp"
#include "src/watch/outcome.hpp"
#include "src/watch/peer_progress.hpp"
#include "src/watch/stop.hpp"
#include "src/watch/verdict.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::watch_suite {

namespace {

constexpr std::int64_t second = 1'000'000'000;

Heartbeat beat(int rank, Index step, bool waiting, std::int64_t written, std::int64_t moved) {
  ProgressSnapshot snapshot;
  snapshot.step = step, snapshot.phase = "train", snapshot.task = "forward", snapshot.micro = 3;
  snapshot.waiting = waiting, snapshot.channel = "tensor", snapshot.operation = "all_reduce", snapshot.number = 381, snapshot.bytes = 4096;
  Heartbeat h = heartbeat_of({rank, 4, 0}, snapshot, moved, false);
  h.written = written;
  return h;
}

TEST(watch, silent_then_computing_then_lagging_rank_is_blamed) {
  const std::vector<Heartbeat> before{beat(0, 7, true, 1 * second, 0), beat(1, 7, false, 1 * second, 0), beat(2, 6, true, 1 * second, 0),
                                      beat(3, 7, true, 1 * second, 0)};
  auto after = before;
  for (const int rank : {0, 1, 2}) after[rank].written = 2 * second;
  EXPECT_EQ(judge(before, after).rank, 3);
  after[3].written = 2 * second;
  EXPECT_EQ(judge(before, after).rank, 1);
  EXPECT_NE(judge(before, after).text.find("is stuck: not waiting for anyone, no progress for 2.0 s; it is at: step 7, train"), std::string::npos)
      << judge(before, after).text;
  after[1].waiting = 1;
  EXPECT_EQ(judge(before, after).rank, 2);
  EXPECT_NE(judge(before, after)
                .text.find("step 6, train, forward of micro-batch 3, waiting in all_reduce no. 381 (4096 bytes) on the tensor communicator"),
            std::string::npos)
      << judge(before, after).text;
}

TEST(watch, longest_stalled_computing_rank_is_blamed) {
  const std::vector<Heartbeat> before{beat(0, 7, false, 1 * second, 900), beat(1, 7, false, 1 * second, 800), beat(2, 7, true, 1 * second, 100)};
  auto after = before;
  for (Heartbeat& h : after) h.written = 2 * second;
  EXPECT_EQ(judge(before, after).rank, 1);
}

TEST(watch, ended_rank_is_not_silent) {
  std::vector<Heartbeat> records{beat(0, 7, true, 1 * second, 0), beat(1, 7, true, 1 * second, 0)};
  std::strcpy(records[1].phase, last_phase);
  EXPECT_EQ(silent(records, records), std::vector<int>{0});
}

TEST(watch, killed_process_is_dead_at_once_where_visible) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info;
  ::waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT);  // a zombie from now on
  Heartbeat mine = heartbeat_of({}, {}, wall_nanoseconds(), false), dead = mine;
  dead.pid = pid;
  const std::int64_t now = mine.written + second / 2;
  for (const bool reaped : {false, true}) {
    if (reaped) ::waitpid(pid, nullptr, 0);
    EXPECT_EQ(process_state(dead), ProcessState::gone);
    EXPECT_FALSE(any_rank_alive({dead}, now, true));
    EXPECT_TRUE(any_rank_alive({dead}, now)) << "another container may have this process";
    EXPECT_FALSE(any_rank_alive({dead}, now + 3 * second));
  }
  EXPECT_TRUE(any_rank_alive({dead, mine}, now, true));
}

TEST(watch, heartbeats_of_newest_attempt_are_read_by_rank) {
  const Folder folder;
  const auto path = heartbeat_path(folder.path());
  EXPECT_TRUE(read_heartbeats(path).empty());
  const HeartbeatFile file(path);
  for (const int rank : {2, 0, 1}) file.write(beat(rank, 5, true, second, 0));
  Heartbeat old = beat(3, 9, true, second, 0), torn = beat(4, 9, true, second, 0);
  file.write(old);
  torn.magic[0] = 'X';
  file.write(torn);
  ASSERT_EQ(read_heartbeats(path).size(), 4u);
  for (const int rank : {0, 1, 2}) {
    Heartbeat newer = beat(rank, 1, true, 2 * second, 0);
    newer.attempt = 1;
    file.write(newer);
  }
  const auto read = read_heartbeats(path);
  ASSERT_EQ(read.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(read[rank].rank, rank);
  EXPECT_EQ(std::filesystem::file_size(path), 5 * 256u);
}

TEST(watch, progress_record_shows_current_wait_and_its_duration) {
  ProgressRecord progress_record;
  const int tensor = progress_record.channel("tensor");
  EXPECT_EQ(progress_record.channel("a name of more than fifteen letters"), tensor + 1);
  EXPECT_EQ(progress_record.channel("tensor"), tensor);
  progress_record.task("forward", 2);
  const auto progress = progress_record.progress();
  {
    const ProgressRecord::Waiting waiting(&progress_record, {tensor, "all_reduce", 64, 7});
    const ProgressSnapshot snapshot = progress_record.look();
    EXPECT_TRUE(snapshot.waiting);
    EXPECT_EQ(snapshot.channel, "tensor");
    EXPECT_EQ(snapshot.number, 7u);
    EXPECT_EQ(progress_record.progress(), progress);  // waiting is not progress
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(progress_record.look().waiting);
  EXPECT_GT(progress_record.progress(), progress);
  EXPECT_GE(progress_record.waited(), 0.02);
}

TEST(watch, walltime_formats_are_parsed) {
  EXPECT_EQ(walltime_seconds(""), 0);
  EXPECT_EQ(walltime_seconds("90"), 5400);
  EXPECT_EQ(walltime_seconds("1.5"), 90);
  EXPECT_EQ(walltime_seconds("02:30"), 150);
  EXPECT_EQ(walltime_seconds("24:00:01"), 86401);
  EXPECT_EQ(walltime_seconds("1-00:00:00"), 86400);  // Slurm: days-hours:minutes:seconds, days-hours:minutes and days-hours
  EXPECT_EQ(walltime_seconds("2-03:30"), 2 * 86400 + 3 * 3600 + 1800);
  EXPECT_EQ(walltime_seconds("2-6"), 2 * 86400 + 6 * 3600);
  for (const auto& [with_unit, other] : {std::pair("6h", "6:00:00"), {"90min", "90"}, {"30s", "0:30"}, {"1.5 h", "90"}, {"2d", "2-0"}, {"0s", "0"}})
    EXPECT_EQ(walltime_seconds(with_unit), walltime_seconds(other)) << with_unit;
  for (const char* wrong :
       {"x", "1:", "1:2:3:4", "-5", "1hh", "h", "-1h", "inf h", "6 x", "1:30h", "inf", "1-", "1-2-3", "1:2-3", "1-2:3:4:5", "-1-2"})
    EXPECT_EQ(gyr::testing::error_of([&] { walltime_seconds(wrong); }).code, Exit::config) << wrong;
}

TEST(watch, walltime_reserves_time_for_slowest_step_and_save) {
  const auto begin = std::chrono::steady_clock::now() - std::chrono::seconds(100);
  EXPECT_FALSE(Walltime(0, begin).over(1e9, 1e9));
  EXPECT_FALSE(Walltime(200, begin).over(1, 10));
  EXPECT_TRUE(Walltime(200, begin).over(1, 80));
  EXPECT_TRUE(Walltime(200, begin).over(80, 1));
  EXPECT_TRUE(Walltime(110, begin).over(1, {}));  // before the first save, a tenth of the walltime is reserved
  EXPECT_FALSE(Walltime(114, begin).over(1, 0.1));
}

TEST(watch, batch_that_touches_skipped_samples_starts_after_them) {
  const std::vector<Span> skip{{16, 24}, {24, 26}};
  EXPECT_EQ(RunConfig::next_sample(0, 8, skip), 0);
  EXPECT_EQ(RunConfig::next_sample(8, 8, skip), 8);
  EXPECT_EQ(RunConfig::next_sample(9, 8, skip), 26);
  EXPECT_EQ(RunConfig::next_sample(16, 8, skip), 26);
  EXPECT_EQ(RunConfig::next_sample(26, 8, skip), 26);
}

TEST(watch, data_axis_shrinks_until_batches_are_divisible) {
  SupervisedRun run;
  run.batches = {24}, run.micro_batch_size = 2;
  EXPECT_EQ(data_axis_of(run, 5), 4);
  EXPECT_EQ(data_axis_of(run, 3), 3);
  EXPECT_EQ(data_axis_of(run, 0), 0);
  run.batches = {8, 24};
  EXPECT_EQ(data_axis_of(run, 3), 2);
  run.data_grain = 4;
  EXPECT_EQ(data_axis_of(run, 5), 4);
  EXPECT_EQ(data_axis_of(run, 3), 0);
}

// If no rank makes progress, the job is reported after supervise.stale seconds, neither earlier nor later. Before the
// first heartbeat the limit is ten times as long.
TEST(watch, stalled_job_is_reported_after_stale_time) {
  const Folder folder;
  SuperviseSettings settings;
  settings.stale = 100, settings.silent = 1e9;
  const auto begin = std::chrono::steady_clock::now();
  const auto after = [&](double seconds) {
    return begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  };
  Observer waiting(settings, folder.path(), 0);
  EXPECT_FALSE(waiting.look(after(990)));
  ASSERT_TRUE(waiting.look(after(1010)));
  const HeartbeatFile file(heartbeat_path(folder.path()));
  Observer observer(settings, folder.path(), 0);
  for (const int rank : {0, 1}) {
    Heartbeat first = beat(rank, 7, true, second, 0);
    first.progress = 5;
    file.write(first);
  }
  EXPECT_FALSE(observer.look(after(50)));
  EXPECT_FALSE(observer.look(after(149)));
  Heartbeat moved = beat(1, 7, true, 2 * second, 0);
  moved.progress = 6;
  file.write(moved);
  EXPECT_FALSE(observer.look(after(149.5)));
  EXPECT_FALSE(observer.look(after(249)));
  const auto finding = observer.look(after(250));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->state, "stale");
}

// Rank 1 hangs and rank 0 waits for it. Both write a heartbeat every second, and the supervisor looks more often. Rank 2 of the
// second case writes none.
TEST(watch, stalled_job_names_the_rank_that_hangs) {
  for (const bool silent : {false, true}) {
    const Folder folder;
    SuperviseSettings settings;
    settings.stale = 6;
    const auto begin = std::chrono::steady_clock::now();
    const HeartbeatFile file(heartbeat_path(folder.path()));
    Observer observer(settings, folder.path(), 0);
    std::optional<Finding> finding;
    for (int look = 0; look < 40 && !finding; ++look) {
      if (look % 4 == 0)
        for (const int rank : {0, 1, 2})
          if (look == 0 || rank < 2 || !silent) file.write(beat(rank, 7, rank != 1, (10 + look / 4) * second, 5 * second));
      finding = observer.look(begin + std::chrono::milliseconds(250 * look));
    }
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding->state, "stale");
    EXPECT_EQ(finding->verdict.rank, silent ? 2 : 1) << finding->verdict.text;
    EXPECT_NE(finding->verdict.text.find(silent ? "has written no heartbeat" : "is stuck"), std::string::npos) << finding->verdict.text;
  }
}

std::chrono::steady_clock::time_point later(double seconds) {
  static const auto begin = std::chrono::steady_clock::now();
  return begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

TEST(watch, heartbeats_of_earlier_attempts_are_ignored) {
  const Folder folder;
  const HeartbeatFile file(heartbeat_path(folder.path()));
  for (const int rank : {0, 1}) file.write(beat(rank, 50, false, second, 0));
  Observer observer({}, folder.path(), 1);
  observer.look(later(0));
  EXPECT_EQ(observer.step(), 0);
  EXPECT_EQ(observer.hosts(), 0);
  Heartbeat next = beat(0, 3, false, 2 * second, 0);
  next.attempt = 1;
  file.write(next);
  observer.look(later(1));
  EXPECT_EQ(observer.step(), 3);
  EXPECT_EQ(observer.hosts(), 1);
}

// A process that waits to be killed.
pid_t idle_process() {
  const pid_t pid = fork();
  while (pid == 0) pause();
  return pid;
}

// If the processes of all ranks are gone, the job has ended, and no single rank is at fault.
TEST(watch, progress_of_peers_is_read_from_heartbeats) {
  const Folder folder;
  PeerProgress peers(folder.path(), {1, 2});
  EXPECT_TRUE(peers.moved()) << "no rank has written a heartbeat";
  const HeartbeatFile file(heartbeat_path(folder.path()));
  const auto write = [&](int rank, std::uint64_t progress) {
    ProgressSnapshot snapshot;
    snapshot.progress = progress;
    file.write(heartbeat_of({rank, 3, 0}, snapshot, 0, false));
  };
  for (const int rank : {0, 1, 2}) write(rank, 5);
  EXPECT_TRUE(peers.moved());
  EXPECT_FALSE(peers.moved());
  write(0, 9);
  EXPECT_FALSE(peers.moved()) << "rank 0 is no peer";
  write(2, 6);
  EXPECT_TRUE(peers.moved());
  EXPECT_FALSE(peers.moved());
}

TEST(watch, ranks_are_lost_only_while_others_live) {
  for (const int killed : {1, 2}) {
    const Folder folder;
    const HeartbeatFile file(heartbeat_path(folder.path()));
    SuperviseSettings settings;
    settings.stale = settings.silent = 1e9;
    const std::vector<pid_t> ranks{idle_process(), idle_process()};
    for (const int rank : {0, 1}) {
      Heartbeat h = beat(rank, 7, true, second, 0);
      h.pid = ranks[std::size_t(rank)];
      file.write(h);
    }
    Observer observer(settings, folder.path(), 0);
    EXPECT_FALSE(observer.look(later(0)));
    const auto end = [&](int rank) {
      kill(ranks[std::size_t(rank)], SIGKILL);
      waitpid(ranks[std::size_t(rank)], nullptr, 0);
    };
    for (int rank = 2 - killed; rank < 2; ++rank) end(rank);
    EXPECT_FALSE(observer.look(later(1)));
    const auto finding = observer.look(later(3));
    EXPECT_EQ(finding.has_value(), killed == 1) << killed << " of 2 ranks killed";
    if (!finding) continue;
    EXPECT_EQ(finding->state, "lost");
    EXPECT_EQ(finding->verdict.rank, 1);
    end(0);
  }
}

// A rank is slow if it works longer than the median rank, and does not wait for the others.
TEST(watch, straggler_works_long_and_waits_little) {
  for (const double worked : {1.5, 3.0})
    for (const double stepped : {3.5, 10.0}) {
      const Folder folder;
      const HeartbeatFile file(heartbeat_path(folder.path()));
      const SuperviseSettings settings;
      Observer observer(settings, folder.path(), 0);
      const auto write = [&](Index step, double part) {
        for (const int rank : {0, 1, 2}) {
          Heartbeat h = beat(rank, step, false, step * second, 0);
          h.worked = part * (rank == 2 ? worked : 1), h.stepped = part * stepped;
          file.write(h);
        }
        observer.look(later(double(step)));
        return observer.slow_ranks();
      };
      EXPECT_TRUE(write(1, 0).empty());
      const std::vector<std::string> slow = write(1 + settings.slow_steps, 1);
      EXPECT_EQ(slow.size(), worked > settings.slow && worked / stepped > 0.5 ? 1U : 0U) << worked << " of " << stepped << " s";
      for (const std::string& line : slow) EXPECT_NE(line.find("rank 2 on "), std::string::npos) << line;
      EXPECT_TRUE(write(1 + 2 * settings.slow_steps, 2).empty()) << "a straggler is reported once";
    }
}

TEST(watch, useful_time_counts_each_step_once) {
  const Folder folder;
  folder.write("m.jsonl",
               "{\"kind\":\"step\",\"time\":5,\"step\":1,\"seconds\":9}\n{\"kind\":\"step\",\"time\":11,\"step\":1,\"seconds\":2}\n"
               "{\"kind\":\"step\",\"time\":12,\"step\":2,\"seconds\":3}\n{\"kind\":\"step\",\"time\":13,\"step\":2,\"seconds\":4}\n{\"kind\":\"st");
  EXPECT_EQ(useful_time(folder / "m.jsonl", 10).useful(), 6);
}

TEST(watch, outcome_is_read_back) {
  const Folder folder;
  EXPECT_FALSE(read_outcome(folder.path()));
  write_outcome(folder.path(), {"hung", 75, 12, 3, "rank 3 \"sleeps\""});
  const auto read = read_outcome(folder.path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->state, "hung");
  EXPECT_EQ(read->code, 75);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->message, "rank 3 \"sleeps\"");
  folder.write("status.json", "{\"state\":");
  EXPECT_FALSE(read_outcome(folder.path()));
}

}  // namespace

}  // namespace gyr::testing::watch_suite
