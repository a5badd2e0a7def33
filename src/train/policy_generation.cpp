// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_generation.hpp"

#include <algorithm>
#include <numeric>

#include "src/config/placed_models.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

constexpr Index usual_sequences = 64;

}  // namespace

Layout generation_layout(Layout training) {
  training.sequence = false;
  return training;
}

GeneratorCapacity generator_capacity(const RunConfig& run, Index prompt, const Layout& training) {
  const PolicyConfig& c = *run.policy;
  require(training.expert == 1 && Index(training.stages.size()) == training.size(Axis::pipeline), Exit::config,
          "train.objective = policy: the layout {} cannot generate text, because of {}; set {} to 1", training.text(),
          training.expert > 1 ? "expert parallelism" : "virtual pipeline stages",
          training.expert > 1 ? "parallel.expert" : "parallel.virtual_stages");
  const Index coordinates = training.size(Axis::data) * training.size(Axis::context);
  const Index of_rank = (c.prompts + coordinates - 1) / coordinates * c.group;
  return {.sequences = c.sequences > 0 ? std::min(c.sequences, of_rank) : std::min(usual_sequences, of_rank),
          .prompt = prompt,
          .tokens = c.max_new_tokens,
          .samples = c.group};
}

Index longest_prompt(const RunConfig& run) {
  try {
    return Index(Prompts({run.data.prefixes.begin(), run.data.prefixes.end()}, run.model.vocab_size).longest());
  } catch (const Error&) {
    return std::max<Index>(1, run.train.seq_length - run.policy->max_new_tokens);
  }
}

namespace {

Index multiple_of(const RunConfig& run, const Layout& training, bool trained_only) {
  Index multiple = training.size(Axis::data) * run.train.micro_batch_size;
  for (const PlacedModel& m : placed_models(run, training.ranks()))
    if (m.use.trained || !trained_only) multiple = std::lcm(multiple, m.layout.size(Axis::data) * m.run.train.micro_batch_size);
  return multiple;
}

}  // namespace

Index scoring_multiple(const RunConfig& run, const Layout& training) { return multiple_of(run, training, false); }
Index training_multiple(const RunConfig& run, const Layout& training) { return multiple_of(run, training, true); }

Rollouts rollouts_of(const std::vector<Request>& asked, const std::vector<GeneratedText>& texts, Index group) {
  Rollouts rollouts{.group = group};
  for (const GeneratedText& text : texts) {
    Rollout r{.prompt = text.id, .sample = text.sample, .tokens = asked[std::size_t(text.id - asked.front().id)].prompt};
    r.begin = Index(r.tokens.size());
    r.tokens.insert(r.tokens.end(), text.tokens.begin(), text.tokens.end());
    r.end = text.end, r.said = text.log_probs;
    rollouts.all.push_back(std::move(r));
  }
  return rollouts;
}

std::set<Token> answer_ends(const RunConfig& run) {
  const std::vector<Index>& given = run.policy->end_tokens;
  std::set<Token> ends(given.begin(), given.end());
  if (!ends.empty()) return ends;
  if (!run.data.tokenizer.empty())
    if (const auto end = Tokenizer::load(run.data.tokenizer).eod()) ends.insert(*end);
  if (!run.train.init_from.empty())
    for (const Index end : end_tokens_in(companions_of(run.train.init_from), run.train.init_from)) ends.insert(Token(end));
  return ends;
}

}  // namespace gyr
