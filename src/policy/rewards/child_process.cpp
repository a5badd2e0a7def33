// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rewards/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/job/reply.hpp"

namespace gyr {

namespace {

using namespace std::chrono_literals;

// Blocks SIGPIPE in this thread, so that a write to a program that has ended fails with EPIPE instead.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_), sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec at_once{0, 0};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

// Returns 0 and sets `pid`, or returns the error.
int spawn_between(const std::vector<std::string>& command, int in, int out, const std::filesystem::path& log, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, 0), posix_spawn_file_actions_adddup2(&files, out, 1);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  const int error = spawn(command, files, pid);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& log, const std::string& key) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  const bool piped = ::pipe2(to, O_CLOEXEC) == 0 && ::pipe2(from, O_CLOEXEC) == 0;
  const int error = piped ? spawn_between(command, to[0], from[1], log, pid_) : errno;
  for (const int end : {to[0], from[1]})
    if (end >= 0) ::close(end);
  in_ = to[1], out_ = from[0];
  if (error == 0) {
    for (const int end : {in_, out_}) ::fcntl(end, F_SETFL, O_NONBLOCK);
    return;
  }
  for (const int end : {in_, out_})
    if (end >= 0) ::close(end);
  require(error != ENOENT && error != EACCES, Exit::missing,
          "{}: the program `{}` cannot be started: {}; name an executable file, or a program in PATH", key, printable(command[0]),
          std::strerror(error));
  fail(Exit::io, "{}: the program `{}` cannot be started: {}", key, printable(command[0]), std::strerror(error));
}

ChildProcess::~ChildProcess() {
  end(1000ms);
  for (const int end : {in_, out_})
    if (end >= 0) ::close(end);
}

void ChildProcess::send(const std::string& line) {
  unwritten_ += line + "\n";
  queued_ += std::int64_t(line.size()) + 1;
}

void ChildProcess::write_some() {
  const WithoutPipeSignal quiet;
  std::size_t done = 0;
  while (done < unwritten_.size()) {
    const ssize_t count = ::write(in_, unwritten_.data() + done, unwritten_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      closed_ = closed_ || errno == EPIPE;
      break;
    }
    done += std::size_t(count);
  }
  written_ += std::int64_t(done);
  unwritten_.erase(0, done);
}

void ChildProcess::read_some(std::vector<std::string>& lines) {
  char bytes[1 << 16];
  while (true) {
    const ssize_t count = ::read(out_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      closed_ = closed_ || count == 0;
      return;
    }
    std::string_view rest(bytes, std::size_t(count));
    for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      lines.push_back(unread_ + std::string(rest.substr(0, end)));
      unread_.clear(), rest.remove_prefix(end + 1);
    }
    unread_ += rest;
    require(unread_.size() <= most_line, Exit::data, "a program that gives rewards writes a line of more than {} bytes; write one line per answer",
            most_line);
  }
}

std::string ChildProcess::end(std::chrono::milliseconds wait) {
  if (!how_.empty()) return how_;
  if (in_ >= 0) ::close(in_), in_ = -1;
  int status = 0;
  pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  for (const auto until = std::chrono::steady_clock::now() + wait; ended == 0 && std::chrono::steady_clock::now() < until;) {
    const timespec pause{0, 2'000'000};
    ::nanosleep(&pause, nullptr);
    ended = ::waitpid(pid_, &status, WNOHANG);
  }
  ::kill(-pid_, SIGKILL);  // also ends processes that the program has started
  if (ended == 0) ::waitpid(pid_, &status, 0);
  return how_ = WIFEXITED(status) ? fmt::format("with exit code {}", WEXITSTATUS(status)) : fmt::format("by signal {}", WTERMSIG(status));
}

}  // namespace gyr
