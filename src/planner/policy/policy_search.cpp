// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/policy_search.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "src/base/precision.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/policy/copy_candidates.hpp"
#include "src/planner/policy/heuristic.hpp"
#include "src/planner/policy/part_of_calls.hpp"
#include "src/planner/search/search_time.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr {

namespace {

// Calls a function; empty if a rule of the deck refuses its settings.
template <class Function>
auto unless_refused(const Function& f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code != Exit::config) throw;
    return {};
  }
}

struct TrainingCandidate {
  LayoutChoice choice;
  RunConfig run;
  Layout layout;
};

// Copies of one kind take the same seconds and memory on their ranks.
struct CopyCandidate {
  GenerationLayout settings;
  GenerationPlace place;
  std::string kind;
};

std::string kind_of(const GenerationPlace& place, const Cluster& cluster) {
  return fmt::format("{} {} {}", place.layout.text(), name_of(place.precision), cluster.parts.empty() ? "" : place.mesh.text());
}

std::string place_text(const GenerationPlace& place, int ranks, const RunConfig& run) {
  std::string text = place.layout.text();
  if (place.precision != precision_of(run.train.precision)) text += fmt::format(", {}", name_of(place.precision));
  return text + (place.mesh.size() < ranks ? " on " + place.mesh.text() : "");
}

// Layouts of training between which the weights of generation move alike.
std::string move_key(const Layout& training, const GenerationPlace& place, DType precision) {
  std::string stages;
  for (const Span& stage : training.stages) stages += fmt::format(" {}", stage.last);
  // Only weights of another precision come from the fp32 master weights, which ZeRO shards.
  const Shard shard = precision != place.precision || training.zero_shard() == Shard::weights ? training.zero_shard() : Shard::none;
  return fmt::format("{} {} {}{}", training.text(), int(shard), training.attention_ranks, stages);
}

// Seconds that the search for layouts of training may descend, even if its share of the time limit is shorter. Without descents it finds
// slower layouts.
constexpr double least_descent = 10;

class TimeLimit {
 public:
  explicit TimeLimit(double seconds) : limit_(seconds) {}
  double seconds() const { return time_.seconds(); }
  bool is_over() const { return seconds() > limit_; }
  // From now on at least this time is left.
  void leave(double seconds_left) { limit_ = std::max(limit_, seconds() + seconds_left); }

 private:
  double limit_;
  SearchTime time_;
};

class PolicySearch {
 public:
  PolicySearch(const RunConfig& run, int ranks, const PassMachine& machine, std::shared_ptr<CallRuns> runs, const TimeLimit& time)
      : run_(run), ranks_(ranks), machine_(machine), answers_(planned_answers(run)), runs_(std::move(runs)), time_(time) {
    space_.usable = usable_bytes(machine.cluster, ranks);
    space_.others = [this](std::size_t t) { return others(t); };
    space_.is_needless = [this](std::size_t t, std::size_t c) { return has_layout_of(candidates_[t], copies_[c].place); };
    space_.move_seconds = [this](std::size_t t, std::size_t c) { return move_seconds(t, c); };
    space_.is_left_out = [this](std::size_t t, std::optional<std::size_t> c) { return time_.is_over() && !is_known(t, c); };
  }

  void add_layouts(const SearchOptions& given) {
    RunConfig alone = run_;
    alone.models.clear();
    SearchOptions options = given;
    options.place_within = 0, options.descent_seconds = least_descent, options.runs = &runs_->steps[""], options.seconds = given.seconds / 4;
    options.memory_parts = {1, 0.6, 0.36, 0.22};  // the rest is left for generation and further models
    const SearchResult result = search(alone, ranks_, machine_.cluster, machine_.profile, options);
    layouts_ended_ = result.ended;
    for (const std::vector<FoundLayout>& best : result.best_within)
      for (const FoundLayout& found : best) add_layout(found.choice);
    if (const auto own = unless_refused([&] { return choice_of(run_, layout_of(run_, ranks_)); })) add_layout(*own);
  }

  // Adds a layout of training, unless it is known or a rule refuses it.
  void add_layout(const LayoutChoice& choice) {
    for (const TrainingCandidate& known : candidates_)
      if (known.choice == choice) return;
    RunConfig run = with(run_, choice);
    const auto candidate = unless_refused([&] { return TrainingCandidate{choice, run, layout_of(run, ranks_)}; });
    const auto part = candidate ? unless_refused([&] { return part_of({calls_of(*candidate).training()}); }) : std::nullopt;
    if (!part) return void(++refused_);
    candidates_.push_back(*candidate), space_.training.push_back(*part), space_.borrowed.push_back(borrowed(*candidate));
  }

