// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/stop.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Global, because a signal handler has no argument and signals are per process.
std::atomic<int> caught_signal{0};
std::atomic<bool> second_interrupt_ends{true};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::atomic<int> counts[StopSignals::numbers.size()];

std::atomic<int>* count_of(int number) {
  const auto at = std::find(StopSignals::numbers.begin(), StopSignals::numbers.end(), number);
  return at == StopSignals::numbers.end() ? nullptr : &counts[at - StopSignals::numbers.begin()];
}

void on_signal(int number) {
  if (number == SIGINT && second_interrupt_ends.load(std::memory_order_relaxed) && caught_signal.load(std::memory_order_relaxed) == SIGINT) {
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);
    return;
  }
  caught_signal.store(number, std::memory_order_relaxed);
  count_of(number)->fetch_add(1, std::memory_order_relaxed);
}

// True if the process was started with SIGHUP ignored, as by nohup.
bool hangup_is_ignored = false;

// UCX, below MPI, replaces the SIGHUP handler while it is loaded. Functions in .preinit_array run before that.
__attribute__((no_sanitize("address", "undefined"))) void record_hangup() {
  struct sigaction now;
  hangup_is_ignored = ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}
__attribute__((section(".preinit_array"), used)) void (*const recorded_hangup)() = record_hangup;

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a write in progress must not fail because of the signal
  sigemptyset(&action.sa_mask);
  for (const int number : StopSignals::numbers) ::sigaction(number, &action, nullptr);
  if (hangup_is_ignored) restore_hangup();
}

}  // namespace

std::string stop_reason(int reason) {
  switch (reason) {
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case stop_file_reason: return "the file STOP";
    case walltime_reason: return "train.walltime";
    case folder_lost_reason: return "the loss of the output folder";
  }
  return fmt::format("signal {}", reason);
}

void ignore_file_size_signal() { ::signal(SIGXFSZ, SIG_IGN); }

void restore_hangup() { ::signal(SIGHUP, hangup_is_ignored ? SIG_IGN : SIG_DFL); }

StopSignals::StopSignals(SecondInterrupt second) {
  second_interrupt_ends.store(second == SecondInterrupt::ends, std::memory_order_relaxed);
  caught_signal.store(0, std::memory_order_relaxed);
  for (std::atomic<int>& count : counts) count.store(0, std::memory_order_relaxed);
  handle(on_signal);
}
StopSignals::~StopSignals() { handle(SIG_DFL); }
int StopSignals::count(int number) {
  const std::atomic<int>* count = count_of(number);
  return count ? count->load(std::memory_order_relaxed) : 0;
}
int StopSignals::caught() { return caught_signal.load(std::memory_order_relaxed); }

std::filesystem::path stop_file(const std::filesystem::path& output) { return output / "STOP"; }

bool Walltime::over(double longest_step, std::optional<double> longest_save) const {
  if (seconds_ <= 0) return false;
  const double reserve = longest_save ? 1.5 * *longest_save : std::min(60.0, 0.1 * seconds_);
  return std::chrono::duration<double>(Clock::now() - begin_).count() + 1.5 * longest_step + reserve >= seconds_;
}

namespace {

// Seconds of a number with a unit, as in 6h, 90 min or 30s; nullopt for other texts.
std::optional<double> seconds_with_unit(const std::string& text) {
  constexpr std::pair<std::string_view, double> units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return {};
  while (*end == ' ') ++end;
  for (const auto& [unit, seconds] : units)
    if (end == unit && std::isfinite(number) && number >= 0) return number * seconds;
  return {};
}

}  // namespace

double walltime_seconds(const std::string& text) {
  if (text.empty()) return 0;
  if (const auto seconds = seconds_with_unit(text)) return *seconds;
  const auto dash = text.find('-');
  const bool has_days = dash != text.npos;
  std::vector<double> parts;
  const char* at = text.c_str();
  for (;;) {
    char* end = nullptr;
    parts.push_back(std::strtod(at, &end));
    const bool day = has_days && parts.size() == 1;
    const bool at_separator = day ? end == text.c_str() + dash : *end == ':' || *end == 0;
    const bool fine = end != at && std::isfinite(parts.back()) && parts.back() >= 0 && parts.size() <= (has_days ? 4 : 3) && at_separator;
    require(fine, Exit::config,
            "train.walltime = {} is not a time; write it with a unit, as in 6h, 90min or 30s, or as \"hh:mm:ss\", \"mm:ss\", minutes or Slurm's "
            "\"days-hh:mm:ss\"",
            text);
    if (*end == 0) break;
    at = end + 1;
  }
  if (parts.size() == 1) return 60 * parts[0];
  if (has_days) {  // days-hours, days-hours:minutes or days-hours:minutes:seconds
    parts.resize(4);
    parts[1] += 24 * parts[0];
    parts.erase(parts.begin());
  }
  double seconds = 0;
  for (const double part : parts) seconds = 60 * seconds + part;
  return seconds;
}

}  // namespace gyr
