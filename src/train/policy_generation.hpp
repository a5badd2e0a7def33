// SPDX-License-Identifier: BSD-3-Clause
// Place and limits of generation within policy training.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/prompts.hpp"
#include "src/engine/generate/generator.hpp"
#include "src/parallel/mesh.hpp"
#include "src/policy/rollout.hpp"

namespace gyr {

// Ranks of the run that generate, with their layout and precision.
struct GenerationPlace {
  Mesh mesh;
  Layout layout;
  DType precision;
  bool borrows;   // true: with the weights of the training engine; false: with a copy of them, which is updated before each iteration
  Mesh training;  // ranks of the run that train
};

// By default, generation borrows the weights on the layout of training without sequence parallelism. Context-parallel ranks then
// generate texts of their own. A layout of its own (rl.generate) has the axes data, pipeline and tensor. Exit::config if the layout
// of training cannot generate, or that of generation does not fit its ranks.
GenerationPlace generation_place(const RunConfig&, const Layout& training);

// Log line about the ranks that only generate; empty if there are none.
std::string separate_generation_text(const RunConfig&, const Layout& training);

// Memory for the answers of an iteration to prompts of up to `prompt` tokens.
GeneratorCapacity generator_capacity(const RunConfig&, Index prompt, const Layout& generation);
// Tokens of the longest prompt; if the token files cannot be opened, the most that fit a window.
Index longest_prompt(const RunConfig&);

// Samples that all models of the run score, or that policy and critic train on, in equal parts are multiples of these numbers.
Index scoring_multiple(const RunConfig&, const Layout& training);
Index training_multiple(const RunConfig&, const Layout& training);

// Generated texts as rollouts, in the order of the requests and samples.
Rollouts rollouts_of(const std::vector<Request>&, const std::vector<GeneratedText>&, Index group);

// Rule by which answers are drawn. The head of the model divides its logits by the temperature.
Sampling answer_sampling(const RunConfig&);
// Token ids that end an answer: rl.generate.end_tokens, or else those of the tokenizer and of the initial model. Empty if none is known.
std::set<Token> answer_ends(const RunConfig&);

}  // namespace gyr
