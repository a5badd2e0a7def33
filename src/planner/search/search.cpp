// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/search/search.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>

#include "src/config/layout_rules.hpp"
#include "src/planner/bounds/layout_bound.hpp"
#include "src/planner/layouts/offload_fraction.hpp"
#include "src/planner/machine/run_islands.hpp"
#include "src/planner/search/neighbour_layouts.hpp"
#include "src/planner/search/search_time.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

// State of a queued candidate, from the coarsest bound to the prediction. Among equal bounds the less certain candidate
// comes first, so that every layout that might be as fast is predicted.
enum class Known { shape, offloading, shared, parts, layout, programs, prediction };

struct Waiting {
  double seconds = 0;  // lower bound of the step time
  Known known = Known::shape;
  LayoutChoice choice = {};
  double bytes = 0;       // lower bound of the memory of the rank that takes most
  std::size_t found = 0;  // index of the prediction in found_
  bool operator>(const Waiting& other) const { return std::tie(seconds, known, choice) > std::tie(other.seconds, other.known, other.choice); }
};

// Order of the queue: smallest bound first, or, when the search is ending, the tightest bounds first.
struct Later {
  bool ending = false;
  bool operator()(const Waiting& a, const Waiting& b) const {
    if (ending && a.known != b.known) return a.known < b.known;
    return a > b;
  }
};

struct Queue : std::priority_queue<Waiting, std::vector<Waiting>, Later> {
  using priority_queue::c;
  using priority_queue::priority_queue;
};

double gibi(double bytes) { return bytes / double(1 << 30); }

// Fastest layouts of those whose ranks take at most this memory.
struct Within {
  double usable;
  std::vector<FoundLayout> best;
};

// After the time limit, predictions take at least `least_ending` more seconds, or a quarter of the limit. If no layout fits
// by then, those with the least memory by a lower bound are tried for as long again.
constexpr double least_ending = 2;
constexpr std::size_t always_tried = 8;  // of those with the least memory

// A search that takes longer than this part of its time limit descends from some layouts with small bounds to better ones, so that a search
// that is ended knows good layouts. It descends until the time limit, or until
// SearchOptions::descent_seconds if that is later.
constexpr double descent_begins = 1.0 / 3;
constexpr std::size_t first_tried = 3, descents = 6, most_in_descent = 50;

class Search {
 public:
  Search(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile, const SearchOptions& options)
      : run_(run), ranks_(ranks), cluster_(cluster), profile_(profile), options_(options), best_(std::size_t(options.best)),
        floor_(run, cluster, profile), runs_(options.runs ? *options.runs : own_runs_), before_(runs_.count()) {
    for (const double part : options.memory_parts)
      within_.push_back({part < 1 ? part * cluster.device.usable() : std::numeric_limits<double>::infinity(), {}});
  }

  SearchResult run() {
    LayoutSpace space = space_of(run_, ranks_);
    result_.layouts = space.layouts;
    result_.by_rules = std::move(space.refusals);
    for (const LayoutChoice& shape : space.shapes) put_shape(shape), after_candidate();
    if (options_.place_within > 0) predict_own();
    while (!line_.empty() && (is_wanted(0) || places_own())) {
      if (!descended_ && seconds() > options_.seconds * descent_begins) descend(space.shapes);
      if (is_over()) {
        end_by_time(space.shapes);
        break;
      }
      const Waiting next = line_.top();
      const bool counts = is_wanted(next.bytes) || places_own();
      line_.pop();
      if (counts) step(next);
      after_candidate();
    }
    for (const Within& part : within_) result_.best_within.push_back(part.best);
    result_.best = within_.front().best;
    if (result_.own) end_of_places();
    if (!line_.empty() && result_.least_slower == 0) result_.least_slower = line_.top().seconds;
    result_.slower = result_.layouts - result_.by_rules.layouts() - result_.by_memory.layouts() - double(result_.predicted);
    result_.dry_runs = dry_runs();
    result_.seconds = seconds();
    return std::move(result_);
  }

