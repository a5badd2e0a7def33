// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/offload_fraction.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/planner/predict/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

double rounded_down(double fraction) { return std::floor(std::clamp(fraction, 0.0, 1.0) * alpha_steps) / alpha_steps; }

// Task costs at the offloaded fraction `fraction`, interpolated between those at 0 and 1. Communication is that of
// recomputed forwards.
CountedTasks between(const CountedTasks& none, const CountedTasks& all, double fraction) {
  const auto mixed = [&](CountedTasks::Count count, const CountedTasks::Count& other) {
    for (double CountedTasks::Count::*of : {&CountedTasks::Count::compute, &CountedTasks::Count::copying, &CountedTasks::Count::hides})
      count.*of += fraction * (other.*of - count.*of);
    return count;
  };
  CountedTasks tasks = fraction < 1 ? none : all;
  for (auto& [key, count] : tasks.counts) {
    const auto transfers = count.transfers;
    count = mixed(none.counts.at(key), all.counts.at(key));
    count.transfers = transfers;
  }
  return tasks;
}

class FractionSearch {
 public:
  FractionSearch(RunConfig run, const Layout& layout, const Cluster& cluster, const Profile* profile, StageRuns& runs)
      : run_(std::move(run)), layout_(layout), cluster_(cluster), profile_(profile), runs_(runs), none_(plans(0)), all_(plans(1)) {
    for (std::size_t stage = 0; stage < none_.stages().size(); ++stage)
      for (std::size_t i = 0; i < none_.stages()[stage].size(); ++i) {
        const auto& [position, none] = none_.stages()[stage][i];
        const StageRun& all = *all_.stages()[stage][i].second;
        for (const auto& [island, there] : on_islands(layout_, position, cluster_)) {
          const Cluster& here = cluster_.island(island);
          if (!tasks_.contains({none.get(), island}))
            tasks_.emplace(std::pair{none.get(), island}, Ends{{*none, here, profile_}, {all, here, profile_}});
        }
      }
  }

  // Predicted seconds per step at this fraction. about() interpolates the costs instead of counting them again.
  double seconds(double fraction) { return predict(plans(fraction), config(fraction), layout_, cluster_, profile_).seconds; }
  double about(double fraction) {
    StagePlans::Counted counted;
    for (const auto& [run, ends] : tasks_) counted.emplace(run, between(ends.none, ends.all, fraction));
    return predict(none_, config(0), layout_, cluster_, profile_, &counted).seconds;
  }

  // Largest fraction for which the offloaded activations of every rank fit in host memory.
  double most() {
    std::vector<Capacity> of_none;
    none_.each_rank(config(0), cluster_, [&](const Capacity& none, const Cluster&) { of_none.push_back(none); });
    double most = 1;
    auto rank = of_none.begin();
    all_.each_rank(config(1), cluster_, [&](const Capacity& all, const Cluster& island) {
      const Capacity& none = *rank++;
      const double host_capacity = island.host_memory_left(double(std::max(none.total(), all.total()))), least = double(none.host());
      require(least <= host_capacity, Exit::config,
              "activation.policy = memo: a rank offloads at least {:.1f} MiB, but the host of '{}' has room for {:.1f}; use activation.recompute = "
              "full with "
              "activation.policy = keep, shorter sequences, or more ranks",
              least / (1 << 20), island.name, std::max(0.0, host_capacity) / (1 << 20));
      if (double(all.host()) > host_capacity) most = std::min(most, (host_capacity - least) / (double(all.host()) - least));
    });
    return rounded_down(most);
  }

  // Candidates in ascending order: 0, the largest fraction that fits, and every fraction at which some task begins to
  // wait for its copies.
  std::vector<double> bounds(double most) const {
    std::set<double> fractions{0, most};
    for (const auto& [run, ends] : tasks_)
      for (const auto& [key, none] : ends.none.counts) {
        const CountedTasks::Count& all = ends.all.counts.at(key);
        const double slack = none.hides - none.copying, less = (all.copying - none.copying) - (all.hides - none.hides);
        if (less > 0) fractions.insert(std::min(most, rounded_down(slack / less)));
      }
    return {fractions.begin(), fractions.end()};
  }

 private:
  struct Ends {
    CountedTasks none, all;
  };
  EngineConfig config(double fraction) {
    run_.offload.find_alpha = false, run_.offload.alpha = fraction;
    return engine_config(run_, layout_);
  }
  StagePlans plans(double fraction) { return {config(fraction), layout_, runs_}; }

  RunConfig run_;
  const Layout& layout_;
  const Cluster& cluster_;
  const Profile* profile_;
  StageRuns& runs_;
  StagePlans none_, all_;  // dry runs with no rows and with all rows offloaded
  std::map<std::pair<const StageRun*, int>, Ends> tasks_;
};

// Fastest of the given ascending fractions, by binary search. The step time decreases up to the optimum and does not
// decrease after it.
double fastest(const std::vector<double>& fractions, const std::function<double(double)>& seconds) {
  std::size_t first = 0, last = fractions.size() - 1;
  while (first < last) {
    const std::size_t middle = (first + last) / 2;
    if (seconds(fractions[middle + 1]) < seconds(fractions[middle])) first = middle + 1;
    else last = middle;
  }
  return fractions[first];
}

}  // namespace

OffloadFraction best_fraction(RunConfig run, const Layout& layout, const Cluster& cluster, const Profile* profile, StageRuns* runs) {
  ensure(run.offload.on, "activation.alpha is to be chosen, but nothing is offloaded");
  StageRuns local_runs;
  FractionSearch fractions(std::move(run), layout, cluster, profile, runs ? *runs : local_runs);
  OffloadFraction best;
  best.most = fractions.most();
  best.alpha = fastest(fractions.bounds(best.most), [&](double fraction) { return fractions.about(fraction); });
  best.seconds = fractions.seconds(best.alpha);
  return best;
}

}  // namespace gyr
