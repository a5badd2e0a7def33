// SPDX-License-Identifier: BSD-3-Clause
// A program that reads lines from this process and writes lines to it, through two pipes that never block this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

class ChildProcess {
 public:
  static constexpr std::size_t most_line = std::size_t(16) << 20;

  // Starts the program, which is searched in PATH, in its own process group. Its standard error is appended to `log`.
  // Exit::missing with `key`, the deck key of the command, if there is no such program; Exit::io.
  ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& log, const std::string& key);
  // Closes its input and kills its process group unless it ends within a second.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Queues a line, without its line end, for writing.
  void send(const std::string& line);
  std::int64_t queued() const { return queued_; }    // bytes of all lines so far
  std::int64_t written() const { return written_; }  // bytes of them that were written to the pipe
  bool writes() const { return written_ < queued_; }
  void write_some();                 // writes as much as the pipe takes
  int input() const { return in_; }  // descriptors to wait for, as in poll()
  int output() const { return out_; }
  // Reads as much as the pipe holds, and appends the complete lines. Exit::data for a line longer than most_line.
  void read_some(std::vector<std::string>& lines);
  bool closed() const { return closed_; }  // true: the program has closed its output, usually because it has ended
  // Waits for the end for at most `wait`, then kills the process group. Returns how it ended, as in "with exit code 1".
  std::string end(std::chrono::milliseconds wait);

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::int64_t queued_ = 0, written_ = 0;
  std::string unwritten_, unread_;  // bytes that are queued; bytes of an incomplete line
  bool closed_ = false;
  std::string how_;  // result of end(); empty: not yet called
};

}  // namespace gyr
