// SPDX-License-Identifier: BSD-3-Clause
// Progress of work without steps: on a terminal one line that is redrawn, and erased at the end; elsewhere a line at times.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/base/scalar.hpp"

namespace gyr {

class StatusLine {
 public:
  StatusLine(std::FILE* out, double seconds_between_lines);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  bool due() const;                    // true if enough time has passed since the last line
  void show(const std::string& text);  // prints the text, due or not
  double seconds() const;              // seconds since the start

 private:
  std::FILE* out_;
  bool live_;
  double interval_, begun_, drawn_at_;  // start and last line, seconds of the steady clock
  bool drawn_ = false;
};

// Progress and remaining time of a long copy; elsewhere than on a terminal one line every 30 seconds.
class Transfer {
 public:
  Transfer(std::FILE* out, std::string what, Index bytes);
  void add(Index bytes) { reach(done_ + bytes); }
  void reach(Index done);

 private:
  StatusLine line_;
  std::string what_;
  Index bytes_, done_ = 0;
};

}  // namespace gyr
