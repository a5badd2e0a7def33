// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/generation_times.hpp"

#include <algorithm>
#include <set>

#include "src/planner/machine/collective.hpp"

namespace gyr {

namespace {

// A generator in a dry run, whose passes are timed one by one.
class TimedPasses {
 public:
  TimedPasses(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits, int position, const PassMachine& machine)
      : place_(place), position_(position), machine_(machine), grid_(Grid::dry_run(place.layout, position)),
        generator_(Generator::dry_run(model, place.precision, grid_, limits)) {}

  template <class Pass>
  PassTime of(PassKind kind, const Pass& pass) {
    generator_->device().launch_counts.clear();
    grid_.visit([](Communicator& c) { c.clear_traffic(); });
    pass(*generator_);
    return pass_time(generator_->device().launch_counts, traffic_of(grid_), {place_.layout, place_.mesh}, position_, place_.precision, kind,
                     machine_);
  }
  GeneratorBytes bytes() const { return generator_->dry_bytes(); }

 private:
  const GenerationPlace& place_;
  int position_;
  const PassMachine& machine_;
  Grid grid_;
  std::unique_ptr<Generator> generator_;
};

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
                                 bool exact, const PassMachine& machine)
    : place_(place), limits_(limits), answers_(answers), exact_(exact) {
  for (Index n = 1; n < limits.sequences; n *= 2) sequences_.push_back(n);
  sequences_.push_back(limits.sequences);
  past_ = {double(answers.prompt_tokens), double(std::max(answers.prompt_tokens + 1, answers.prompt_tokens + answers.tokens - 1))};
  passes_.resize(sequences_.size(), {0, 0});
  for (int stage = 0; stage < place.layout.size(Axis::pipeline); ++stage) count(model, stage, machine);
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    for (double& seconds : passes_[i]) seconds += turn_seconds(sequences_[i], machine);
  prompt_ += turn_seconds(answers.group, machine);
}

// Adds the passes of a stage: those of the slower of its first and last tensor-parallel rank.
void GenerationTimes::count(const ModelConfig& model, int stage, const PassMachine& machine) {
  PassTime prompt, copy;
  std::vector<std::array<PassTime, 2>> passes(sequences_.size());
  GeneratorBytes most;
  GeneratorCapacity limits = limits_;
  limits.tokens = std::max<Index>(limits.tokens, 2);  // the second length has a further token
  for (const int position : ends_of_stage(place_.layout, stage)) {
    TimedPasses timed(model, place_, limits, position, machine);
    const std::vector<Token> tokens(std::size_t(answers_.prompt_tokens), 0);
    const std::vector<DrawPlace> places(std::size_t(answers_.group));
    const Sampling sampling{.exact = exact_, .rollouts = true};
    prompt = slower(prompt, timed.of(PassKind::prefill, [&](Generator& g) { g.read(0, tokens, sampling, places); }));
    if (answers_.group > 1) copy = slower(copy, timed.of(PassKind::prefill, [&](Generator& g) { g.copy(g.prefix_slot(), 0); }));
    for (std::size_t i = 0; i < sequences_.size(); ++i)
      for (std::size_t at = 0; at < past_.size(); ++at) {
        const std::vector<Generator::Step> steps(std::size_t(sequences_[i]), Generator::Step{0, Index(past_[at]), 1, {}});
        passes[i][at] = slower(passes[i][at], timed.of(PassKind::decode, [&](Generator& g) { g.decode(steps, sampling); }));
      }
    const GeneratorBytes bytes = timed.bytes();
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
