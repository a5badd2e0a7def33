// SPDX-License-Identifier: BSD-3-Clause
// What a person sees while the run goes on. A terminal gets one line that redraws itself; a file gets plain lines in
// the field order of Megatron-LM's log, so that scripts written for it go on working. One rank prints.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "src/report/step_report.hpp"

namespace gyr {

struct ProgressStyle {
  bool live = false;    // redraw one line with control characters; otherwise not a single one is written
  bool colour = false;  // of the live line
  int width = 80;       // columns of the terminal
  Index every = 1;      // steps from one plain line to the next
};

// How to write to `out`: live on a terminal that can move its cursor, in colour unless NO_COLOR is set.
// GYR_PROGRESS=live or plain decides where `out` cannot tell, as behind mpiexec, which hands each rank a pipe.
ProgressStyle progress_style(std::FILE* out, Index every);

class Progress {
 public:
  Progress(std::FILE* out, ProgressStyle style) : out_(out), style_(style) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // To be called after every step. Live: redraws at most ten times a second, and always at the last step.
  void show(const StepReport&);
  void show(const ValidationReport&);
  void say(std::string_view line);  // anything else, on a line of its own

 private:
  void clear();
  void write(std::string_view text);

  std::FILE* out_;
  ProgressStyle style_;
  std::string drawn_;         // the live line now on the screen
  double drawn_at_ = -1e300;  // seconds since 1970
};

// The lines themselves, without '\n'.
std::string step_line(const StepReport&);
std::string validation_line(const ValidationReport&);
std::string live_line(const StepReport&, int width, bool colour);

std::string duration(double seconds);  // "1:02:03", "4d 01:02:03", "unknown"

}  // namespace gyr
