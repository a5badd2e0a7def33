// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/iteration_times.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "src/base/precision.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/planner/policy/forward_times.hpp"
#include "src/planner/policy/move_times.hpp"
#include "src/planner/predict/prediction.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/policy_generator.hpp"
#include "src/train/scoring_models.hpp"

namespace gyr {

namespace {

Index up_to_multiple(Index n, Index of) { return (n + of - 1) / of * of; }

// Mean tokens of the prompts; if the token files cannot be opened, the most that fit a window.
Index mean_prompt(const RunConfig& run, Index most) {
  try {
    const Prompts prompts({run.data.prefixes.begin(), run.data.prefixes.end()}, run.model.vocab_size);
    double tokens = 0;
    for (std::int64_t i = 0; i < prompts.size(); ++i) tokens += double(prompts.tokens(i).size());
    return std::max<Index>(1, Index(std::llround(tokens / double(prompts.size()))));
  } catch (const Error&) {
    return most;
  }
}

// By stage of a layout: the memory that a training step needs.
std::vector<CallMemory> memory_of_step(const StagePlans& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster) {
  std::vector<std::size_t> stages;  // of each visit below
  for (std::size_t stage = 0; stage < plans.stages().size(); ++stage)
    for (const auto& [position, run] : plans.stages()[stage]) stages.insert(stages.end(), on_islands(layout, position, cluster).size(), stage);
  std::vector<CallMemory> memory(plans.stages().size());
  auto stage = stages.begin();
  plans.each_rank(config, cluster, [&](const Capacity& capacity, const Cluster&) {
    CallMemory& most = memory[*stage++];
    if (capacity.total() > most.sum()) most = {capacity.total() - capacity.working(), capacity.working()};
  });
  return memory;
}

}  // namespace

Index PlannedCall::bytes() const {
  Index most = 0;
  for (const CallMemory& stage : memory) most = std::max(most, stage.sum());
  return most;
}

double IterationTimes::seconds() const {
  double sum = 0;
  for (const PlannedCall& call : calls) sum += call.seconds;
  if (!overlaps) return sum;
  const double moved = seconds(CallPart::move), generated = seconds(CallPart::generation);
  return moved + std::max(generated, sum - moved - generated);
}

double IterationTimes::seconds(CallPart part) const {
  double sum = 0;
  for (const PlannedCall& call : calls)
    if (call.part == part) sum += call.seconds;
  return sum;
}

CallTimeline call_timeline(const IterationTimes& times) {
  CallTimeline timeline{.spans = {}, .iterations = times.overlaps ? 2 : 1};
  timeline.seconds = timeline.iterations * times.seconds();
  const double moved = times.seconds(CallPart::move);
  for (int k = 0; k < timeline.iterations; ++k) {
    const double begin = k * times.seconds();
    double clock = begin, of_training = begin + moved;  // next call, and next one beside generation
    for (std::size_t i = 0; i < times.calls.size(); ++i) {
      const PlannedCall& call = times.calls[i];
      const bool generates = call.part == CallPart::generation;
      const bool beside = times.overlaps && !generates && call.part != CallPart::move;
      double& at = beside ? of_training : clock;
      timeline.spans.push_back({i, k + 1 + (times.overlaps && generates), at, at + call.seconds});
      at += call.seconds;
    }
  }
  return timeline;
}

IterationCalls::IterationCalls(const RunConfig& run, const Layout& training, const AnswerCounts& answers, const PassMachine& machine,
                               std::shared_ptr<CallRuns> runs)
    : run_(run), rl_(*run.policy), training_(training), everywhere_(training_ranks(run, ranks_of_run(run, training))), machine_(machine),
      runs_(runs ? std::move(runs) : std::make_shared<CallRuns>()), models_(placed_models(run, training.ranks())), answers_(answers),
      windows_(windows_of_minibatch(run, answers)) {}

bool IterationCalls::is_reward_model(const PlacedModel& m) const {
  const auto& names = rl_.loss.reward_models;
  return std::find(names.begin(), names.end(), m.use.name) != names.end();
}

PlannedCall IterationCalls::move(const GenerationPlace& place) const {
  const MovePlan moved =
      generation_moves(run_.model, precision_of(run_.train.precision), run_.optimizer.trained(), training_, place, int(machine_.cluster.per_node));
  return {.part = CallPart::move, .name = "move of the weights", .model = {}, .mesh = everywhere_, .seconds = move_seconds(moved, machine_.cluster)};
}

PlannedCall IterationCalls::generation(const GenerationPlace& place) const {
  const GeneratorCapacity limits = generator_capacity(run_, std::max(answers_.longest_prompt, answers_.prompt_tokens), place.layout);
  const GenerationTimes times(run_.model, place, limits, answers_, rl_.exact, machine_, &runs_->generation);
  PlannedCall call{
      .part = CallPart::generation, .name = "generation", .model = place.borrows ? "" : "generation", .mesh = place.mesh, .layout = place.layout};
  call.seconds = times.seconds(), call.tokens = double(answers_.answers() * answers_.tokens);
  for (const GeneratorBytes& bytes : times.bytes()) call.memory.push_back({place.borrows ? 0 : bytes.weights, bytes.working});
  return call;
}

std::vector<PlannedCall> IterationCalls::rewards() const {
  std::vector<PlannedCall> calls;
  for (const PlacedModel& m : models_)
    if (is_reward_model(m)) calls.push_back(forward("rewards of " + m.use.name, m.use.name, scoring_config(m), {m.layout, m.mesh}));
  if (rl_.plan.reward_seconds > 0) calls.push_back({.name = "other rewards", .model = {}, .mesh = everywhere_, .seconds = rl_.plan.reward_seconds});
  return calls;
}

std::optional<PlannedCall> IterationCalls::old_log_probs() const {
  if (!rl_.scores_old()) return {};
  return forward("old log-probabilities", "", engine_config(run_, training_), {training_, everywhere_});
}

std::vector<PlannedCall> IterationCalls::scores() const {
  std::vector<PlannedCall> calls;
  for (const PlacedModel& m : models_)
    if (!is_reward_model(m))
      calls.push_back(
          forward((m.use.trained ? "values of " : "log-probabilities of ") + m.use.name, m.use.name, scoring_config(m), {m.layout, m.mesh}));
  return calls;
}

std::vector<PlannedCall> IterationCalls::training_of_critic() const {
  std::vector<PlannedCall> calls;
  for (const PlacedModel& m : models_)
    if (m.use.trained) calls.push_back(training("training of " + m.use.name, m.use.name, scoring_config(m), m.layout));
  return calls;
}

PlannedCall IterationCalls::training() const {
  PlannedCall call = training("training", "", engine_config(run_, training_), training_);
  call.part = CallPart::training;
  return call;
}

// A forward pass over the windows of all minibatches.
PlannedCall IterationCalls::forward(const std::string& name, const std::string& model, const EngineConfig& config, const LayoutOnMesh& place) const {
  const ForwardTimes times(config, place, machine_, &runs_->forwards[model]);
  const Index windows = up_to_multiple(windows_ * rl_.minibatches, scoring_multiple(run_, training_));
  PlannedCall call{.name = name, .model = model, .mesh = place.mesh, .layout = place.layout};
  call.seconds = times.seconds(windows / (place.layout.size(Axis::data) * config.micro_batch_size));
  call.tokens = double(answers_.answers() * answers_.length());
  for (const Capacity& c : times.capacities()) call.memory.push_back({c.total() - c.working(), c.working()});
  return call;
}

// Optimizer steps over the minibatches, in each epoch.
PlannedCall IterationCalls::training(const std::string& name, const std::string& model, EngineConfig config, const Layout& layout) const {
  const Index windows = up_to_multiple(windows_, training_multiple(run_, training_));
  config.micros = int(windows / (layout.size(Axis::data) * config.micro_batch_size));
  const StagePlans plans(config, layout, runs_->steps[model]);
  PlannedCall call{.name = name, .model = model, .mesh = everywhere_, .layout = layout, .trains = true};
  call.seconds = double(rl_.steps_of_iteration()) * predict(plans, config, layout, machine_.cluster, machine_.profile).seconds;
  call.tokens = double(rl_.epochs * answers_.answers() * answers_.length());
  EngineConfig largest = config;  // a minibatch may have as many windows as answers
  largest.micros = int(run_.largest_batch() / (layout.size(Axis::data) * config.micro_batch_size));
  call.memory = memory_of_step(plans, largest, layout, machine_.cluster);
  return call;
}

AnswerCounts planned_answers(const RunConfig& run) {
  const PolicyConfig& c = *run.policy;
  AnswerCounts answers{.prompts = c.prompts, .group = c.group, .tokens = c.plan.answer_tokens > 0 ? c.plan.answer_tokens : c.max_new_tokens};
  const Index most = std::max<Index>(1, run.train.seq_length - c.max_new_tokens);
  answers.prompt_tokens = std::min(most, c.plan.prompt_tokens > 0 ? c.plan.prompt_tokens : mean_prompt(run, most));
  answers.longest_prompt = longest_prompt(run);
  return answers;
}

Index windows_of_minibatch(const RunConfig& run, const AnswerCounts& answers) {
  const Index together = std::max<Index>(1, run.train.seq_length / (answers.prompt_tokens + answers.tokens));
  return (run.policy->per_minibatch() + together - 1) / together;
}

IterationTimes iteration_times(const RunConfig& run, const Layout& training, const PassMachine& machine, std::shared_ptr<CallRuns> runs) {
  const AnswerCounts answers = planned_answers(run);
  const IterationCalls calls(run, training, answers, machine, std::move(runs));
  IterationTimes times{answers, calls.windows(), run.policy->staleness > 0 && run.policy->generation.separate, {}};
  const auto add = [&](std::vector<PlannedCall> more) { std::move(more.begin(), more.end(), std::back_inserter(times.calls)); };
  const GenerationPlace place = generation_place(run, training);
  if (!place.borrows) add({calls.move(place)});
  add({calls.generation(place)}), add(calls.rewards());
  if (const std::optional<PlannedCall> old = calls.old_log_probs()) add({*old});
  add(calls.scores()), add(calls.training_of_critic()), add({calls.training()});
  return times;
}

}  // namespace gyr
