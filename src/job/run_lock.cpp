// SPDX-License-Identifier: BSD-3-Clause
#include "src/job/run_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/file_system.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

// seconds between rewrites of the lock file; seconds to wait after taking it. A holder notices within one beat that
// another run has taken its folder
constexpr double beat_seconds = 1, stable_seconds = 2;
constexpr std::size_t most_heartbeats = std::size_t(256) << 20;  // maximum size of heartbeat.bin in bytes

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string contents(const std::filesystem::path& file, std::size_t most = most_json) { return text_or_nothing(file, most); }

std::string line_of(const char* file) {
  const std::string text = contents(file);
  return text.substr(0, text.find('\n'));
}

// Joins the cause of a file that cannot be opened and the choice of another folder.
const char* or_else(int error) { return error == ELOOP ? ", or" : error == EACCES ? "; change its permissions, or" : ";"; }

std::string drawn_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace

std::string RunLock::Owner::text() const { return printable(fmt::format("process {} on {}{}", pid, host, job.id.empty() ? "" : ", job " + job.id)); }

RunLock::Owner RunLock::myself() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::error_code error;
  const std::string pids = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return {host, line_of("/proc/sys/kernel/random/boot_id"), drawn_token(), pids, job_of_environment(), getpid()};
}

// Returns no owner (pid 0) if the text is empty or cannot be parsed.
RunLock::Owner RunLock::owner_in(const std::string& text) {
  const Json json = json_in(text);
  if (!json.is_object()) return {};
  Owner owner;
  owner.host = text_in(json, "host"), owner.job.id = text_in(json, "job"), owner.boot = text_in(json, "boot"), owner.token = text_in(json, "token");
  owner.pid_namespace = text_in(json, "pid_namespace");
  owner.job.scheduler = text_in(json, "scheduler"), owner.job.cluster = text_in(json, "cluster"), owner.job.step = text_in(json, "step");
  owner.job.attempt = int(integer_in(json, "attempt").value_or(integer_in(json, "life").value_or(0)));
  const auto pid = integer_in(json, "pid");
  if (owner.host.empty() || !pid || *pid < 1 || *pid > std::numeric_limits<pid_t>::max() || !json.contains("job")) return {};
  owner.pid = long(*pid);
  return owner;
}

std::string RunLock::token_in(const std::filesystem::path& file) { return owner_in(contents(file)).token; }

bool RunLock::Owner::shares_processes() const {
  const Owner me = myself();
  return pid != 0 && host == me.host && boot == me.boot && !me.pid_namespace.empty() && pid_namespace == me.pid_namespace;
}

bool RunLock::shares_processes(const std::filesystem::path& folder) { return owner_in(contents(folder / of_run)).shares_processes(); }

std::string RunLock::living_holder_of(const std::filesystem::path& file) {
  constexpr std::chrono::seconds silence(10);
  const Owner owner = owner_in(contents(file));
  if (owner.pid == 0) return "";
  std::error_code gone;
  const bool lives = owner.shares_processes() ? ::kill(pid_t(owner.pid), 0) == 0 || errno == EPERM
                                              : std::filesystem::file_time_type::clock::now() - last_write_time(file, gone) < silence;
  return lives && !gone ? owner.text() : "";
}

std::string RunLock::living_holder(const std::filesystem::path& folder) {
  const std::string of_ranks = living_holder_of(folder / of_run);
  return of_ranks.empty() ? living_holder_of(folder / of_supervisor) : of_ranks;
}

