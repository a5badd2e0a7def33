// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_steps.hpp"

#include <cmath>

#include "src/base/stopwatch.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/policy/iteration_figures.hpp"
#include "src/policy/minibatches.hpp"
#include "src/policy/rollout_file.hpp"
#include "src/train/policy_generation.hpp"
#include "src/train/window_scores.hpp"

namespace gyr {

// The answers of an iteration, and the minibatches that its steps take.
struct PolicySteps::Iteration {
  PolicyConfig config;  // with the coefficients of this iteration
  Rollouts rollouts;
  std::vector<PackedMinibatch> minibatches;
  Targets targets = {};

  Iteration(Rollouts written, PolicyConfig c, Index window) : config(std::move(c)), rollouts(std::move(written)) {
    for (const auto& members : draw_minibatches(config.seed, rollouts.iteration, Index(rollouts.all.size()), config.minibatches))
      minibatches.push_back(packed(rollouts, members, window));
  }
};

// Answers that the generator has been ordered to write.
struct PolicySteps::Order {
  std::vector<Request> requests;
  Rollouts rollouts;  // without answers until they have been received
};

PolicySteps::PolicySteps(const RunParts& parts, const Prompts& prompts, RunLog* log)
    : parts_(parts), prompts_(prompts), log_(log), sampling_(answer_sampling(parts.run)), equal_rewards_(*parts.run.policy),
      judge_(parts.run, prompts, parts.grid,
             [this](const std::string& model, const StepSamples& samples) { return parts_.engine.rows_of(model, samples); }),
      call_times_(parts_.timers) {
  if (log_ && sampling_.ends.empty())
    log_->print_line(fmt::format("no end token is known: every answer has {} tokens; name one in rl.generate.end_tokens", config().max_new_tokens));
}

PolicySteps::~PolicySteps() = default;

StepSamples PolicySteps::samples(Index number, const CheckpointHeader& at, const std::vector<Span>&) {
  const PolicyConfig& c = config();
  const Index of_iteration = c.steps_of_iteration(), iteration = (number - 1) / of_iteration, within = (number - 1) % of_iteration;
  if (!current_ || current_->rollouts.iteration != iteration) current_ = within == 0 ? generated(iteration, at) : stored(iteration);
  parts_.watch.progress_record().phase("train");
  const std::vector<Index> order = draw_order(c.seed, iteration, within / c.minibatches, c.minibatches);
  const PackedMinibatch& minibatch = current_->minibatches[std::size_t(order[std::size_t(within % c.minibatches)])];
  const Index together = training_multiple(parts_.run, parts_.grid.layout());
  const Index windows = (minibatch.size() + together - 1) / together * together, first = at.samples;
  auto values = std::make_shared<const MinibatchValues>(current_->rollouts, current_->targets, minibatch, current_->config);
  const Span numbers{first, first + windows};
  if (c.has_critic()) of_critic_ = {[values, first](Index sample) { return values->critic_sample(sample - first); }, numbers};
  return {[values, first](Index sample) { return values->sample(sample - first); }, numbers,
          [this, iteration, number](const StepResult& result) { return refuses(iteration, number, result); }};
}

// True if a step changes no weight of the policy: the critic learns alone at first, and a policy that has moved too far is not followed.
bool PolicySteps::refuses(std::int64_t iteration, Index step, const StepResult& result) const {
  if (iteration < config().critic_warmup) return true;
  const double ratio = result.ahead_losses.at(std::size_t(PolicyFigure::ratio)).value_or(0), limit = config().skip_ratio;
  if (limit == 0 || ratio <= limit) return false;
  if (log_)
    log_->print_line(fmt::format("step {}: the mean probability ratio {:.4g} is above rl.skip_ratio = {}, and no weight of the policy is changed",
                                 step, ratio, limit));
  return true;
}

std::vector<std::pair<std::string, double>> PolicySteps::train_beside(const StepOrder& order) {
  if (!config().has_critic()) return {};
  const StepOrder of_critic{.number = order.number, .lr = order.lr * config().critic_rate, .weight_decay = order.weight_decay};
  parts_.watch.progress_record().phase("train critic");
  const StepResult result = parts_.engine.step_of_critic(of_critic, of_critic_);
  parts_.watch.progress_record().phase("train");
  return {{"critic_loss", result.loss}, {"critic_norm", result.gradient_norm}, {"critic_clipped", result.ahead_losses.at(0).value_or(0)}};
}

std::unique_ptr<PolicySteps::Iteration> PolicySteps::generated(std::int64_t iteration, const CheckpointHeader& at) {
  double seconds = 0;
  const std::optional<CallSeconds> before = call_times_.begin();
  if (log_ && before) log_->calls(*before);
  std::unique_ptr<Iteration> made;
  {
    const Stopwatch watch(seconds);
    const IterationState state = state_before(iteration);
    Rollouts rollouts = judged(iteration, state, at);
    rollouts.kl_coefficient = state.kl_coefficient;
    made = std::make_unique<Iteration>(std::move(rollouts), settings_in(state, config()), parts_.run.train.seq_length);
    score(*made);
  }
  call_times_.scored(seconds);
  made->targets = targets_of(made->rollouts, made->config);
  const IterationReport figures = figures_of(made->rollouts, made->targets, config(), seconds);
  collective_check(parts_.grid.world(), [&] {
    if (!parts_.lead()) return;
    write_rollouts(rollout_path(parts_.run.output, iteration), made->rollouts);
    if (log_) log_->iteration(is_logged(iteration), figures);
  });
  if (const std::string warning = equal_rewards_.warning(figures); log_ && !warning.empty()) log_->print_line("warning: " + warning);
  return made;
}

void PolicySteps::judge(Rollouts& rollouts) {
  parts_.watch.progress_record().phase("reward");
  judge_.reward(rollouts);
}

// Answers with their rewards. With dynamic sampling, prompts whose answers have equal rewards are replaced by the next prompts.
Rollouts PolicySteps::judged(std::int64_t iteration, const IterationState& state, const CheckpointHeader& at) {
  Rollouts all = answers(iteration, state.first_prompt, at);
  judge(all);
  for (Index wave = 1; wave < config().waves; ++wave) {
    const std::vector<bool> equal = groups_without_spread(all);
    if (std::none_of(equal.begin(), equal.end(), [](bool is_equal) { return is_equal; })) break;
    Rollouts more = answers(iteration, all.next_prompt, at);
    judge(more);
    all = with_spread(all, more, config().prompts);
  }
  return all;
}

// State that iteration `iteration` begins with.
IterationState PolicySteps::state_before(std::int64_t iteration) const {
  if (iteration == 0) return first_state(config());
  if (current_ && current_->rollouts.iteration == iteration - 1) return state_after(current_->rollouts, config());
  if (hands_on_state(config())) return state_after(read(iteration - 1), config());
  IterationState state = first_state(config());
  state.first_prompt = iteration * config().prompts;
  return state;
}

// Iterations are printed as often as steps (train.log_every).
bool PolicySteps::is_logged(std::int64_t iteration) const {
  const Index steps = config().steps_of_iteration(), every = parts_.run.train.log_every;
  return iteration == 0 || (iteration + 1) * steps / every > iteration * steps / every;
}

// Optimizer steps of the weights that write the answers of an iteration.
Index PolicySteps::version_of(std::int64_t iteration) const {
  return std::max<std::int64_t>(0, iteration - config().staleness) * config().steps_of_iteration();
}

// The answers of an iteration of an earlier attempt.
Rollouts PolicySteps::read(std::int64_t iteration) const {
  const std::filesystem::path path = rollout_path(parts_.run.output, iteration);
  Rollouts rollouts = read_answers(path, iteration, iteration * config().steps_of_iteration());
  collective_check(parts_.grid.world(), [&] {
    require(!config().has_critic() || !rollouts.all.front().values.empty(), Exit::data,
            "{}: it has no values of a critic; resume from a checkpoint at the end of an iteration", path.string());
  });
  return rollouts;
}

// `needed_after`: checkpoints after this step cannot be resumed without the file.
Rollouts PolicySteps::read_answers(const std::filesystem::path& path, std::int64_t iteration, Index needed_after) const {
  Rollouts rollouts;
  collective_check(parts_.grid.world(), [&] {
    std::error_code no;
    const std::string remedy =
        parts_.run.train.branch ? "copy it from the folder rollouts of the run that this one branches off"
        : needed_after == 0     ? "restore the file, or start again with --anew"
                            : fmt::format("restore the file, or remove the checkpoints after step {}, at which an iteration begins", needed_after);
    require(std::filesystem::exists(path, no), Exit::missing, "{}: does not exist, and the run needs the answers of its present iteration{}; {}",
            path.string(), hands_on_state(config()) ? " and of the one before (rl.dynamic_sampling, rl.kl.target)" : "", remedy);
    rollouts = read_rollouts(path);
    require(rollouts.iteration == iteration && rollouts.version == version_of(iteration) && Index(rollouts.all.size()) == config().rollouts() &&
                rollouts.group == config().group,
            Exit::data,
            "{}: it has {} answers of iteration {}, and the run needs {} of iteration {}; resume from a checkpoint at the end of an iteration",
            path.string(), rollouts.all.size(), rollouts.iteration, config().rollouts(), iteration);
  });
  return rollouts;
}

std::unique_ptr<PolicySteps::Iteration> PolicySteps::stored(std::int64_t iteration) {
  Rollouts rollouts = read(iteration);
  IterationState state = first_state(config());
  if (hands_on_state(config())) state.kl_coefficient = rollouts.kl_coefficient;
  auto made = std::make_unique<Iteration>(std::move(rollouts), settings_in(state, config()), parts_.run.train.seq_length);
  made->targets = targets_of(made->rollouts, made->config);
  return made;
}

// Begins to generate the answers of an iteration with the present weights.
void PolicySteps::order(std::int64_t iteration, std::int64_t first_prompt, const CheckpointHeader& at) {
  parts_.watch.progress_record().phase("generate");
  const PolicyConfig& c = config();
  order_ = std::make_unique<Order>();
  for (std::int64_t number = first_prompt; number < first_prompt + c.prompts; ++number)
    order_->requests.push_back({number, prompts_.tokens(prompts_.line_of(number, c.seed)), c.group});
  Rollouts& r = order_->rollouts;
  r.iteration = iteration, r.version = at.step, r.next_prompt = first_prompt + c.prompts, r.group = c.group;
  parts_.engine.begin_answers(order_->requests, sampling_, at.step + 1);
}

// The answers that have been ordered, as soon as they are written.
Rollouts PolicySteps::ordered() {
  parts_.watch.progress_record().phase("generate");
  Rollouts& r = order_->rollouts;
  if (r.all.empty()) r.all = rollouts_of(order_->requests, parts_.engine.finish_answers(), config().group).all;
  return r;
}

Rollouts PolicySteps::answers(std::int64_t iteration, std::int64_t first_prompt, const CheckpointHeader& at) {
  if (config().staleness == 0 || at.step == 0) order(iteration, first_prompt, at);
  if (config().staleness == 0) return ordered();
  // The iteration before, or an earlier attempt, has ordered these answers.
  Rollouts all =
      order_ ? ordered() : read_answers(ahead_path(parts_.run.output, iteration), iteration, (iteration - 1) * config().steps_of_iteration());
  order_.reset();
  if (iteration + 1 < config().iterations) order(iteration + 1, all.next_prompt, at);
  return all;
}

// The weights that write the answers of the next iteration are gone when a run resumes, so the answers are stored.
void PolicySteps::before_save() {
  if (!order_ || config().staleness == 0) return;
  const Rollouts next = ordered();
  collective_check(parts_.grid.world(), [&] {
    if (parts_.lead()) write_rollouts(ahead_path(parts_.run.output, next.iteration), next);
  });
}

// Log-probabilities of the answers under the policy before the update and under the reference model, and values of the critic, as far as the run
// needs them.
void PolicySteps::score(Iteration& iteration) {
  parts_.watch.progress_record().phase("score");
  std::vector<Rollout>& all = iteration.rollouts.all;
  const WindowScores windows(iteration.rollouts, iteration.minibatches, scoring_multiple(parts_.run, parts_.grid.layout()));
  const auto store = [&](const std::vector<double>& of_rows, std::vector<double> Rollout::*to) {
    windows.visit([&](Index i, Index, std::size_t row) { (all[std::size_t(i)].*to).push_back(of_rows[row]); });
  };
  if (config().scores_old()) store(parts_.engine.log_probs(windows.samples()), &Rollout::old);
  else if (config().old == OldLogProbs::said)
    for (Rollout& r : all) r.old = r.said;
  if (config().reads_reference()) store(parts_.engine.rows_of("reference", windows.samples()), &Rollout::reference);
  if (!config().has_critic()) return;
  const std::vector<double> values = parts_.engine.rows_of("critic", windows.samples());
  store(values, &Rollout::values);
  windows.visit([&](Index i, Index t, std::size_t row) {
    if (Rollout& r = all[std::size_t(i)]; t + 1 == r.length()) r.values.push_back(values[row + 1]);  // after the last token
  });
}

std::unique_ptr<StepSource> step_source(const RunParts& parts, const RunData& data, RunLog* log) {
  if (data.prompts) return std::make_unique<PolicySteps>(parts, *data.prompts, log);
  return std::make_unique<CorpusSteps>(parts.run, *data.training);
}

}  // namespace gyr