  void add_copies() {
    if (candidates_.empty()) return;
    for (const GenerationLayout& settings : copy_candidates(run_, ranks_, machine_.cluster)) {
      if (time_.is_over()) {
        ++copies_left_out_;
        continue;
      }
      RunConfig run = candidates_.front().run;
      run.policy->generation = settings;
      const Layout& training = candidates_.front().layout;
      const auto place = unless_refused([&] { return generation_place(run, training); });
      const auto call = place ? unless_refused([&] { return generation(*place, run, training); }) : std::nullopt;
      if (!call) {
        ++refused_;
        continue;
      }
      copies_.push_back({settings, *place, kind_of(*place, machine_.cluster)}), space_.copies.push_back(part_of({*call}));
    }
  }

  PolicySearchResult result(const PolicySearchOptions& options) {
    PolicySearchResult result;
    do result.counts = fastest_pairs(space_, options.most);
    while (!time_.is_over() && measure(result.counts.best));
    result.layouts_ended = layouts_ended_, result.ended = result.counts.left_out > 0 || copies_left_out_ > 0;
    constexpr double none = std::numeric_limits<double>::infinity();
    result.least_left_out = result.counts.left_out > 0 ? result.counts.least_left_out : none;
    if (copies_left_out_ > 0)  // nothing is known of the seconds of their generation
      for (const PlanPart& training : space_.training) result.least_left_out = std::min(result.least_left_out, training.seconds);
    for (const LayoutPair& pair : result.counts.best) result.best.push_back(found(pair));
    result.layouts = Index(candidates_.size()), result.copies = Index(copies_.size()), result.refused = refused_;
    return result;
  }

 private:
  IterationCalls calls_of(const TrainingCandidate& c) { return {c.run, c.layout, answers_, machine_, runs_}; }

  // Calls of a candidate, after the last one is added.
  const IterationCalls& calls(std::size_t t) {
    auto known = calls_.find(t);
    if (known == calls_.end()) known = calls_.emplace(t, calls_of(candidates_[t])).first;
    return known->second;
  }

  PlanPart part_of(const std::vector<PlannedCall>& calls) const {
    PartOfCalls part(ranks_);
    part.add(calls);
    return part.part();
  }

  // Generation, on the ranks of this place.
  PlannedCall generation(const GenerationPlace& place, const RunConfig& run, const Layout& training) {
    const std::string kind = kind_of(place, machine_.cluster) + (place.borrows ? " borrows" : "");
    auto known = generations_.find(kind);
    if (known == generations_.end())
      known = generations_.emplace(kind, IterationCalls(run, training, answers_, machine_, runs_).generation(place)).first;
    PlannedCall call = known->second;
    call.mesh = place.mesh;
    return call;
  }

  bool has_layout_of(const TrainingCandidate& c, const GenerationPlace& place) const {
    const LayoutChoice& t = c.choice;
    return place.mesh.size() == ranks_ && place.precision == precision_of(run_.train.precision) && t.context == 1 && t.attention_ranks == 0 &&
           t.tensor == place.layout.size(Axis::tensor) && t.pipeline == place.layout.size(Axis::pipeline);
  }

  // Generation with the weights of training; empty if it is not possible, or if the deck names other ranks or another precision.
  std::optional<PlanPart> borrowed(const TrainingCandidate& c) {
    const GenerationLayout& g = run_.policy->generation;
    if (g.ranks != "all" || !g.precision.empty()) return {};
    RunConfig same = c.run;
    same.policy->generation = {};
    return unless_refused([&] { return part_of({generation(generation_place(same, c.layout), same, c.layout)}); });
  }

  // Replaces the memory of generation in these pairs, of which some passes have shown a lower bound, by that of prompts of all
  // lengths. False if it is known.
  bool measure(const std::vector<LayoutPair>& pairs) {
    bool changed = false;
    for (const LayoutPair& pair : pairs) {
      if (!measured_.insert({pair.copy ? 0 : pair.training, pair.copy}).second) continue;
      RunConfig same = candidates_[pair.training].run;
      same.policy->generation = {};
      const GenerationPlace place = pair.copy ? copies_[*pair.copy].place : generation_place(same, candidates_[pair.training].layout);
      PlanPart& part = pair.copy ? space_.copies[*pair.copy] : *space_.borrowed[pair.training];
      changed = measure(place, part) || changed;
    }
    return changed;
  }