RunLock::RunLock(const std::filesystem::path& folder, const LockSettings& settings, const char* name)
    : folder_(folder), name_(folder / name), choice_(settings.choice) {
  constexpr int how = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  descriptor_ = ::open(name_.c_str(), how | O_EXCL, 0666);
  created_ = descriptor_ >= 0;
  if (!created_) descriptor_ = ::open(name_.c_str(), how, 0666);
  require(descriptor_ >= 0, Exit::io, "{}: cannot be opened: {}{} choose another {}", name_.string(), why_not_opened(errno), or_else(errno), choice_);
  try {
    require(is_regular(descriptor_), Exit::io, "{}: is not a regular file; remove it, or choose another {}", name_.string(), choice_);
    shared_ = may_be_shared(name_);
    const bool locked = flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    const bool taken = !locked && errno == EWOULDBLOCK;
    const Owner before = owner_in(contents(name_));
    if (taken) refuse_living(before, settings);
    require_same_file();
    if (before.pid != 0) require_free(before, locked, settings);
    write(0);
    if (shared_ || !locked) wait_until_stable();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  sigset_t all, previous;  // all signals are blocked in the new thread, because the main thread handles them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

// The supervisor is named if there is one, because it would start ranks again that end.
void RunLock::refuse_living(const Owner& before, const LockSettings& settings) const {
  const bool by_supervisor = name_.filename() == of_supervisor;
  const std::string supervisor = by_supervisor ? before.text() : living_holder_of(folder_ / of_supervisor);
  const std::string what = supervisor.empty() ? before.text()
                           : by_supervisor    ? before.text() + " (gyrfalcon run)"
                                              : fmt::format("{}, started by the supervisor, {}", before.text(), supervisor);
  fail(Exit::io, "{}: another run writes to this folder: {}; wait for it, end {}, or choose another {}{}", name_.string(), what,
       supervisor.empty() ? "it" : "the supervisor, which restarts its ranks", choice_,
       settings.take_over ? ". --take-over is for runs on other machines: this run is alive and holds the lock of the file" : "");
}

// A run that was refused may have removed the file after this process opened it.
void RunLock::require_same_file() const {
  struct stat named {
  }, mine{};
  const bool same =
      ::lstat(name_.c_str(), &named) == 0 && ::fstat(descriptor_, &mine) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
  require(same, Exit::io, "{}: another run was refused here at the same moment and has removed this file; start again", name_.string());
}

// `locked`: this process got the flock, so no other process on this machine holds the file.
void RunLock::require_free(const Owner& before, bool locked, const LockSettings& settings) {
  const auto taken_over = [&](const std::string& why) {
    note_ = fmt::format("output folder taken over from {}, which ended without releasing it{}", before.text(), why);
  };
  const bool here = before.host == me_.host && (before.boot.empty() || before.boot == me_.boot);
  if (here && (locked || (::kill(pid_t(before.pid), 0) != 0 && errno == ESRCH))) return taken_over("");
  if (settings.take_over) return taken_over(" (--take-over)");
  if (earlier_attempt(before.job, me_.job)) return taken_over(": its job has been started again");
  const JobState state = here ? JobState::unknown : state_of(before.job, me_.job);
  require(state != JobState::suspended, Exit::io,
          "{}: another run writes to this folder: {}, whose job is suspended; wait for it, end it, or choose another {}", name_.string(),
          before.text(), choice_);
  if (state == JobState::gone) {
    require_still(before, 3 * beat_seconds);
    return taken_over(": its scheduler reports that the job is gone");
  }
  if (settings.notify)
    settings.notify(
        fmt::format("{}: {} has not released this folder; waiting {} s for a sign of life before taking it over (output.lock_seconds, --take-over)",
                    name_.string(), before.text(), settings.patience));
  require_still(before, settings.patience);
  taken_over(fmt::format(": no sign of life for {} s", settings.patience));
}

// Signs of life: the beats in the lock file, and the heartbeats of all ranks.
void RunLock::require_still(const Owner& before, double seconds) const {
  const auto look = [&] { return contents(name_) + contents(heartbeat_path(folder_), most_heartbeats); };
  const std::string first = look();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    require(StopSignals::caught() == 0, Exit::again, "stopped by {} while waiting for {}", stop_reason(StopSignals::caught()), name_.string());
    sleep(0.1);
    require(look() == first, Exit::io,
            "{}: another run writes to this folder: {}, which gives signs of life; wait for it, end it, or choose another {}", name_.string(),
            before.text(), choice_);
  }
}

// The text never shrinks, so that a concurrent reader sees either the old or the new one.
void RunLock::write(std::uint64_t beat) {
  const Job& job = me_.job;
  const Json json = {{"host", me_.host},
                     {"pid", me_.pid},
                     {"job", job.id},
                     {"scheduler", job.scheduler},
                     {"cluster", job.cluster},
                     {"step", job.step},
                     {"attempt", job.attempt},
                     {"boot", me_.boot},
                     {"token", me_.token},
                     {"pid_namespace", me_.pid_namespace},
                     {"beat", fmt::format("{:012}", beat)}};
  const std::string text = json_text(json) + "\n";
  const bool written = (beat > 0 || ftruncate(descriptor_, 0) == 0) && pwrite(descriptor_, text.data(), text.size(), 0) == ssize_t(text.size());
  require(written && (!shared_ || fsync(descriptor_) == 0), Exit::io, "{}: cannot be written: {}", name_.string(), std::strerror(errno));
}

void RunLock::wait_until_stable() const {
  sleep(stable_seconds);
  const Owner now = owner_in(contents(name_));
  require(now.token == me_.token, Exit::io, "{}: another run took this folder at the same moment: {}; wait for it, end it, or choose another {}",
          name_.string(), now.text(), choice_);
}

void RunLock::look() {
  if (lost()) return;
  const int seen = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const bool gone = seen < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
  struct stat there {
  }, mine{};
  const bool other =
      seen >= 0 && (fstat(seen, &there) != 0 || fstat(descriptor_, &mine) != 0 || there.st_ino != mine.st_ino || there.st_dev != mine.st_dev);
  if (seen >= 0) ::close(seen);
  const Owner now = seen >= 0 ? owner_in(contents(name_)) : me_;
  if (gone)
    why_lost_ = fmt::format("{}: does not exist any more: the output folder has been deleted or moved during the run, so nothing can be saved",
                            name_.string());
  else if (other || (now.pid != 0 && now.token != me_.token))
    why_lost_ =
        fmt::format("{}: {} has taken this folder; this run writes nothing more to it", name_.string(), now.pid != 0 ? now.text() : "another run");
  if (!why_lost_.empty()) return lost_.store(true);
  try {
    write(++beat_);
  } catch (const Error&) {  // the disk may be full temporarily: the next beat follows in a second
  }
}

void RunLock::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(beat_seconds), [&] { return done_; })) look();
}

void RunLock::require_held() {
  const std::lock_guard lock(mutex_);
  look();
  require(!lost(), Exit::io, "{}", why_lost_);
}

// The file is emptied, not removed: otherwise two runs could lock different files of the same name. Only a file that a
// refused start has created is removed.
RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
  look();
  if (!lost() && removes_) ::unlink(name_.c_str());
  else if (!lost()) {
    [[maybe_unused]] const int emptied = ftruncate(descriptor_, 0);  // if this fails, the next run takes the folder over
  }
  ::close(descriptor_);
}

}  // namespace gyr
