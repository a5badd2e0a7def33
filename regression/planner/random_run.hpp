// SPDX-License-Identifier: BSD-3-Clause
// Random runs for planner tests.
#pragma once

#include "regression/planner/random_cluster.hpp"
#include "src/config/run_config.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing {

struct Drawn {
  RunConfig run;
  Layout layout;
  EngineConfig config;
};

// A random small run on up to 16 ranks: any combination of data, tensor, pipeline and context parallelism, virtual
// stages, ZeRO sharding, sequence parallelism and recomputation.
inline Drawn draw(Dice& dice) {
  for (;;) {
    const int tensor = dice.one_of<int>({1, 1, 2}), pipeline = dice.one_of<int>({1, 2, 3, 4}), data = dice.one_of<int>({1, 2}),
              context = dice.one_of<int>({1, 1, 2});
    const int chunks = pipeline > 1 ? dice.between(1, 2) : 1, micros = dice.between(1, 40);
    const std::string text = fmt::format(
        "model:\n  pattern: {}\n  vocab_size: 64\n  hidden_size: 16\n  attention: {{num_heads: 4, num_kv_heads: 2, head_dim: 4}}\n"
        "  mamba: {{num_heads: 4, head_dim: 4, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: 16}}\n  tie_word_embeddings: {}\n"
        "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: 16}}\n"
        "parallel: {{data: {}, tensor: {}, pipeline: {}, context: {}, virtual_stages: {}, schedule: {}, shard: {}, sequence: {}, bucket: 1}}\n"
        "activation: {{recompute: {}, policy: {}}}\n",
        dice.one_of<std::string>({"PPPPPPPP", "M-*-M-*-M-", "\"*- x 5\""}), dice.coin(), micros * data, data, tensor, pipeline, context, chunks,
        chunks > 1 ? "1f1b" : dice.one_of<std::string>({"1f1b", "gpipe", "zero_bubble"}),
        dice.one_of<std::string>({"none", "optimizer", "gradients", "weights"}), tensor > 1 && dice.coin(),
        dice.one_of<std::string>({"none", "selective", "full"}), dice.one_of<std::string>({"keep", "keep", "swap", "memo"}));
    Deck deck = Deck::parse(text, "drawn");
    Drawn d{read_run_config(deck), {}, {}};
    d.layout = layout_of(d.run, data * tensor * pipeline * context);
    d.config = engine_config(d.run, d.layout);
    return d;
  }
}

}  // namespace gyr::testing
