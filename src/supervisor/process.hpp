// SPDX-License-Identifier: BSD-3-Clause
// A launcher process with all its descendants, as a child of this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gyr {

class Process {
 public:
  // Starts the program without standard input, in its own process group, so that a terminal's Ctrl-C reaches it only
  // through this process. Exit::device if the program cannot be started. Only one object at a time: this process adopts
  // orphaned descendants (child subreaper).
  explicit Process(const std::vector<std::string>& command);
  ~Process();  // kills all remaining descendants
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Copies its output to ours for at most `seconds`. Returns the exit code (128 + signal if a signal ended it) once the
  // process has ended and all its output was copied.
  std::optional<int> attend(double seconds);
  void signal(int number);
  // Sends SIGTERM; after `seconds` kills the process and its descendants.
  void end(double seconds);

 private:
  struct Stream {
    int from = -1, to = -1;
  };
  static bool pass_on(const Stream&);  // copies output once; returns false if there was none
  void reap();

  pid_t pid_ = -1;
  std::optional<int> status_;
  Stream streams_[2];
};

}  // namespace gyr
