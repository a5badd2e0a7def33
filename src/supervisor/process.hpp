// SPDX-License-Identifier: BSD-3-Clause
// A launcher and everything it has started, as a child of this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gyr {

class Process {
 public:
  // Started in a process group of its own, so that a terminal's Ctrl-C reaches it only through this process, without standard input.
  // Exit::usage where the program cannot be started. One at a time: descendants that lose their parent become this process' children.
  explicit Process(const std::vector<std::string>& command);
  ~Process();  // ends all that is left
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Passes on what has been written for at most `seconds`. The exit code once the process has ended (128 + signal where one ended it)
  // and everything it said has been passed on.
  std::optional<int> attend(double seconds);
  void signal(int number);
  // Asks it to go, and ends it and its descendants where it has not within `seconds`.
  void end(double seconds);

 private:
  struct Stream {
    int from = -1, to = -1;
  };
  static bool pass_on(const Stream&);  // false: there was nothing
  void reap();

  pid_t pid_ = -1;
  std::optional<int> status_;
  Stream streams_[2];
};

}  // namespace gyr
