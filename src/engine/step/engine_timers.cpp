// SPDX-License-Identifier: BSD-3-Clause
// Names of the timers of an engine.
#include <algorithm>

#include "src/engine/step/engine.hpp"

namespace gyr {

std::vector<std::string> engine_timer_names(Scoring scoring) {
  std::vector<std::string> names{"step",           "data",          "forward",   "backward", "pipeline wait", "reduce gradients",
                                 "gather weights", "gradient norm", "optimizer", "evaluate", "checkpoint"};
  if (scoring == Scoring::critic) names.insert(names.begin() + 2, "train critic");
  if (scoring != Scoring::none) names.insert(names.begin() + 2, "score");
  if (scoring == Scoring::rollouts || scoring == Scoring::critic) names.insert(names.begin() + 2, {"move weights", "generate"});
  return names;
}

std::size_t engine_step_parts(const std::vector<std::string>& timer_names) {
  return std::size_t(std::find(timer_names.begin(), timer_names.end(), "evaluate") - timer_names.begin()) - 1;
}

}  // namespace gyr