 private:
  using Timed = std::pair<double, LayoutChoice>;  // seconds first

  double seconds() const { return time_.seconds(); }
  bool is_over() const { return seconds() > options_.seconds; }

  // True if a layout with a rank that takes at least these bytes may still be one of the fastest within a part of the memory.
  bool is_wanted(double bytes) const {
    return std::any_of(within_.begin(), within_.end(), [&](const Within& part) { return part.best.size() < best_ && bytes <= part.usable; });
  }
  // The same if these predictions are among the fastest.
  bool is_wanted_after(const std::vector<Waiting>& predicted, double bytes) const {
    return std::any_of(within_.begin(), within_.end(), [&](const Within& part) {
      const auto fits = [&](const Waiting& p) { return p.bytes <= part.usable; };
      const std::size_t more = std::size_t(std::count_if(predicted.begin(), predicted.end(), fits));
      return part.best.size() + more < best_ && bytes <= part.usable;
    });
  }

  // Predicts the candidates with the tightest bounds, until enough layouts of each part of the memory are known or the time for this is over too.
  void end_by_time(const std::vector<LayoutChoice>& shapes) {
    result_.ended = true;
    const double limit = std::max(options_.seconds / 4, least_ending), begin = seconds();
    line_ = Queue(Later{true}, std::move(line_.c));
    std::vector<Waiting> predicted;
    double least = std::numeric_limits<double>::infinity();
    while (!line_.empty() && is_wanted_after(predicted, 0)) {
      if (seconds() - begin > limit) break;
      const Waiting next = line_.top();
      line_.pop();
      if (next.known == Known::prediction) predicted.push_back(next);
      else if (is_wanted_after(predicted, next.bytes)) step(next);
      else least = std::min(least, next.seconds);
      after_candidate();
    }
    if (found_.empty()) predict_smallest(shapes, limit);
    for (const Waiting& left : line_.c)
      if (left.known == Known::prediction) predicted.push_back(left);
      else least = std::min(least, left.seconds);
    result_.ended = least < std::numeric_limits<double>::infinity();  // false if every layout was considered
    if (result_.ended) result_.least_slower = least;
    add_own(predicted);
    std::sort(predicted.begin(), predicted.end(), [](const Waiting& a, const Waiting& b) { return b > a; });
    for (const Waiting& p : predicted) rank(found_[p.found]);
  }

  // Descends within each part of the memory, for an equal time.
  void descend(const std::vector<LayoutChoice>& shapes) {
    descended_ = true;
    std::vector<LayoutChoice> roomy;
    for (const auto& [left, c] : by_least_memory(shapes)) roomy.push_back(c);
    const double end = std::max(options_.seconds, options_.descent_seconds);
    for (std::size_t i = 0; i < within_.size(); ++i) {
      descent_ends_ = seconds() + (end - seconds()) / double(within_.size() - i);
      descend(roomy, shapes, within_[i].usable);
    }
  }

