// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/observer.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace gyr {

namespace {

double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + std::ptrdiff_t(x.size() / 2), x.end());
  return x[x.size() / 2];
}

}  // namespace

Observer::Observer(const SuperviseSettings& settings, const std::filesystem::path& output, int attempt)
    : settings_(settings), heartbeats_(heartbeat_path(output)), exit_record_(exit_record_path(output, attempt)),
      new_exit_record_(new_exit_record_path(output, attempt)), attempt_(attempt) {
  std::error_code ignored;
  std::filesystem::remove(new_exit_record_, ignored);
}

Index Observer::step() const {
  Index step = 0;
  for (const Heartbeat& h : now_) step = std::max(step, h.step);
  return step;
}

std::string Observer::host(int rank) const {
  const auto beat = std::find_if(now_.begin(), now_.end(), [&](const Heartbeat& h) { return h.rank == rank; });
  return beat == now_.end() ? "" : host_of(*beat);
}

int Observer::hosts() const {
  std::set<std::string> names;
  for (const Heartbeat& h : now_) names.insert(host_of(h));
  return int(names.size());
}

double Observer::stale_limit() const {
  constexpr double start = 10;  // factor on supervise.stale until the first heartbeat, because thousands of ranks take long to start
  return std::max(settings_.stale * (now_.empty() ? start : 1), 5 * median(step_seconds_));
}

void Observer::read(Clock::time_point now) {
  auto all = read_heartbeats(heartbeats_);
  std::erase_if(all, [&](const Heartbeat& h) { return h.attempt != attempt_; });
  now_ = std::move(all);
  for (const Heartbeat& h : now_) {
    Seen& seen = seen_[h.rank];
    if (seen.written != h.written) seen.written = h.written, seen.changed = now;
    const ProcessState state = process_state(h);
    // A process counts as gone only if it was seen alive here: in a container the pid may be that of another namespace.
    if (state == ProcessState::alive) seen.was_alive = true;
    if (seen.was_alive && !seen.is_gone && state == ProcessState::gone) seen.is_gone = true, seen.gone = now;
  }
}

std::optional<Finding> Observer::finding_of_ranks() {
  if (auto found = read_exit_record(new_exit_record_)) {
    dead_ = std::move(found);
    std::error_code ignored;
    std::filesystem::rename(new_exit_record_, exit_record_, ignored);
  }
  const auto& dead = dead_;
  if (!dead) return {};
  const auto beat = std::find_if(now_.begin(), now_.end(), [&](const Heartbeat& h) { return h.pid == dead->pid && host_of(h) == dead->host; });
  const int rank = beat == now_.end() ? dead->rank : beat->rank;  // before its first heartbeat only its launcher knows it
  const Verdict verdict{rank, fmt::format("{} on {} (pid {}) {}{}", rank < 0 ? "a rank" : fmt::format("rank {}", rank), dead->host, dead->pid,
                                          manner(*dead), beat == now_.end() ? "" : "; last seen at: " + whereabouts(*beat))};
  if (!dead->signal.empty()) return Finding{"lost", verdict, int(Exit::again), dead->host};
  // exit code 0 without an outcome counts as an internal error
  return Finding{"died", verdict, dead->code != 0 ? dead->code : int(Exit::internal), dead->host};
}

// Finds lost ranks without an exit record: stopped processes, and those that died together with their node or their
// watcher process. A process must be gone for one second before it counts as lost.
std::optional<Finding> Observer::lost_rank(Clock::time_point now) const {
  const auto seconds = [&](Clock::time_point since) { return std::chrono::duration<double>(now - since).count(); };
  std::vector<Heartbeat> missing;
  for (const Heartbeat& h : now_) {
    const Seen& seen = seen_.at(h.rank);
    if (!ended(h) && ((seen.is_gone && seconds(seen.gone) >= 1) || seconds(seen.changed) > settings_.silent)) missing.push_back(h);
  }
  if (missing.empty() || missing.size() == now_.size()) return {};  // all ranks at once: the job is gone or stopped, not a single rank
  Verdict verdict = judge(missing, now_);
  if (seen_.at(verdict.rank).is_gone) verdict.text += " (its process is gone)";
  return Finding{"lost", verdict};
}

// Heartbeats that have been the same for so long that their rank should have written others. Between two looks, a healthy rank
// may have written none.
std::vector<Heartbeat> Observer::unchanged(Clock::time_point now) const {
  const double limit = std::min(settings_.silent, stale_limit() / 2);
  std::vector<Heartbeat> all;
  for (const Heartbeat& h : now_)
    if (std::chrono::duration<double>(now - seen_.at(h.rank).changed).count() > limit) all.push_back(h);
  return all;
}

std::optional<Finding> Observer::look(Clock::time_point now) {
  read(now);
  std::uint64_t progress = 0;
  for (const Heartbeat& h : now_) progress += h.progress;
  if (progress != progress_) progress_ = progress, moved_ = now;
  if (const Index at = step(); at > step_) {
    if (step_ > 0) step_seconds_.push_back(std::chrono::duration<double>(now - stepped_).count() / double(at - step_));
    step_ = at, stepped_ = now;
  }
  if (auto dead = finding_of_ranks()) return dead;
  if (auto lost = lost_rank(now)) return lost;
  if (std::chrono::duration<double>(now - moved_).count() > stale_limit()) return Finding{"stale", judge(unchanged(now), now_)};
  return {};
}

// Work is the time of the steps without waiting for other ranks. All ranks take the same steps in the same time. The
// straggler is a rank that works longer than the median rank and waits little.
std::vector<std::string> Observer::slow_ranks() {
  std::vector<std::string> news;
  const auto steps = [](const std::vector<Heartbeat>& all) {
    Index least = std::numeric_limits<Index>::max();
    for (const Heartbeat& h : all) least = std::min<Index>(least, h.step);
    return all.empty() ? 0 : least;
  };
  if (window_.size() != now_.size() || steps(window_) == 0) {
    window_ = now_;
    return news;
  }
  const Index taken = steps(now_) - steps(window_);
  if (taken < settings_.slow_steps) return news;
  std::vector<double> work, part;
  for (std::size_t i = 0; i < now_.size(); ++i) {
    work.push_back(now_[i].worked - window_[i].worked);
    part.push_back(work[i] / std::max(1e-9, now_[i].stepped - window_[i].stepped));
  }
  const double typical = median(work);
  for (std::size_t i = 0; i < now_.size(); ++i) {
    const int rank = now_[i].rank;
    if (work[i] <= settings_.slow * typical || part[i] < 0.5 || slow_.contains(rank)) continue;
    slow_[rank] =
        fmt::format("rank {} on {} is slow (straggler): it works {:.1f} times as long as the median rank, {:.0f} % of the time, over {} steps", rank,
                    host_of(now_[i]), work[i] / std::max(1e-9, typical), 100 * part[i], taken);
    news.push_back(slow_[rank]);
  }
  window_ = now_;
  return news;
}

}  // namespace gyr
