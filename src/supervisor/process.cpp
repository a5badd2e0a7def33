// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"

namespace gyr {

namespace {

void pause(int milliseconds) {
  const timespec time{0, milliseconds * 1'000'000L};
  nanosleep(&time, nullptr);
}

std::vector<pid_t> children() {
  std::istringstream list(text_or_nothing("/proc/self/task/" + std::to_string(getpid()) + "/children", std::size_t(1) << 20));
  std::vector<pid_t> pids;
  for (pid_t pid; list >> pid;) pids.push_back(pid);
  return pids;
}

struct Pipe {
  int ends[2] = {-1, -1};  // to read from, to write to
};

// The process keeps the reading ends of its output open, too: if this program is killed, the launcher and its ranks can still write, and
// save and end after SIGTERM instead of dying by SIGPIPE.
[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent, const Pipe& out, const Pipe& err, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) ::signal(number, SIG_DFL);
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  ::dup2(out.ends[1], 1);
  ::dup2(err.ends[1], 2);
  for (const Pipe& pipe : {out, err}) ::fcntl(pipe.ends[0], F_SETFD, 0);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t lost = ::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

Process::Process(const std::vector<std::string>& command) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Pipe out, err, report;
  for (Pipe* pipe : {&out, &err, &report}) require(::pipe2(pipe->ends, O_CLOEXEC) == 0, Exit::io, "cannot create a pipe: {}", std::strerror(errno));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  require(pid_ >= 0, Exit::io, "cannot start a process: {}", std::strerror(errno));
  if (pid_ == 0) become(command, parent, out, err, report.ends[1]);
  for (const Pipe& pipe : {out, err, report}) ::close(pipe.ends[1]);
  int error = 0;
  // end of file without data: exec succeeded and closed the pipe
  const bool failed = ::read(report.ends[0], &error, sizeof error) == ssize_t(sizeof error);
  ::close(report.ends[0]);
  streams_[0] = {out.ends[0], 1}, streams_[1] = {err.ends[0], 2};
  for (const Stream& stream : streams_) ::fcntl(stream.from, F_SETFL, O_NONBLOCK);
  if (!failed) return;
  for (const Stream& stream : streams_) ::close(stream.from);
  ::waitpid(pid_, nullptr, 0);
  fail(Exit::device, "{} cannot be started: {}; name another launcher with --launcher", command[0], std::strerror(error));
}

Process::~Process() {
  end(0);
  for (const Stream& stream : streams_) ::close(stream.from);
}

bool Process::pass_on(const Stream& stream) {
  char bytes[4096];
  const ssize_t count = ::read(stream.from, bytes, sizeof bytes);
  if (count <= 0) return false;
  for (ssize_t done = 0; done < count;) {
    const ssize_t written = ::write(stream.to, bytes + done, std::size_t(count - done));
    if (written < 0 && errno != EINTR) break;  // the output is closed: the run continues without it
    done += std::max<ssize_t>(written, 0);
  }
  return true;
}

void Process::reap() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::optional<int> Process::attend(double seconds) {
  pollfd waits[] = {{streams_[0].from, POLLIN, 0}, {streams_[1].from, POLLIN, 0}};
  reap();
  if (!status_) {
    const bool closed = ::poll(waits, 2, int(seconds * 1000)) > 0 && !((waits[0].revents | waits[1].revents) & POLLIN);
    if (closed) pause(int(seconds * 1000));  // its output is closed, but the process has not ended
  }
  reap();
  for (const Stream& stream : streams_)
    while (pass_on(stream)) {
    }
  return status_;
}

void Process::signal(int number) {
  if (!status_) ::kill(pid_, number);
}

void Process::end(double seconds) {
  using Clock = std::chrono::steady_clock;
  if (!status_) ::kill(pid_, SIGTERM);
  for (const Clock::time_point begin = Clock::now(); !status_ && Clock::now() - begin < std::chrono::duration<double>(seconds); reap()) pause(10);
  if (!status_) {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  for (auto left = children(); !left.empty(); left = children()) {  // kills ranks that have outlived their launcher
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    for (const pid_t pid : left) ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace gyr