  bool measure(const GenerationPlace& place, PlanPart& part) {
    const PlanPart before = part;
    const GeneratorCapacity limits = generator_capacity(run_, answers_.longest_prompt, place.layout);
    for (const int rank : place.mesh.ranks) {
      const int position = place.layout.position_of(*place.mesh.index_of(rank));
      const std::string at = fmt::format("{} {} {} {}", kind_of(place, machine_.cluster), place.borrows,
                                         place.layout.coordinate(position, Axis::pipeline), place.layout.coordinate(position, Axis::tensor));
      auto known = bytes_.find(at);
      if (known == bytes_.end()) known = bytes_.emplace(at, generation_bytes(run_.model, place, limits, rank)).first;
      part.kept[std::size_t(rank)] = double(known->second.weights), part.working[std::size_t(rank)] = double(known->second.working);
    }
    return part.kept != before.kept || part.working != before.working;
  }

  double move_seconds(std::size_t t, std::size_t c) {
    const GenerationPlace& place = copies_[c].place;
    const auto [known, fresh] = moves_.try_emplace({move_key(candidates_[t].layout, place, precision_of(run_.train.precision)), c});
    if (fresh) known->second = calls(t).move(place).seconds;
    return known->second;
  }

  // True if no dry run and no move is left to do for a pair.
  bool is_known(std::size_t t, std::optional<std::size_t> c) const {
    return others_.contains(key_of_others(t)) &&
           (!c || moves_.contains({move_key(candidates_[t].layout, copies_[*c].place, precision_of(run_.train.precision)), *c}));
  }

  std::string key_of_others(std::size_t t) const {
    const LayoutChoice& choice = candidates_[t].choice;
    return fmt::format("{} {} {} {}", choice.text(), int(choice.shard), choice.micro_batch_size, choice.recompute);
  }

  PlanPart others(std::size_t t) {
    const std::string key = key_of_others(t);
    if (const auto known = others_.find(key); known != others_.end()) return known->second;
    PartOfCalls part(ranks_);
    part.add(calls(t).rewards()), part.add(calls(t).scores()), part.add(calls(t).training_of_critic());
    if (auto old = calls(t).old_log_probs()) {
      for (CallMemory& memory : old->memory) memory.kept = 0;  // training keeps these weights
      part.add(*old);
    }
    return others_.emplace(key, part.part()).first->second;
  }

  FoundIteration found(const LayoutPair& pair) {
    const TrainingCandidate& c = candidates_[pair.training];
    FoundIteration f{.training = c.choice, .generation = {}, .place = {}, .run = c.run, .seconds = pair.seconds};
    f.bytes = pair.bytes, f.training_seconds = space_.training[pair.training].seconds, f.others_seconds = others(pair.training).seconds;
    f.generation_seconds = (pair.copy ? space_.copies[*pair.copy] : *space_.borrowed[pair.training]).seconds;
    f.move_seconds = pair.copy ? space_.move_seconds(pair.training, *pair.copy) : 0;
    if (pair.copy) f.generation = copies_[*pair.copy].settings, f.place = place_text(copies_[*pair.copy].place, ranks_, run_);
    f.run.policy->generation = f.generation;
    f.lines = deck_lines(c.choice, run_.parallel.keep, run_.parallel.islands);
    if (!pair.copy && !run_.policy->generation.own()) return f;
    const GenerationLayout& g = f.generation;
    f.lines.insert(f.lines.end(), {"rl.generate.ranks=" + g.ranks, fmt::format("rl.generate.pipeline={}", g.pipeline),
                                   fmt::format("rl.generate.tensor={}", g.tensor)});
    if (!g.precision.empty()) f.lines.push_back("rl.generate.precision=" + g.precision);
    return f;
  }

