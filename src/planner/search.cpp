// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <queue>

#include "src/config/layout_rules.hpp"
#include "src/planner/layout_floor.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;

// What is known of what waits. Of equal bounds the less certain comes first, so that all that might be as fast are predicted.
enum class Known { shape, shared, parts, layout, programs, prediction };

struct Waiting {
  double seconds = 0;  // at least
  Known known = Known::shape;
  LayoutChoice choice = {};
  std::size_t found = 0;  // place of a prediction
  bool operator>(const Waiting& other) const { return std::tie(seconds, known, choice) > std::tie(other.seconds, other.known, other.choice); }
};

double gibi(double bytes) { return bytes / double(1 << 30); }

class Search {
 public:
  Search(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile, int best, Pruning pruning)
      : run_(run), ranks_(ranks), cluster_(cluster), profile_(profile), best_(std::size_t(best)), pruning_(pruning),
        floor_(run, ranks, cluster, profile) {}

  SearchResult run() {
    const Clock::time_point begin = Clock::now();
    LayoutSpace space = space_of(run_, ranks_);
    result_.layouts = space.layouts;
    result_.by_rules = std::move(space.refusals);
    for (const LayoutChoice& shape : space.shapes) put_shape(shape);
    while (!line_.empty() && result_.best.size() < best_) {
      const Waiting next = line_.top();
      line_.pop();
      step(next);
    }
    if (!line_.empty()) result_.least_slower = line_.top().seconds;
    result_.slower = result_.layouts - result_.by_rules.layouts() - result_.by_memory.layouts() - double(result_.predicted);
    result_.dry_runs = floor_.dry_runs() + runs_.count();
    result_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return std::move(result_);
  }

 private:
  void step(const Waiting& next) {
    switch (next.known) {
      case Known::shape: return put_shared(next.choice, next.seconds);
      case Known::shared: return put_parts(next.choice, next.seconds);
      case Known::parts: return put_layouts(next.choice, next.seconds);
      case Known::layout: return put_programs(next.choice, next.seconds);
      case Known::programs: return put_prediction(next.choice);
      case Known::prediction: result_.best.push_back(found_[next.found]);
    }
  }

  void put_shape(const LayoutChoice& shape) {
    if (pruning_ == Pruning::none) {
      for (const LayoutChoice& c : variants_of(run_, shape)) line_.push({0, Known::layout, c});
      return;
    }
    const double layouts = double(variants_of(run_, shape).size());
    try {
      const LayoutFloor::Floor floor = floor_.of_shape(shape);
      if (floor.bytes > cluster_.device.memory)
        return too_large("weights, gradients and optimizer states, cut as far as they can be, take", floor.bytes, layouts);
      line_.push({floor.seconds, Known::shape, shape});
    } catch (const Error& e) {
      refuse(e, layouts);
    }
  }

  void put_shared(const LayoutChoice& shape, double seconds) {
    if (shape.context == 1 && shape.micro_batch_size == 1) return put_parts(shape, seconds);
    try {
      line_.push({std::max(seconds, floor_.of_shared(shape).seconds), Known::shared, shape});
    } catch (const Error& e) {
      refuse(e, double(variants_of(run_, shape).size()));
    }
  }

  // What keeps more is faster, all else being equal, and comes first.
  void put_parts(LayoutChoice shape, double seconds) {
    shape.recompute = recomputations_of(run_).front();
    line_.push({seconds, Known::parts, shape});
  }

  void put_layouts(const LayoutChoice& parts, double seconds) {
    double least = std::numeric_limits<double>::infinity();
    try {
      for (LayoutChoice c : variants_of(run_, parts)) {
        if (c.recompute != parts.recompute) continue;
        const LayoutFloor::Floor floor = floor_.of(c);
        least = std::min(least, floor.seconds);
        if (floor.bytes > cluster_.device.memory) too_large("weights, gradients, optimizer states and what layers keep take", floor.bytes, 1);
        else line_.push({std::max(seconds, floor.seconds), Known::layout, c});
      }
    } catch (const Error& e) {
      refuse(e, double(schedules_of(run_, parts, micros_of(run_, parts)).size() * shards_of(run_, parts).size()));
      least = seconds;
    }
    const std::vector<int> all = recomputations_of(run_);
    const auto next = std::upper_bound(all.begin(), all.end(), parts.recompute);
    if (next == all.end()) return;
    LayoutChoice more = parts;
    more.recompute = *next;
    line_.push({std::max(seconds, least), Known::parts, more});
  }

  void put_programs(const LayoutChoice& c, double seconds) {
    if (pruning_ == Pruning::none) return put_prediction(c);
    try {
      const LayoutFloor::Floor floor = floor_.of_programs(c);
      if (floor.bytes > cluster_.device.memory) too_large("weights, gradients, optimizer states and what layers keep take", floor.bytes, 1);
      else line_.push({std::max(seconds, floor.seconds), Known::programs, c});
    } catch (const Error& e) {
      refuse(e, 1);
    }
  }

  void put_prediction(const LayoutChoice& c) {
    ++result_.predicted;
    try {
      const RunConfig run = with(run_, c);
      const Layout layout = layout_by_rules(run, ranks_);
      const EngineConfig config = engine_config(run, layout);
      const StagePlans plans(config, layout, runs_);
      const Index bytes = plans.fullest(config).bytes;
      if (double(bytes) > cluster_.device.memory) {
        --result_.predicted;
        return too_large("a rank takes", double(bytes), 1);
      }
      const Prediction prediction = predict(plans, config, layout, cluster_, profile_, &counted_);
      found_.push_back({c, prediction, bytes});
      line_.push({prediction.seconds, Known::prediction, c, found_.size() - 1});
    } catch (const Error& e) {
      --result_.predicted;
      refuse(e, 1);
    }
  }

  void too_large(const char* what, double bytes, double layouts) {
    const double has = gibi(cluster_.device.memory);
    result_.by_memory.add(result_.by_memory.reason(fmt::format("{} {:.0f} GiB, {:.0f} more than the {:.0f} of a device", what, std::ceil(gibi(bytes)),
                                                               std::ceil(gibi(bytes) - has), has)),
                          layouts);
  }

  void refuse(const Error& e, double layouts) {
    if (e.code != Exit::config) throw e;
    result_.by_rules.add(result_.by_rules.reason(e.what()), layouts);
  }

  const RunConfig& run_;
  int ranks_;
  const Cluster& cluster_;
  const Profile* profile_;
  std::size_t best_;
  Pruning pruning_;
  LayoutFloor floor_;
  StageRuns runs_;
  StagePlans::Counted counted_;
  std::vector<FoundLayout> found_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> line_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile, int best, Pruning pruning) {
  check_room(cluster, ranks);
  require(!run.swap.on, Exit::config,
          "activation.policy: a search for layouts knows nothing of what is swapped; name the layout, or leave the policy out");
  require(cluster.parts.empty() && run.parallel.islands.empty(), Exit::config,
          "a search knows no islands that differ; name a description of one of them, or give the layout in the deck and leave out --explain and "
          "parallel.plan = auto");
  return Search(run, ranks, cluster, profile, best, pruning).run();
}

}  // namespace gyr
