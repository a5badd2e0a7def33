// SPDX-License-Identifier: BSD-3-Clause
// Progress output of a run. A terminal gets one line that is redrawn; a pipe or a file gets plain lines, on request in
// the field order of Megatron-LM's log, so that scripts for that log keep working. Only one rank prints.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "src/base/quantity.hpp"
#include "src/report/step_report.hpp"

namespace gyr {

enum class LogFormat { short_lines, megatron };

struct ProgressStyle {
  bool live = false;    // redraw one line with control characters; otherwise no control characters are written
  bool colour = false;  // true: colour the live line
  int width = 80;       // width of the terminal in columns
  Index every = 1;      // steps between plain lines
  LogFormat format = LogFormat::short_lines;
};

// Style for `out`: live on a terminal that can move its cursor, coloured unless NO_COLOR is set. GYR_PROGRESS=live or
// plain overrides it, for example under mpiexec, where every rank writes to a pipe. Exit::usage: another value of it.
ProgressStyle progress_style(std::FILE* out, Index every, LogFormat = LogFormat::short_lines);

class Progress {
 public:
  Progress(std::FILE* out, ProgressStyle style) : out_(out), style_(style) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // To be called after every step. A live line is redrawn at most ten times a second; the last step replaces it by a
  // plain line. Without a live line, the first step is logged too, and any step 30 seconds after the last line.
  void show(const StepReport&);
  void show(const ValidationReport&);
  void print_line(std::string_view line);  // prints any other text on its own line
  void clear();                            // leaves the live line on the screen and goes to the next line

 private:
  void write(std::string_view text);
  std::string log_line(const StepReport&) const;

  std::FILE* out_;
  ProgressStyle style_;
  std::string drawn_;         // text of the live line on the screen; empty: none
  double drawn_at_ = -1e300;  // time of the last redraw or of the last plain line of a step, seconds since 1970
};

// Text of the lines, without '\n'. A short line has at most 120 characters.
std::string short_line(const StepReport&);
std::string megatron_line(const StepReport&);
std::string validation_line(const ValidationReport&, LogFormat);
std::string live_line(const StepReport&, int width, bool colour);

}  // namespace gyr
