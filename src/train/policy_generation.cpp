// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_generation.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/precision.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/config/layout_rules.hpp"
#include "src/config/placed_models.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

constexpr Index usual_sequences = 64;

// Property of the layout of training with which no text can be generated; empty if there is none.
std::string obstacle(const Layout& training) {
  if (training.expert > 1) return "expert parallelism";
  if (Index(training.stages.size()) != training.size(Axis::pipeline)) return "virtual pipeline stages";
  return training.shard == Shard::weights ? "ZeRO-3 (parallel.shard: weights)" : "";
}

// The run on the layout of generation.
RunConfig generating(const RunConfig& run, bool everywhere) {
  const GenerationLayout& g = run.policy->generation;
  RunConfig other = run;
  other.models.clear();
  ParallelConfig& p = other.parallel;
  if (g.pipeline > 0) p.pipeline = g.pipeline;
  if (g.tensor > 0) p.tensor = g.tensor;
  if (!g.precision.empty()) other.train.precision = g.precision;
  p.data = 0, p.context = 1, p.expert = 1, p.virtual_stages = 1, p.one_chunk = one_f_one_b, p.attention_ranks = 0;
  p.sequence = false, p.shard = Shard::none, p.mixer = Mixer::split, p.layers.clear();
  if (!everywhere) p.permutation.clear(), p.islands.clear();
  other.train.micro_batch_size = 1, other.train.ramp.clear();
  return other;
}

Layout own_layout(const RunConfig& run, const Mesh& mesh, int ranks) {
  RunConfig other = generating(run, mesh.size() == ranks);
  // Prompts need not be divisible by the ranks that read them.
  const ParallelConfig& p = other.parallel;
  other.train.global_batch_size = std::max<Index>(1, mesh.size() / std::max(1, p.pipeline * p.tensor));
  try {
    return layout_by_rules(other, mesh.size());
  } catch (const Error& error) {
    fail(error.code, "generation on {} rank{} ({}), whose grid is rl.generate.pipeline and tensor, or that of parallel: {}", mesh.size(),
         mesh.size() > 1 ? "s" : "", mesh.text(), error.what());
  }
}

}  // namespace

GenerationPlace generation_place(const RunConfig& run, const Layout& training) {
  const GenerationLayout& g = run.policy->generation;
  const int ranks = ranks_of_run(run, training);
  const Mesh mesh = generating_ranks(run, ranks), of_training = training_ranks(run, ranks);
  const DType precision = precision_of(g.precision.empty() ? run.train.precision : g.precision);
  if (g.own()) return {mesh, own_layout(run, mesh, ranks), precision, false, of_training};
  const std::string reason = obstacle(training);
  require(reason.empty(), Exit::config,
          "train.objective = policy: the layout {} cannot generate text, because of {}; give generation a layout of its own with rl.generate.tensor "
          "= {}, for which each rank holds a copy of the weights",
          training.text(), reason, training.size(Axis::tensor));
  Layout same = training;
  same.sequence = false;
  return {mesh, same, precision, true, of_training};
}

std::string separate_generation_text(const RunConfig& run, const Layout& training) {
  if (!run.policy || !run.policy->generation.separate) return "";
  const GenerationPlace place = generation_place(run, training);
  const bool several = place.mesh.size() > 1;
  return fmt::format("rank{} {} only generate{}: {} in {}", several ? "s" : "", place.mesh.text(), several ? "" : "s", place.layout.text(),
                     name_of(place.precision));
}

GeneratorCapacity generator_capacity(const RunConfig& run, Index prompt, const Layout& generation) {
  const PolicyConfig& c = *run.policy;
  const Index coordinates = generation.size(Axis::data) * generation.size(Axis::context);
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

Sampling answer_sampling(const RunConfig& run) {
  const PolicyConfig& c = *run.policy;
  return {.seed = c.seed, .tokens = c.max_new_tokens, .ends = answer_ends(run), .exact = c.exact, .rollouts = true};
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
