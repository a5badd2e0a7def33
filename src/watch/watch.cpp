// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/watch.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"
#include "src/report/summary.hpp"
#include "src/watch/backtrace.hpp"
#include "src/watch/outcome.hpp"
#include "src/watch/stop.hpp"
#include "src/watch/verdict.hpp"

namespace gyr {

namespace {

// Does not use stdio, because the hanging thread may hold its lock.
void print(int fd, const std::string& text) { [[maybe_unused]] const ssize_t lost = ::write(fd, text.data(), text.size()); }

void exit_after(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ::_exit(int(Exit::again));
}

std::string report(const std::vector<Heartbeat>& ranks, const Verdict& verdict, double seconds) {
  constexpr std::size_t most = 32;
  std::string text = fmt::format("gyrfalcon: watchdog: no progress for {:.1f} s (watchdog.seconds)\n", seconds);
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i)
    text += fmt::format("gyrfalcon:   rank {}: {}\n", ranks[i].rank, whereabouts(ranks[i]));
  if (ranks.size() > most) text += fmt::format("gyrfalcon:   and {} more (gyrfalcon ps)\n", counted(Index(ranks.size() - most), "rank"));
  return text + "gyrfalcon: cause: " + verdict.text + "\n";
}

}  // namespace

Watch::Watch(const WatchSettings& settings, const Identity& who, std::function<void(int)> end_job)
    : settings_(settings), who_(who), end_job_(std::move(end_job)), worker_(pthread_self()), moved_(wall_nanoseconds()) {
  progress_record_.phase("start");
  // Signals are handled by the main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watch::~Watch() {
  progress_record_.phase(last_phase);
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watch::attach(const std::filesystem::path& output) {
  {
    const std::lock_guard lock(mutex_);
    output_ = output;
    file_.emplace(heartbeat_path(output));
  }
  wake_.notify_all();
}

bool Watch::rest(double seconds) {
  std::unique_lock lock(mutex_);
  const bool attached = file_.has_value();
  wake_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done_ || file_.has_value() != attached; });
  return !done_;
}

void Watch::beat(bool alarm) {
  const ProgressSnapshot snapshot = progress_record_.look();
  if (snapshot.progress != progress_) progress_ = snapshot.progress, moved_ = wall_nanoseconds(), moved_at_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  file_->write(heartbeat_of(who_, snapshot, moved_, alarm));
  if (who_.rank == 0 && ::access(stop_file(output_).c_str(), F_OK) == 0) stop_file_seen_.store(true, std::memory_order_relaxed);
}

double Watch::limit() {
  const std::lock_guard lock(mutex_);
  constexpr double extra_seconds = 30;  // extra seconds for the query of the scheduler and the second check
  return settings_.patience + (file_ ? 0 : settings_.lock_patience + extra_seconds);
}

double Watch::seconds_without_progress() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - moved_at_).count(); }

void Watch::run() {
  do {
    beat(false);
    if (settings_.patience > 0 && seconds_without_progress() > limit()) bark();
  } while (rest(settings_.interval));
  beat(false);
}

void Watch::bark() {
  const std::uint64_t stuck = progress_;
  const double seconds = seconds_without_progress();
  const auto look_around = [&] { return output_.empty() ? std::vector<Heartbeat>() : read_heartbeats(heartbeat_path(output_)); };
  beat(true);
  const auto before = look_around();
  for (int i = 0; i < 3; ++i) {  // beats in which the other live watchdogs can set their alarm flag
    if (!rest(settings_.interval)) return;
    beat(true);
  }
  if (progress_record_.progress() != stuck) return;
  const ProgressSnapshot here = progress_record_.look();
  if (!here.waiting && !output_.empty()) write_backtrace(worker_, output_ / fmt::format("backtrace.{:05}.txt", who_.rank));
  const auto after = look_around();
  const auto quiet = silent(before, after);
  const auto reporter = std::find_if(after.begin(), after.end(),
                                     [&](const Heartbeat& h) { return h.alarm && std::find(quiet.begin(), quiet.end(), h.rank) == quiet.end(); });
  if (reporter == after.end() || reporter->rank == who_.rank) {
    const Verdict verdict = judge(before, after);
    print(2, report(after, verdict, seconds));
    if (!output_.empty()) write_outcome(output_, {"hung", int(Exit::again), here.step, verdict.rank, verdict.text});
    print(1, last_line(Exit::again) + "\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // launchers drop output that they have not forwarded when a job is aborted
    std::thread(exit_after, 2.0).detach();                        // exits in case the launcher cannot be reached
    end_job_(int(Exit::again));
  } else {
    rest(3 * settings_.interval + 1);  // waits until the reporting rank ends the job
  }
  ::_exit(int(Exit::again));
}

}  // namespace gyr
