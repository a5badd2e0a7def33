// SPDX-License-Identifier: BSD-3-Clause
// Generation within policy training: by the weights of the training engine, in its working memory, on its ranks.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/prompts.hpp"
#include "src/engine/generate/generator.hpp"
#include "src/policy/rollout.hpp"

namespace gyr {

// Layout of the generator on the ranks of training: the same, without sequence parallelism. Context-parallel ranks generate texts of their own.
Layout generation_layout(Layout training);

// Memory for the answers of an iteration to prompts of up to `prompt` tokens. Exit::config if the layout of training cannot generate.
GeneratorCapacity generator_capacity(const RunConfig&, Index prompt, const Layout& training);
// Tokens of the longest prompt; if the token files cannot be opened, the most that fit a window.
Index longest_prompt(const RunConfig&);

// Samples that all models of the run score, or that policy and critic train on, in equal parts are multiples of these numbers.
Index scoring_multiple(const RunConfig&, const Layout& training);
Index training_multiple(const RunConfig&, const Layout& training);

// Generated texts as rollouts, in the order of the requests and samples.
Rollouts rollouts_of(const std::vector<Request>&, const std::vector<GeneratedText>&, Index group);

// Token ids that end an answer: rl.generate.end_tokens, or else those of the tokenizer and of the initial model. Empty if none is known.
std::set<Token> answer_ends(const RunConfig&);

}  // namespace gyr