  const RunConfig& run_;
  int ranks_;
  PassMachine machine_;
  AnswerCounts answers_;
  std::shared_ptr<CallRuns> runs_;
  const TimeLimit& time_;
  std::vector<TrainingCandidate> candidates_;
  std::map<std::size_t, IterationCalls> calls_;
  std::vector<CopyCandidate> copies_;
  std::map<std::string, PlannedCall> generations_;                         // by kind
  std::map<std::string, GeneratorBytes> bytes_;                            // by kind, stage and tensor-parallel rank
  std::set<std::pair<std::size_t, std::optional<std::size_t>>> measured_;  // layout of training that is borrowed, or copy
  std::map<std::string, PlanPart> others_;
  std::map<std::pair<std::string, std::size_t>, double> moves_;  // by layout of training and copy
  PairSpace space_;
  Index refused_ = 0, copies_left_out_ = 0;
  bool layouts_ended_ = false;
};

// An iteration of a run whose calls are known.
std::optional<FoundIteration> iteration_of(const RunConfig& run, int ranks, const LayoutChoice& choice, const PassMachine& machine,
                                           std::shared_ptr<CallRuns> runs) {
  FoundIteration f{.training = choice, .generation = run.policy->generation, .place = {}, .run = with(run, choice)};
  const IterationTimes times = iteration_times(f.run, layout_of(f.run, ranks), machine, std::move(runs));
  PartOfCalls part(ranks);
  part.add(times.calls);
  const PlanPart all = part.part();
  const std::optional<double> bytes = bytes_that_fit({&all}, usable_bytes(machine.cluster, ranks));
  if (!bytes) return {};
  f.seconds = times.seconds(), f.training_seconds = times.seconds(CallPart::training), f.generation_seconds = times.seconds(CallPart::generation);
  f.move_seconds = times.seconds(CallPart::move), f.others_seconds = times.seconds(CallPart::others), f.bytes = *bytes;
  f.lines = deck_lines(choice, run.parallel.keep, run.parallel.islands), f.times = times;
  return f;
}

// Sets the memory by a dry run of all models. False if they do not fit.
bool set_bytes(FoundIteration& f, const BytesOfRun& bytes_of) {
  if (!bytes_of) return true;
  const auto bytes = unless_refused([&] { return bytes_of(f.run); });
  if (!bytes || !*bytes) return false;
  f.bytes = **bytes;
  return true;
}

std::optional<FoundIteration> heuristic_of(const RunConfig& run, int ranks, const PassMachine& machine, const std::shared_ptr<CallRuns>& runs,
                                           const BytesOfRun& bytes_of) {
  const RunConfig plain = in_one_layout(run);
  for (const LayoutChoice& choice : plain_layouts(run, ranks, machine.cluster)) {
    const auto fits = unless_refused([&] { return iteration_of(plain, ranks, choice, machine, runs); });
    if (!fits || !*fits) continue;
    FoundIteration f = **fits;
    if (!set_bytes(f, bytes_of)) continue;
    const std::vector<std::string> more = lines_of_one_layout(run);
    f.lines.insert(f.lines.end(), more.begin(), more.end());
    return f;
  }
  return {};
}

}  // namespace

PolicySearchResult policy_search(const RunConfig& run, int ranks, const PassMachine& machine, const PolicySearchOptions& options) {
  require(!run.policy->generation.separate, Exit::config,
          "rl.generate.separate: the search gives every rank a part in training; leave this key out, or plan the layouts of the deck without "
          "--explain");
  TimeLimit time(options.seconds);
  const auto runs = std::make_shared<CallRuns>();
  const std::optional<FoundIteration> heuristic = heuristic_of(run, ranks, machine, runs, options.bytes);
  PolicySearch search(run, ranks, machine, runs, time);
  if (heuristic) search.add_layout(heuristic->training);
  SearchOptions of_training = options.training;
  of_training.seconds = std::min(of_training.seconds, options.seconds);
  search.add_layouts(of_training);
  time.leave(options.seconds / 2);  // the search may have taken longer than its time
  search.add_copies();
  PolicySearchResult result = search.result(options);
  while (!result.best.empty() && !set_bytes(result.best.front(), options.bytes)) result.best.erase(result.best.begin());
  result.heuristic = heuristic;
  const bool is_faster = heuristic && (result.best.empty() || heuristic->seconds < result.best.front().seconds);
  if (is_faster) result.best.insert(result.best.begin(), *heuristic);
  if (!result.best.empty() && !result.best.front().times) {
    FoundIteration& first = result.best.front();
    first.times = iteration_times(first.run, layout_of(first.run, ranks), machine, runs);
  }
  result.seconds = time.seconds();
  return result;
}

}  // namespace gyr
