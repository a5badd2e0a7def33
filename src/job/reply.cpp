// SPDX-License-Identifier: BSD-3-Clause
#include "src/job/reply.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

extern char** environ;

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t most = 64 << 10;

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() { close(0), close(1); }
  void close(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  int ends[2];
};

// Returns 0 on failure.
pid_t started(const std::vector<std::string>& command, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.ends[1], 1), posix_spawn_file_actions_adddup2(&files, err.ends[1], 2);
  pid_t pid = 0;
  const int failed = spawn(command, files, pid);
  posix_spawn_file_actions_destroy(&files);
  return failed == 0 ? pid : 0;
}

// Waits for output for at most `milliseconds`. Returns false if there was none.
bool read_some(Pipe& pipe, std::string& text, int milliseconds) {
  pollfd wait{pipe.ends[0], POLLIN, 0};
  if (::poll(&wait, 1, milliseconds) <= 0 || wait.revents == 0) return false;
  char bytes[4096];
  const ssize_t count = ::read(pipe.ends[0], bytes, sizeof bytes);
  if (count > 0 && text.size() < most) text.append(bytes, std::size_t(count));
  if (count <= 0) pipe.close(0);  // poll ignores closed descriptors
  return count > 0;
}

}  // namespace

int spawn(const std::vector<std::string>& command, const posix_spawn_file_actions_t& files, pid_t& pid) {
  posix_spawnattr_t how;
  sigset_t none, defaults;
  sigemptyset(&none), sigemptyset(&defaults);
  for (const int number : {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGPIPE, SIGCHLD}) sigaddset(&defaults, number);
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &none), posix_spawnattr_setsigdefault(&how, &defaults), posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int error = ::posix_spawnp(&pid, words[0], &files, &how, words.data(), environ);
  posix_spawnattr_destroy(&how);
  return error;
}

std::optional<Reply> reply_of(const std::vector<std::string>& command, double seconds) {
  Pipe out, err;
  if (out.ends[0] < 0 || err.ends[0] < 0) return {};
  const pid_t pid = started(command, out, err);
  if (pid <= 0) return {};
  out.close(1), err.close(1);
  Reply reply;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  bool ended = false;
  do {
    ended = ::waitpid(pid, &status, WNOHANG) == pid;
    while (read_some(out, reply.out, ended ? 0 : 10) || read_some(err, reply.err, ended ? 0 : 10))
      if (Clock::now() > end) break;
  } while (!ended && Clock::now() < end);
  if (!ended) {
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return {};
  }
  reply.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return reply;
}

}  // namespace gyr
