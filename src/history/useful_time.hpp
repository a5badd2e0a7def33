// SPDX-License-Identifier: BSD-3-Clause
// Useful time of a run, the goodput: the time in steps that count, as a fraction of the elapsed time.
// - A step counts once, in its last repetition. Steps that a resumed run repeats are lost.
// - The elapsed time is that between the lines of metrics.jsonl. It includes restarts by gyrfalcon run, from the last line of
//   an attempt to the start of the next. The pause before a start by the user (attempt 0) is not counted.
// `gyrfalcon report` and `gyrfalcon run` both use this definition.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "kernels/base/scalar.hpp"
#include "src/base/json.hpp"

namespace gyr {

class UsefulTime {
 public:
  void read(const Json& line);  // one line of metrics.jsonl, in order
  double useful() const;        // seconds
  double elapsed() const { return elapsed_; }
  double ratio() const { return elapsed_ > 0 ? useful() / elapsed_ : 0; }
  std::string text() const;  // "93.1 %"; "-" if no time has elapsed

 private:
  std::map<Index, double> steps_;  // seconds of each step, in its last repetition
  double elapsed_ = 0, last_ = 0;  // last_: time of the last line; 0: none
};

// Useful time of the lines of a metrics.jsonl that were written since `begin` (seconds since 1970). Without a readable file
// no time has elapsed.
UsefulTime useful_time(const std::filesystem::path& metrics, double begin);

}  // namespace gyr