  // Predicts layouts ahead of their turn: for every size of pipeline and context, one with a small bound, and those to which the
  // fastest of them lead by single changes.
  void descend(const std::vector<LayoutChoice>& roomy, const std::vector<LayoutChoice>& shapes, double usable) {
    using Sizes = std::pair<int, int>;  // of pipeline and context
    std::map<Sizes, std::size_t> tried;
    std::map<Sizes, Timed> fastest;
    for (const auto& [bound, c] : by_bound(roomy, usable)) {
      if (seconds() > descent_ends_) return;
      const Sizes sizes{c.pipeline, c.context};
      if (fastest.contains(sizes) || ++tried[sizes] > first_tried) continue;
      if (const auto seconds = predict_early(c, usable)) fastest.emplace(sizes, Timed{*seconds, c});
    }
    std::vector<Timed> starts;
    for (const auto& [sizes, start] : fastest) starts.push_back(start);
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 0; i < std::min(starts.size(), descents); ++i) descend_from(starts[i], shapes, usable);
  }

  void descend_from(Timed at, const std::vector<LayoutChoice>& shapes, double usable) {
    std::size_t tried = 0;
    const auto step = [&] {
      for (const auto& [bound, c] : by_bound(neighbours_of(run_, at.second, shapes), usable)) {
        if (bound >= at.first || tried >= most_in_descent || this->seconds() > descent_ends_) return false;
        tried += !predictions_.contains(c);
        if (const auto seconds = predict_early(c, usable); seconds && *seconds < at.first) return at = {*seconds, c}, true;
      }
      return false;
    };
    while (step()) continue;
  }

  // The layouts whose lower bound fits in `usable` memory, with the lower bound of their time, smallest first.
  std::vector<Timed> by_bound(const std::vector<LayoutChoice>& layouts, double usable) {
    std::vector<Timed> all;
    for (const LayoutChoice& c : layouts) {
      try {
        if (const LayoutBound::Floor floor = floor_.of(c); !floor.taken.lacks() && floor.taken.bytes <= usable) all.emplace_back(floor.seconds, c);
      } catch (const Error& e) {
        if (e.code != Exit::config) throw;
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  // Predicts a layout ahead of its turn; its seconds, or nothing if it cannot run in `usable` memory. The queue passes over it later. Why a
  // layout cannot run is recorded when the queue reaches it.
  std::optional<double> predict_early(const LayoutChoice& c, double usable) {
    after_candidate();
    const auto [known, fresh] = predictions_.try_emplace(c);
    try {
      if (fresh)
        if (const Evaluated evaluated = evaluated_layout(c); !evaluated.taken.lacks()) known->second = put_found(evaluated.found);
    } catch (const Error& e) {
      if (e.code != Exit::config) throw;
    }
    return known->second && double(found_[*known->second].bytes) <= usable ? std::optional(found_[*known->second].prediction.seconds) : std::nullopt;
  }

  // Adds the deck's own layout to the predicted ones, if it fits and is not among them.
  void add_own(std::vector<Waiting>& predicted) {
    if (!result_.own || !result_.own->found) return;
    const FoundLayout& own = *result_.own->found;
    if (std::any_of(found_.begin(), found_.end(), [&](const FoundLayout& f) { return f.choice == own.choice; })) return;
    found_.push_back(own), ++result_.predicted;
    predicted.push_back(waiting(found_.size() - 1));
  }

  void step(const Waiting& next) {
    switch (next.known) {
      case Known::shape: return run_.offload.on ? put_offloading(next) : put_shared(next);
      case Known::offloading: return put_shared(next);
      case Known::shared: return line_.push({next.seconds, Known::parts, next.choice, next.bytes});
      case Known::parts: return put_layouts(next);
      case Known::layout: return put_programs(next);
      case Known::programs: return put_prediction(next.choice);
      case Known::prediction: return rank(found_[next.found]);
    }
  }

  // Predicts the layouts that take least memory by the lower bound, until one fits or the seconds are over.
  void predict_smallest(const std::vector<LayoutChoice>& shapes, double seconds_left) {
    const double end = seconds() + seconds_left;
    std::size_t tried = 0;
    for (const auto& [left, smallest] : by_least_memory(shapes)) {
      if (!found_.empty() || (++tried > always_tried && seconds() > end)) return;
      put_prediction(smallest);
      after_candidate();
    }
  }

  // Layouts that may fit, ordered by the memory that their lower bound leaves, most first. Of a shape and a sharding
  // level only the one that keeps the fewest activations is considered, with the smallest micro-batch.
  std::vector<std::pair<double, LayoutChoice>> by_least_memory(const std::vector<LayoutChoice>& shapes) {
    Index smallest = std::numeric_limits<Index>::max();
    for (const LayoutChoice& shape : shapes) smallest = std::min(smallest, shape.micro_batch_size);
    std::vector<std::pair<double, LayoutChoice>> all;
    for (LayoutChoice c : shapes) {
      if (c.micro_batch_size != smallest) continue;
      c.recompute = recomputations_of(run_).back();
      for (const Shard shard : shards_of(run_, c)) {
        c.shard = shard;
        try {
          const MemoryTaken taken = floor_.of(c).taken;
          if (!taken.lacks()) all.emplace_back(taken.of_device.takes - taken.of_device.has, c);
        } catch (const Error& e) {
          if (e.code != Exit::config) throw;
        }
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  void rank(const FoundLayout& found) {
    for (Within& part : within_)
      if (part.best.size() < best_ && double(found.bytes) <= part.usable) part.best.push_back(found);
    ++ranked_;
    if (OwnLayout* own = result_.own ? &*result_.own : nullptr; own && own->found && own->place == 0 && !precedes(found, *own->found))
      own->place = ranked_;
  }

  // True if `a` is ranked before `b`. The deck's own layout is ranked as the search writes it.
  static bool precedes(const FoundLayout& a, const FoundLayout& b) {
    return std::tie(a.prediction.seconds, a.choice) < std::tie(b.prediction.seconds, b.choice);
  }

  // True while a layout may exist that is ranked before the deck's own, and few enough are ranked.
  bool places_own() const {
    if (!result_.own) return false;
    const OwnLayout& own = *result_.own;
    return own.found && own.place == 0 && ranked_ < options_.place_within && line_.top().seconds <= own.found->prediction.seconds;
  }

  void end_of_places() {
    OwnLayout& own = *result_.own;
    own.ranked = ranked_;
    if (result_.ended && own.found && own.found->prediction.seconds >= result_.least_slower) own.place = 0;  // another layout may precede it
    if (!own.found || own.place > 0 || result_.ended) return;
    const bool none_before = line_.empty() || line_.top().seconds > own.found->prediction.seconds;
    if (none_before) own.place = ranked_ + 1;
  }

  void predict_own() {
    OwnLayout& own = result_.own.emplace();
    try {
      const Layout layout = layout_by_rules(run_, ranks_);
      own.choice = in_search_form(run_, choice_of(run_, layout));
      Evaluated evaluated = evaluate(run_, own.choice, layout);
      if (evaluated.taken.lacks()) own.refused = text_of("a rank takes", evaluated.taken);
      else own.found = std::move(evaluated.found);
    } catch (const Error& e) {
      if (e.code != Exit::config) throw;
      own.refused = e.what();
    }
  }

  // Number of layouts of a shape, and number of those with one recomputation setting.
  double layouts_of(const LayoutChoice& shape) const { return double(variants_of(run_, shape).size()); }
  double layouts_per_recomputation(const LayoutChoice& shape) const { return layouts_of(shape) / double(recomputations_of(run_).size()); }
  double waiting_with(const LayoutChoice& shape) const { return run_.offload.on ? layouts_per_recomputation(shape) : layouts_of(shape); }

  std::size_t dry_runs() const { return result_.dry_runs + floor_.dry_runs() + runs_.count() - before_; }

  SearchProgress progress() const {
    return {result_.layouts,     ranked_,          result_.predicted, dry_runs(), result_.by_memory.layouts(), result_.ended,
            result_.least.takes, result_.least.has};
  }

  void after_candidate() const {
    if (options_.watch) options_.watch(progress());
    require(line_.size() <= options_.waiting, Exit::config,
            "the layout search has {} candidates in its queue, more than fit in memory, because their bounds are too close; fix some of the settings "
            "that it chooses with parallel.keep",
            line_.size());
  }

  void put_shape(const LayoutChoice& shape) {
    if (options_.pruning == Pruning::none) {
      for (const LayoutChoice& c : variants_of(run_, shape)) line_.push({0, Known::layout, c});
      return;
    }
    try {
      const LayoutBound::Floor floor = floor_.of_shape(shape);
      if (!is_too_large("weights, gradients and optimizer states, sharded as far as possible, take", floor.taken, layouts_of(shape)))
        line_.push({floor.seconds, Known::shape, shape, floor.taken.bytes});
    } catch (const Error& e) {
      refuse(e, layouts_of(shape));
    }
  }

  // Without offload, a layout that keeps more activations is faster, all else being equal, so layouts that keep less
  // are queued after it. With offload this does not hold, and each recomputation setting is queued separately.
  void put_offloading(const Waiting& next) {
    LayoutChoice shape = next.choice;
    for (const int recompute : recomputations_of(run_)) {
      shape.recompute = recompute;
      try {
        line_.push({std::max(next.seconds, floor_.of_offloading(shape).seconds), Known::offloading, shape, next.bytes});
      } catch (const Error& e) {
        refuse(e, layouts_per_recomputation(shape));
      }
    }
  }

  void put_shared(const Waiting& next) {
    const LayoutChoice& shape = next.choice;
    if (shape.context == 1 && shape.micro_batch_size == 1) return line_.push({next.seconds, Known::parts, shape, next.bytes});
    try {
      line_.push({std::max(next.seconds, floor_.of_shared(shape).seconds), Known::shared, shape, next.bytes});
    } catch (const Error& e) {
      refuse(e, waiting_with(shape));
    }
  }

  void put_layouts(const Waiting& next) {
    const LayoutChoice& parts = next.choice;
    double least = std::numeric_limits<double>::infinity();
    try {
      for (LayoutChoice c : variants_of(run_, parts)) {
        if (c.recompute != parts.recompute) continue;
        const LayoutBound::Floor floor = floor_.of(c);
        least = std::min(least, floor.seconds);
        if (!is_too_large(of_parts, floor.taken, 1)) line_.push({std::max(next.seconds, floor.seconds), Known::layout, c, floor.taken.bytes});
      }
    } catch (const Error& e) {
      refuse(e, double(schedules_of(run_, parts, micros_of(run_, parts)).size() * shards_of(run_, parts).size()));
      least = next.seconds;
    }
    if (run_.offload.on) return;
    const std::vector<int> all = recomputations_of(run_);
    const auto later = std::upper_bound(all.begin(), all.end(), parts.recompute);
    if (later == all.end()) return;
    LayoutChoice more = parts;
    more.recompute = *later;
    line_.push({std::max(next.seconds, least), Known::parts, more, next.bytes});
  }

  void put_programs(const Waiting& next) {
    const LayoutChoice& c = next.choice;
    if (options_.pruning == Pruning::none) return put_prediction(c);
    try {
      const LayoutBound::Floor floor = floor_.of_programs(c);
      if (!is_too_large(of_parts, floor.taken, 1)) line_.push({std::max(next.seconds, floor.seconds), Known::programs, c, floor.taken.bytes});
    } catch (const Error& e) {
      refuse(e, 1);
    }
  }

  struct Evaluated {
    MemoryTaken taken;
    FoundLayout found;  // without a prediction if the layout does not fit
  };

  // Plans and predicts a layout of `run`. If the deck leaves activation.alpha to the search, it is chosen first.
  Evaluated evaluate(RunConfig run, LayoutChoice& c, const Layout& layout) {
    forget();
    if (run.offload.find_alpha) {
      c.alpha = int(best_fraction(run, layout, cluster_, profile_, &runs_).alpha * alpha_steps);
      run.offload.alpha = c.offload_fraction(), run.offload.find_alpha = false;
    }
    const EngineConfig config = engine_config(run, layout);
    const StagePlans plans(config, layout, runs_);
    Evaluated e{plans.taken(config, cluster_), {}};
    e.found = {c, {}, Index(e.taken.bytes), Index(e.taken.host)};
    if (!e.taken.lacks()) e.found.prediction = predict(plans, config, layout, cluster_, profile_, &counted_);
    return e;
  }

  Evaluated evaluated_layout(LayoutChoice c) {
    const RunConfig run = with(run_, c);
    return evaluate(run, c, layout_by_rules(run, ranks_));
  }

  void put_prediction(const LayoutChoice& c) {
    std::optional<std::size_t>& known = predictions_[c];
    if (known) return;
    try {
      const Evaluated evaluated = evaluated_layout(c);
      if (!is_too_large("a rank takes", evaluated.taken, 1)) known = put_found(evaluated.found);
    } catch (const Error& e) {
      refuse(e, 1);
    }
  }

  Waiting waiting(std::size_t index) const {
    const FoundLayout& found = found_[index];
    return {found.prediction.seconds, Known::prediction, found.choice, double(found.bytes), index};
  }

  // Index of a new prediction.
  std::size_t put_found(const FoundLayout& found) {
    ++result_.predicted;
    found_.push_back(found);
    line_.push(waiting(found_.size() - 1));
    return found_.size() - 1;
  }

  // The dry runs are reused by other layouts. The cache is cleared when it exceeds a limit.
  void forget() {
    constexpr std::size_t most_runs = 2000;
    if (runs_.count() < most_runs) return;
    result_.dry_runs += runs_.count() - before_;
    counted_.clear(), runs_ = {}, before_ = 0;
  }

  // Reason why a layout that takes this memory does not fit.
  static std::string text_of(const char* what, const MemoryTaken& taken) {
    const bool device = taken.of_device.lacks();
    const MemoryTaken::Usage& usage = device ? taken.of_device : taken.of_host;
    const double has = gibi(usage.has), asked = gibi(usage.takes), unit = asked - has < 10 ? 0.1 : 1;
    const auto up = [&](double gib) { return std::ceil(gib / unit) * unit; };
    return fmt::format("{} {:.5g} GiB, {:.5g} GiB more than the {:.5g} GiB of a {}{}", device ? what : "the activations that a rank offloads take",
                       up(asked), up(asked - has), has, device ? "device" : "host",
                       usage.reserve > 0 ? fmt::format(" without its reserve of {:g} GiB", gibi(usage.reserve)) : "");
  }

  // True if a rank exceeds the memory of its device or its host. The reason is then recorded.
  bool is_too_large(const char* what, const MemoryTaken& taken, double layouts) {
    if (!taken.lacks()) return false;
    result_.by_memory.add(result_.by_memory.reason(text_of(what, taken)), layouts);
    if (taken.of_device.lacks_reserve_only()) result_.by_reserve += layouts;
    keep_least(taken);
    return true;
  }
  void keep_least(const MemoryTaken& taken) {
    const MemoryTaken::Usage& device = taken.of_device;
    if (device.lacks() && (result_.least.takes == 0 || device.takes < result_.least.takes)) result_.least = device;
  }
  static constexpr const char* of_parts = "weights, gradients, optimizer states and kept activations take";

  void refuse(const Error& e, double layouts) {
    if (e.code != Exit::config) throw e;
    result_.by_rules.add(result_.by_rules.reason(e.what()), layouts);
  }

  const RunConfig& run_;
  int ranks_;
  const Cluster& cluster_;
  const Profile* profile_;
  const SearchOptions& options_;
  const SearchTime time_;
  std::size_t best_, ranked_ = 0;
  LayoutBound floor_;
  StageRuns own_runs_, &runs_;
  std::size_t before_;  // dry runs of earlier searches
  StagePlans::Counted counted_;
  std::vector<FoundLayout> found_;
  std::vector<Within> within_;  // by part of the memory
  bool descended_ = false;
  double descent_ends_ = 0;
  std::map<LayoutChoice, std::optional<std::size_t>> predictions_;  // of the layouts that were evaluated, in found_; nothing: cannot run
  Queue line_{Later{false}};
  SearchResult result_;
};

}  // namespace

SearchResult search(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile, const SearchOptions& options) {
  // Throws Exit::config if the host bandwidth of an island is unknown.
  for (int island = 0; island < cluster.different_islands() && run.offload.on; ++island) seconds_of_copies(0, cluster.island(island));
  const RunConfig there = on_cluster(run, cluster, ranks);
  SearchResult result = Search(there, ranks, cluster, profile, options).run();
  result.islands = there.parallel.islands;
  return result;
}

}  // namespace gyr
