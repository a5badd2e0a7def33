// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/generation_times.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "src/planner/machine/collective.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

namespace {

// Settings that the passes of a rank depend on.
std::string key_of(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits, int position) {
  const Layout& l = place.layout;
  return fmt::format("{} t{}/{} c{} a{} {} {} p{} n{} g{}", content_of(model, l, l.coordinate(position, Axis::pipeline)),
                     l.coordinate(position, Axis::tensor), l.size(Axis::tensor), l.size(Axis::context), l.attention_ranks, int(l.order),
                     name_of(place.precision), limits.prompt, limits.tokens, limits.samples);
}

// A generator in a dry run, whose passes are counted one by one.
class DryGenerator {
 public:
  DryGenerator(const ModelConfig& model, const GenerationPlace& place, GeneratorCapacity limits, const WantedPasses& wanted, int position)
      : wanted_(wanted), grid_(Grid::dry_run(place.layout, position)) {
    limits.tokens = std::max<Index>(limits.tokens, 2);  // the second length has a further token
    generator_ = Generator::dry_run(model, place.precision, grid_, limits);
    prompt(), decode(1, wanted.past.back());  // the first passes also clear the state of all layers
  }

  CountedPass prompt() {
    const std::vector<Token> tokens(std::size_t(wanted_.prompt), 0);
    const std::vector<DrawPlace> places(std::size_t(wanted_.group));
    return counted([&] { generator_->read(0, tokens, sampling(), places); });
  }
  CountedPass copy() {
    if (wanted_.group == 1) return {};
    return counted([&] { generator_->copy(generator_->prefix_slot(), 0); });
  }
  CountedPass decode(Index sequences, Index past) {
    const std::vector<Generator::Step> steps(std::size_t(sequences), Generator::Step{0, past, 1, {}});
    return counted([&] { generator_->decode(steps, sampling()); });
  }
  GeneratorBytes bytes() const { return generator_->dry_bytes(); }

 private:
  Sampling sampling() const { return {.exact = wanted_.exact, .rollouts = true}; }

  template <class Pass>
  CountedPass counted(const Pass& pass) {
    generator_->device().launch_counts.clear();
    grid_.visit([](Communicator& c) { c.clear_traffic(); });
    pass();
    CountedPass count{generator_->device().launch_counts, traffic_of(grid_)};
    std::erase_if(count.traffic, [](const CommunicatorTraffic& c) { return c.size == 1 || c.count.lines().empty(); });
    return count;
  }

  const WantedPasses& wanted_;
  Grid grid_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace

// The memory of a capacity is always that of the same passes, whatever the cache has.
const GenerationRun& GenerationRuns::of(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits,
                                        const WantedPasses& wanted, int position) {
  const auto [known, fresh] = runs_.try_emplace(key_of(model, place, limits, position));
  GenerationRun& run = known->second;
  std::optional<DryGenerator> dry;
  if (!run.bytes.contains(limits.sequences)) {
    dry.emplace(model, place, limits, wanted, position);
    run.prompt = dry->prompt(), run.copy = dry->copy();
    for (const Index past : wanted.past) run.decode[{limits.sequences, past}] = dry->decode(limits.sequences, past);
    run.bytes[limits.sequences] = dry->bytes();
  }
  for (const Index n : wanted.sequences)
    for (const Index past : wanted.past) {
      if (run.decode.contains({n, past})) continue;
      if (!dry) dry.emplace(model, place, limits, wanted, position);
      run.decode[{n, past}] = dry->decode(n, past);
    }
  return run;
}

namespace {

double sum(const PassTime& time) { return time.work + time.message; }

// First and last tensor-parallel rank of a stage.
std::set<int> ends_of_stage(const Layout& layout, int stage) {
  std::set<int> positions;
  for (const int tensor : {0, layout.size(Axis::tensor) - 1})
    positions.insert(layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? stage : axis == Axis::tensor ? tensor : 0; }));
  return positions;
}

}  // namespace

