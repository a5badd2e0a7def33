// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon rollout DECK --init-from MODEL: a model answers the prompts of a policy deck, and its rewards judge the answers, without training.
#include <cmath>
#include <cstdio>
#include <map>

#include "src/base/json.hpp"
#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/runtime.hpp"
#include "src/engine/generate/service.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/pretrained/weights.hpp"
#include "src/report/summary.hpp"
#include "src/train/answer_judge.hpp"
#include "src/train/policy_generation.hpp"
#include "src/train/scoring_models.hpp"

namespace gyr {

namespace {

constexpr Index prompts_at_once = 64;

struct RolloutArguments : DeckArguments {
  Index samples = 1, limit = 0;
  double temperature = -1;
};

// The run with its reward models alone: reference and critic have no use without training.
RunConfig without_training_models(RunConfig run) {
  const std::vector<std::string>& names = run.policy->loss.reward_models;
  std::erase_if(run.models, [&](const FurtherModel& m) { return std::find(names.begin(), names.end(), m.name) == names.end(); });
  run.model.objective = policy({.reward_models = names});
  // Nothing is trained, and all ranks generate.
  run.parallel.shard = Shard::none, run.policy->generation.ranks = "all", run.policy->generation.separate = false;
  return run;
}

// Reward models with memory of their own.
class RewardModels {
 public:
  RewardModels(const RunConfig& run, Grid& grid, Runtime& runtime)
      : RewardModels(planned_models(run, runtime.rank(), runtime.ranks()), grid, runtime) {}
  std::vector<double> rows_of(const std::string& model, const StepSamples& s, Device& dev) {
    return models_.rows_of(model, s.source, s.samples, dev);
  }

 private:
  RewardModels(std::vector<PlannedModel> planned, Grid& grid, Runtime& runtime)
      : working_(Memory::activations, together({}, planned).working()), models_(std::move(planned), grid, runtime.world(), working_, progress_) {}

  ProgressRecord progress_;
  Arena working_;
  ScoringModels models_;
};

// Sums over the answers judged so far.
class Summary {
 public:
  void add(const Rollouts& rollouts) {
    names_ = rollouts.reward_names;
    for (Index g = 0; g < rollouts.groups(); ++g) {
      double sum = 0, best = -HUGE_VAL, count = 0;
      for (Index j = 0; j < rollouts.group; ++j) {
        const Rollout& r = rollouts.all[std::size_t(g * rollouts.group + j)];
        answers_ += 1, ended_ += r.ended(), length_ += double(r.length());
        for (std::size_t k = 0; k < names_.size(); ++k)
          if (r.rewards[k]) rules_[names_[k]].add(*r.rewards[k]);
        if (!r.reward) continue;
        sum += *r.reward, count += 1, best = std::max(best, *r.reward);
      }
      if (count > 0) of_prompts_.add(sum / count), best_.add(best);
    }
  }
  std::string text() const {
    Table table({{"reward"}, {"mean", true}, {"+-", true}});
    const auto row = [&](const std::string& name, const Mean& m) {
      table.row({name, fmt::format("{:.4f}", m.mean()), fmt::format("{:.4f}", m.error())});
    };
    row("all rules, mean of a prompt", of_prompts_);
    if (answers_ > of_prompts_.count) row("all rules, best answer of a prompt", best_);
    for (const std::string& name : names_) row(name, rules_.at(name));
    return fmt::format("{} to {}: {:.1f} tokens, {:.0f} % ended by the model; +- is the standard error\n{}",
                       counted(std::llround(answers_), "answer"), counted(std::llround(of_prompts_.count), "prompt"),
                       length_ / std::max(1.0, answers_), 100 * ended_ / std::max(1.0, answers_), table.str());
  }

