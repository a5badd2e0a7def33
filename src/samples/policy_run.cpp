// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/policy_run.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/data/data_config.hpp"
#include "src/deck/deck.hpp"
#include "src/policy/rollout_file.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_deck_bytes = std::size_t(1) << 20;

// Keys of an event that are no metrics of an iteration.
constexpr const char* not_metrics[] = {"time", "iteration", "step", "steps", "seconds_left"};

bool is_metric(const std::string& key) {
  return std::none_of(std::begin(not_metrics), std::end(not_metrics), [&](const char* name) { return key == name; });
}

// Collects the metrics of the iterations. A number that does not increase belongs to a run that resumed from an earlier checkpoint,
// and replaces everything from there on.
class MetricsReader {
 public:
  explicit MetricsReader(Index steps_of_iteration) : steps_(std::max<Index>(1, steps_of_iteration)) {}

  void read(const Json& event) {
    const std::string kind = text_in(event, "kind");
    if (kind == "run") iterations_.clear(), of_steps_.clear();  // earlier lines belong to another run
    if (kind == "iteration") read_iteration(event);
    if (kind == "step") read_step(event);
  }

  std::vector<IterationMetrics> finished() {
    std::vector<IterationMetrics> all;
    for (auto& [number, values] : iterations_) {
      std::map<std::string, std::pair<double, double>> sums;  // of a metric: sum, and number of steps
      for (auto step = of_steps_.lower_bound(number * steps_ + 1); step != of_steps_.end() && step->first <= (number + 1) * steps_; ++step)
        for (const auto& [key, value] : step->second) sums[key].first += value, sums[key].second += 1;
      for (const auto& [key, sum] : sums) values.emplace(key, sum.first / sum.second);  // a metric of the iteration has precedence
      all.push_back({number, std::move(values)});
    }
    return all;
  }

 private:
  using Values = std::map<std::string, double>;

  static void add(Values& values, const std::string& key, const Json& value) {
    if (value.is_number() && std::isfinite(value.get<double>())) values[key] = value.get<double>();
  }
  void read_iteration(const Json& event) {
    const auto number = integer_in(event, "iteration");
    if (!number || *number < 0) return;
    iterations_.erase(iterations_.lower_bound(*number), iterations_.end());
    Values& values = iterations_[*number];
    for (const auto& [key, value] : event.items())
      if (is_metric(key)) add(values, key, value);
    if (const auto rewards = event.find("rewards"); rewards != event.end() && rewards->is_object())
      for (const auto& [rule, mean] : rewards->items()) add(values, "rewards." + rule, mean);
  }
  void read_step(const Json& event) {
    const auto number = integer_in(event, "step");
    if (!number) return;
    of_steps_.erase(of_steps_.lower_bound(*number), of_steps_.end());
    Values& values = of_steps_[*number];
    for (const auto& [key, value] : event.items())
      if (is_metric(key)) add(values, key, value);
  }

  Index steps_;
  std::map<std::int64_t, Values> iterations_, of_steps_;
};

// The keys of a deck that a page of samples depends on.
void read_policy_deck(const fs::path& file, PolicyRun& run) {
  std::error_code ignored;
  require(fs::exists(file, ignored), Exit::missing,
          "{}: does not exist, but the advantages of the answers depend on section rl of the deck; restore the deck that `train` wrote there",
          file.string());
  Deck deck = Deck::stored(text_of_file(file, most_deck_bytes), file.string());
  run.config = read_policy(deck.section("rl", "policy training"), false);
  run.tokenizer = read_data(deck.section("data", "data"), "").tokenizer;
}

// Iterations with a file of rollouts, read from the names of the files.
std::vector<std::int64_t> stored_iterations(const PolicyRun& run) {
  std::vector<std::int64_t> stored;
  std::error_code ignored;
  for (const IterationMetrics& m : run.iterations)
    if (fs::exists(rollout_path(run.folder, m.iteration), ignored)) stored.push_back(m.iteration);
  return stored;
}

}  // namespace

MetricSeries PolicyRun::series(const std::string& metric) const {
  MetricSeries all;
  for (const IterationMetrics& m : iterations)
    if (const auto value = m.values.find(metric); value != m.values.end()) all.at.push_back(double(m.iteration)), all.value.push_back(value->second);
  return all;
}

std::vector<std::string> PolicyRun::rules() const {
  std::vector<std::string> names;
  for (const RewardConfig& rule : config.rewards) names.push_back(rule.name);
  const std::string prefix = "rewards.";
  for (const IterationMetrics& m : iterations)
    for (const auto& [key, value] : m.values)
      if (key.starts_with(prefix) && std::find(names.begin(), names.end(), key.substr(prefix.size())) == names.end())
        names.push_back(key.substr(prefix.size()));
  return names;
}

double PolicyRun::weight(const std::string& rule) const {
  for (const RewardConfig& r : config.rewards)
    if (r.name == rule) return r.weight;
  return std::numeric_limits<double>::quiet_NaN();
}

PolicyRun read_policy_run(const fs::path& output) {
  const fs::path plain = output.lexically_normal(), metrics = output / "metrics.jsonl";
  PolicyRun run{.name = (plain.has_filename() ? plain : plain.parent_path()).filename().string(), .folder = output.string()};
  std::error_code ignored;
  require(fs::exists(metrics, ignored), Exit::missing, "{}: there is no metrics.jsonl; pass the output.folder of a run of `train`", run.folder);
  bool trains_policy = false;
  visit_json_lines(metrics, [&](const Json& event) { trains_policy = trains_policy || text_in(event, "kind") == "iteration"; });
  require(trains_policy, Exit::data,
          "{}: contains no iteration of policy training; --samples needs a run with train.objective: policy that has finished an iteration",
          metrics.string());
  read_policy_deck(output / "deck.yaml", run);
  MetricsReader reader(run.config.steps_of_iteration());
  visit_json_lines(metrics, [&](const Json& event) { reader.read(event); });
  run.iterations = reader.finished();
  run.stored = stored_iterations(run);
  require(!run.stored.empty(), Exit::missing,
          "{}: there is no file of rollouts of this run's {} iterations; restore iteration_*.h5 there, or use `gyrfalcon report {} --html PAGE.html`",
          (output / "rollouts").string(), run.iterations.size(), run.folder);
  return run;
}

std::vector<std::int64_t> chosen_iterations(const std::vector<std::int64_t>& stored, Index count) {
  const auto have = Index(stored.size());
  if (have <= count) return stored;
  if (count == 1) return {stored.back()};
  std::vector<std::int64_t> chosen;
  for (Index i = 0; i < count; ++i) chosen.push_back(stored[std::size_t((i * (have - 1) + (count - 1) / 2) / (count - 1))]);
  return chosen;
}

}  // namespace gyr