GenerationTimes::GenerationTimes(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits, const AnswerCounts& answers,
                                 bool exact, const PassMachine& machine, GenerationRuns* shared)
    : place_(place), limits_(limits), answers_(answers), exact_(exact) {
  for (Index n = 1; n < limits.sequences; n *= 2) sequences_.push_back(n);
  sequences_.push_back(limits.sequences);
  past_ = {double(answers.prompt_tokens), double(std::max(answers.prompt_tokens + 1, answers.prompt_tokens + answers.tokens - 1))};
  passes_.resize(sequences_.size(), {0, 0});
  GenerationRuns runs;
  for (int stage = 0; stage < place.layout.size(Axis::pipeline); ++stage) count(model, stage, machine, shared ? *shared : runs);
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    for (double& seconds : passes_[i]) seconds += turn_seconds(sequences_[i], machine);
  prompt_ += turn_seconds(answers.group, machine);
}

// Adds the passes of a stage: those of the slower of its first and last tensor-parallel rank.
void GenerationTimes::count(const ModelConfig& model, int stage, const PassMachine& machine, GenerationRuns& runs) {
  PassTime prompt, copy;
  std::vector<std::array<PassTime, 2>> passes(sequences_.size());
  GeneratorBytes most;
  const WantedPasses wanted{answers_.prompt_tokens, answers_.group, sequences_, {Index(past_[0]), Index(past_[1])}, exact_};
  for (const int position : ends_of_stage(place_.layout, stage)) {
    const GenerationRun& run = runs.of(model, place_, limits_, wanted, position);
    const auto add = [&](PassTime& time, const CountedPass& pass, PassKind kind) {
      const LayoutOnMesh there{place_.layout, place_.mesh};
      time = slower(time, pass_time(pass.launches, pass.traffic, there, position, place_.precision, kind, machine));
    };
    add(prompt, run.prompt, PassKind::prefill), add(copy, run.copy, PassKind::prefill);
    for (std::size_t i = 0; i < sequences_.size(); ++i)
      for (std::size_t at = 0; at < past_.size(); ++at) add(passes[i][at], run.decode.at({sequences_[i], wanted.past[at]}), PassKind::decode);
    const GeneratorBytes& bytes = run.bytes.at(limits_.sequences);
    if (bytes.weights + bytes.working > most.weights + most.working) most = bytes;
  }
  prompt_ += sum(prompt) + double(answers_.group) * sum(copy);
  for (std::size_t i = 0; i < passes.size(); ++i)
    for (std::size_t at = 0; at < past_.size(); ++at) passes_[i][at] += sum(passes[i][at]);
  bytes_.push_back(most);
}

// After a pass, all stages gather the drawn tokens from the last one: three doubles for each.
double GenerationTimes::turn_seconds(Index sequences, const PassMachine& machine) const {
  if (place_.layout.size(Axis::pipeline) == 1) return 0;
  std::vector<int> ranks = ranks_of(place_.layout, 0, Axes(Axis::pipeline).text());
  for (int& rank : ranks) rank = place_.mesh.ranks[std::size_t(rank)];
  const Index blocks = exact_ ? (sequences + few_rows - 1) / few_rows : 1;
  return seconds_of(Operation::all_gather, {blocks, sequences * 3 * Index(sizeof(double))}, placement_of(ranks, machine.cluster), machine.cluster);
}

double GenerationTimes::decode(Index sequences, double past) const {
  const double along = (past - past_[0]) / (past_[1] - past_[0]);
  const auto at = [&](std::size_t i) { return passes_[i][0] + along * (passes_[i][1] - passes_[i][0]); };
  const auto above = std::lower_bound(sequences_.begin(), sequences_.end(), sequences);
  ensure(above != sequences_.end() && sequences > 0, "{} sequences are not decoded together, but 1 to {}", sequences, sequences_.back());
  const std::size_t i = std::size_t(above - sequences_.begin());
  if (*above == sequences) return at(i);
  const double below = double(sequences_[i - 1]), fraction = (double(sequences) - below) / (double(sequences_[i]) - below);
  return at(i - 1) + fraction * (at(i) - at(i - 1));
}

double GenerationTimes::seconds() const {
  const Index coordinates = place_.layout.size(token_axes), prompts = (answers_.prompts + coordinates - 1) / coordinates;
  const double mean = double(answers_.prompt_tokens) + double(answers_.tokens - 2) / 2, steps = double(answers_.tokens - 1);
  double seconds = double(prompts) * prompt_;
  Index left = prompts * answers_.group;
  const Index waves = left / limits_.sequences;
  if (waves > 0) seconds += double(waves) * steps * decode(limits_.sequences, mean);
  left -= waves * limits_.sequences;
  return left > 0 ? seconds + steps * decode(left, mean) : seconds;
}

}  // namespace gyr