 private:
  struct Mean {
    double sum = 0, squares = 0, count = 0;
    void add(double x) { sum += x, squares += x * x, count += 1; }
    double mean() const { return count > 0 ? sum / count : 0; }
    double error() const { return count > 1 ? std::sqrt(std::max(0.0, squares - sum * sum / count) / (count - 1) / count) : 0; }
  };
  std::vector<std::string> names_;
  std::map<std::string, Mean> rules_;
  Mean of_prompts_, best_;
  double answers_ = 0, ended_ = 0, length_ = 0;
};

// Prints the answers as lines of JSON.
void print_lines(const Rollouts& rollouts, const AnswerJudge& judge) {
  for (const Rollout& r : rollouts.all) {
    const std::span<const Token> all(r.tokens), prompt = all.first(std::size_t(r.begin)), answer = all.subspan(std::size_t(r.begin));
    Json rewards = Json::object();
    for (std::size_t k = 0; k < rollouts.reward_names.size(); ++k) rewards[rollouts.reward_names[k]] = r.rewards[k] ? Json(*r.rewards[k]) : Json();
    Json line{{"id", fmt::format("{}/{}", r.prompt, r.sample)},
              {"reward", r.reward ? Json(*r.reward) : Json()},
              {"rewards", rewards},
              {"length", r.length()},
              {"ended", r.ended()}};
    if (const auto text = judge.answer_text(answer)) line["prompt"] = *judge.prompt_text(prompt), line["answer"] = *text;
    else line["prompt"] = std::vector<Token>(prompt.begin(), prompt.end()), line["answer"] = std::vector<Token>(answer.begin(), answer.end());
    std::printf("%s\n", json_text(line).c_str());
  }
  std::fflush(stdout);
}

// Answers to prompts number `first` to `last` - 1 of the run.
Rollouts answers(GenerationService& service, const Prompts& prompts, const Span& numbers, const RunConfig& run, const RolloutArguments& a) {
  const PolicyConfig& c = *run.policy;
  std::vector<Request> asked;
  for (Index n = numbers.first; n < numbers.last; ++n) asked.push_back({n, prompts.tokens(prompts.line_of(n, c.seed)), a.samples});
  Sampling sampling{.seed = c.seed, .tokens = c.max_new_tokens, .ends = answer_ends(run), .exact = c.exact, .rollouts = true};
  sampling.temperature = a.temperature < 0 ? c.loss.temperature : a.temperature;
  return rollouts_of(asked, service.serve(asked, sampling), a.samples);
}

// Refuses counts of a training iteration on the command line, which would have no effect.
void require_no_idle_counts(const std::vector<std::string>& overrides) {
  for (const auto& [key, option] : {std::pair("rl.prompts=", "--limit N: the first N prompts of the file"),
                                    std::pair("rl.num_generations=", "--samples N: answers to each prompt")})
    for (const std::string& change : overrides)
      require(!change.starts_with(key), Exit::usage, "{} is a count of training iterations, which rollout does not read; use {}", change, option);
}

void rollout(const RolloutArguments& a, const RunConfig& deck, Runtime& runtime) {
  require(deck.policy.has_value(), Exit::usage,
          "{}: rollout needs a deck of policy training (train.objective: policy), whose section rl has the rewards", a.deck);
  require(!deck.train.init_from.empty(), Exit::usage,
          "{}: no model is named; give --init-from MODEL (folder of a run, checkpoint or Hugging Face folder)", a.deck);
  require_no_idle_counts(a.overrides);
  require_same_head(deck.train.init_from, deck.model);
  const RunConfig run = without_training_models(deck);
  const Layout training = layout_of(run, runtime.ranks());
  const GenerationPlace place = generation_place(run, training);
  Grid grid(training, runtime.world(), wait_policy_of(runtime.world())), generation(place.layout, runtime.world(), wait_policy_of(runtime.world()));
  const RunData data = open_data(run, grid);
  const Prompts& prompts = *data.prompts;
  GeneratorCapacity capacity = generator_capacity(run, Index(prompts.longest()), place.layout);
  capacity.samples = a.samples, capacity.sequences = std::min<Index>(prompts_at_once, a.samples * std::min(prompts_at_once, Index(prompts.size())));
  ModelConfig model = run.model;
  model.objective = model.objective->without_training();
  Generator generator(model, place.precision, generation, capacity);
  generator.stage().fill(
      [&](ParameterList weights, const Arrived& arrived) { load_weights(run.train.init_from, generation, model, weights, arrived); });
  RewardModels models(run, grid, runtime);
  AnswerJudge judge(run, prompts, grid, [&](const std::string& name, const StepSamples& s) { return models.rows_of(name, s, generator.device()); });
  GenerationService service(generator);
  Summary summary;
  const Index all = a.limit > 0 ? std::min(a.limit, Index(prompts.size())) : Index(prompts.size());
  for (Index first = 0; first < all; first += prompts_at_once) {
    Rollouts rollouts = answers(service, prompts, {first, std::min(all, first + prompts_at_once)}, run, a);
    judge.reward(rollouts);
    if (runtime.rank() > 0) continue;
    print_lines(rollouts, judge);
    summary.add(rollouts);
  }
  if (runtime.rank() == 0) std::fprintf(stderr, "%s", summary.text().c_str());
}

int run(RolloutArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        std::string effective;
        rollout(a, read_deck(a, runtime, effective), runtime);
      },
      LastLine::never);
}

}  // namespace

void add_rollout(Command& app, Action& action) {
  auto a = std::make_shared<RolloutArguments>();
  Command* c =
      app.add_command("rollout", "Let a model answer the prompts of a policy deck, and judge the answers by the deck's rewards, without training");
  add_deck(*c, *a);
  c->add_option("--samples", a->samples, "Answers to each prompt")->between(1, 4096)->show_default();
  c->add_option("--limit", a->limit, "Maximum number of prompts; 0: all prompts, each once")->not_negative()->show_default();
  c->add_option("--temperature", a->temperature, "Sampling temperature; 0: always the most likely token; default: rl.generate.temperature")
      ->not_negative();
  c->footer(
      "\nEach answer is a line of JSON on standard output. A table of the mean rewards with their standard errors follows on standard error.\n"
      "    gyrfalcon rollout input/policy.yaml --init-from out/policy/trained data.prefixes=[out/policy/test] > answers.jsonl\n\n" +
      exit_codes());
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace gyr
