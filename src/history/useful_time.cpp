// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/useful_time.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace gyr {

void UsefulTime::read(const Json& line) {
  const std::string kind = text_in(line, "kind");
  if (kind == "run") *this = {};  // all earlier lines belong to another run
  if (const double time = number_in(line, "time"); time > 0) {
    const bool pause = last_ == 0 || (kind == "start" && integer_in(line, "attempt").value_or(0) == 0);
    const double seconds = number_in(line, "seconds");
    if (!pause) elapsed_ += std::max(0.0, time - last_);
    else if (kind == "step" && seconds > 0) elapsed_ += seconds;  // the first line of metrics without a start
    last_ = time;
  }
  const auto step = integer_in(line, "step");
  if (const double seconds = number_in(line, "seconds"); kind == "step" && step && seconds >= 0) {
    steps_.erase(steps_.lower_bound(*step), steps_.end());  // a resumed run repeats these
    steps_[*step] = seconds;
  }
}

double UsefulTime::useful() const {
  double sum = 0;
  for (const auto& [step, seconds] : steps_) sum += seconds;
  return sum;
}

std::string UsefulTime::text() const { return elapsed_ > 0 ? fmt::format("{:.1f} %", 100 * ratio()) : "-"; }

UsefulTime useful_time(const std::filesystem::path& metrics, double begin) {
  UsefulTime time;
  const auto read = [&](const Json& line) {
    if (number_in(line, "time") >= begin) time.read(line);
  };
  try {
    visit_json_lines(metrics, read);
  } catch (const Error&) {  // no step was taken, or users have changed the folder
  }
  return time;
}

}  // namespace gyr
