// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/iteration_report.hpp"

#include "src/base/json.hpp"
#include "src/base/quantity.hpp"

namespace gyr {

std::string iteration_line(const IterationReport& r) {
  std::string line = fmt::format("iteration {}/{} | reward {:.4f} +- {:.4f} | length {:.1f} | ended {:.0f} %", r.iteration + 1, r.iterations,
                                 r.reward, r.reward_deviation, r.length, 100 * r.ended);
  if (r.equal_groups > 0) line += fmt::format(" | equal groups {:.0f} %", 100 * r.equal_groups);
  if (r.kl) line += fmt::format(" | KL {:.4f}", *r.kl);
  if (r.explained_variance) line += fmt::format(" | explained {:.2f}", *r.explained_variance);
  return line + fmt::format(" | {}", time_text(r.seconds));
}

std::string iteration_json(const IterationReport& r, double time) {
  Json rewards = Json::object();
  for (const auto& [name, mean] : r.rewards) rewards[name] = mean;
  Json json{{"kind", "iteration"},
            {"time", time},
            {"iteration", r.iteration},
            {"version", r.version},
            {"prompts", r.prompts},
            {"prompts_drawn", r.prompts_drawn},
            {"answers", r.answers},
            {"reward", r.reward},
            {"reward_deviation", r.reward_deviation},
            {"rewards", rewards},
            {"without_reward", r.without_reward},
            {"equal_groups", r.equal_groups},
            {"advantage_deviation", r.advantage_deviation},
            {"length", r.length},
            {"shortest", r.shortest},
            {"longest", r.longest},
            {"ended", r.ended},
            {"log_prob", r.log_prob},
            {"seconds", r.seconds}};
  if (r.gap) json["gap"] = *r.gap, json["largest_gap"] = *r.largest_gap;
  if (r.kl) json["kl"] = *r.kl;
  if (r.value) json["value"] = *r.value, json["explained_variance"] = *r.explained_variance;
  if (r.correction) json["correction"] = *r.correction, json["left_out"] = *r.left_out;
  if (r.kl_coefficient) json["kl_coefficient"] = *r.kl_coefficient;
  return json_text(json);
}

}  // namespace gyr
