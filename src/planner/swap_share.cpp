// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/swap_share.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/planner/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

double rounded_down(double share) { return std::floor(std::clamp(share, 0.0, 1.0) * steps_of_share) / steps_of_share; }

class Shares {
 public:
  Shares(RunConfig run, const Layout& layout, const Cluster& cluster, const Profile* profile)
      : run_(std::move(run)), layout_(layout), cluster_(cluster), profile_(profile) {
    run_.swap.find_alpha = false;
  }

  EngineConfig config(double alpha) {
    run_.swap.alpha = alpha;
    return engine_config(run_, layout_);
  }
  StagePlans plans(double alpha) { return {config(alpha), layout_, runs_}; }
  double seconds(double alpha) { return predict(plans(alpha), config(alpha), layout_, cluster_, profile_).seconds; }

  // The largest that the host has room for.
  double most() {
    const StagePlans::Fullest none = plans(0).fullest(config(0)), all = plans(1).fullest(config(1));
    const double room = cluster_.room_on_host(double(std::max(none.bytes, all.bytes)));
    require(
        double(none.host) <= room, Exit::config,
        "activation.policy = memo: {:.1f} MiB are to lie on the host at least, and '{}' has room for {:.1f}; take activation.recompute = full with "
        "activation.policy = keep, shorter sequences, or more ranks",
        double(none.host) / (1 << 20), cluster_.name, std::max(0.0, room) / (1 << 20));
    return all.host > none.host ? (room - double(none.host)) / double(all.host - none.host) : 1;
  }

  // Those at which some task begins to wait for its copies.
  std::vector<double> bounds() {
    const StagePlans none = plans(0), all = plans(1);
    std::vector<double> shares;
    for (std::size_t stage = 0; stage < none.stages().size(); ++stage)
      for (std::size_t i = 0; i < none.stages()[stage].size(); ++i) {
        const CountedTasks of_none(*none.stages()[stage][i].second, cluster_, profile_), of_all(*all.stages()[stage][i].second, cluster_, profile_);
        for (const auto& [key, count] : of_none.counts) {
          const CountedTasks::Count& other = of_all.counts.at(key);
          const double slack = count.hides - count.copying, less = (other.copying - count.copying) - (other.hides - count.hides);
          if (less > 0) shares.push_back(slack / less);
        }
      }
    return shares;
  }

 private:
  RunConfig run_;
  const Layout& layout_;
  const Cluster& cluster_;
  const Profile* profile_;
  StageRuns runs_;
};

}  // namespace

SwapShare best_share(RunConfig run, const Layout& layout, const Cluster& cluster, const Profile* profile) {
  ensure(run.swap.on, "a share of what is not swapped");
  Shares shares(std::move(run), layout, cluster, profile);
  SwapShare best;
  best.most = rounded_down(shares.most());
  std::set<double> candidates{0, best.most};
  for (const double bound : shares.bounds()) candidates.insert(std::min(best.most, rounded_down(bound)));
  best.seconds = std::numeric_limits<double>::infinity();
  for (const double alpha : candidates)  // of those that take as long the least, which moves less
    if (const double seconds = shares.seconds(alpha); seconds < best.seconds) best.alpha = alpha, best.seconds = seconds;
  return best;
}

}  // namespace gyr
