// SPDX-License-Identifier: BSD-3-Clause
// Small models with layers R, micro-batches with random neighbours, and a search for neighbours, for tests.
#pragma once

#include <numeric>
#include <random>

#include "regression/support/cases.hpp"
#include "src/engine/generate/retrieved_chunks.hpp"

namespace gyr::testing {

inline ModelConfig retrieval_model(const std::string& pattern, Index chunk, Index neighbours, const std::string& encoder) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern, m.retrieval = {chunk, neighbours, encoder, 0};
  return m;
}

// The model with an encoder of neighbours of another width, and of other heads and MLPs; 0: those of the model.
inline ModelConfig with_encoder_width(ModelConfig m, Index width) {
  if (width == 0) return m;
  m.encoder = StackConfig{width, NormType::layer, 1e-4, m.attention, m.mlp};
  m.encoder->attention.num_heads = m.encoder->attention.num_kv_heads = m.attention.num_kv_heads, m.encoder->mlp.intermediate_size *= 2;
  return m;
}

// Micro-batches of `batch` sequences of `chunks` chunks.
inline EngineConfig retrieval_config(const ModelConfig& m, Index batch, Index chunks) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = batch, c.seq_length = chunks * m.retrieval.chunk;
  c.source_length = m.retrieval.source_length(c.seq_length);
  return c;
}

// Adds neighbours of random tokens: all of full length, or of random lengths, of which one in four is missing.
inline void add_neighbours_to(MicroBatch& m, const ModelConfig& c, std::mt19937_64& random, bool full) {
  const Index r = c.retrieval.neighbour_length();
  m.source.length = c.retrieval.source_length(m.seq_length);
  for (Index i = 0; i < m.batch * m.source.length / r; ++i) {
    m.source.lengths.push_back(full ? r : random() % 4 == 0 ? 0 : 1 + Index(random() % std::uint64_t(r)));
    for (Index t = 0; t < r; ++t) m.source.tokens.push_back(Token(random() % std::uint64_t(c.vocab_size)));
  }
}

// Neighbours of random tokens, with `full` all of full length, otherwise some missing.
inline MicroBatch retrieval_batch(const EngineConfig& c, std::uint64_t seed, bool full = false) {
  std::mt19937_64 random(seed);
  MicroBatch m = micro_batch(Index(seed % 1000), c.micro_batch_size, c.seq_length, c.model.vocab_size);
  for (std::size_t i = 0; full && i < m.labels.size(); ++i)
    if (m.labels[i] == ignored_label) m.labels[i] = 1;
  add_neighbours_to(m, c.model, random, full);
  return m;
}

// Finds drawn neighbours, a function of the tokens of the chunk. One in four is missing, and so are those after it.
inline NeighbourSearch drawn_search(const ModelConfig& c, std::uint64_t seed) {
  return [c = c.retrieval, vocab_size = std::uint64_t(c.vocab_size), seed](Index, std::span<const Token> chunk) {
    std::mt19937_64 random(std::accumulate(chunk.begin(), chunk.end(), seed, [](std::uint64_t h, Token t) { return 31 * h + std::uint64_t(t) + 1; }));
    FoundNeighbours found;
    for (Index n = 0; n < c.neighbours && random() % 4 > 0; ++n) {
      found.ids.push_back(std::int64_t(random() % 1000)), found.lengths.push_back(1 + Index(random() % std::uint64_t(c.neighbour_length())));
      for (Index t = 0; t < found.lengths.back(); ++t) found.tokens.push_back(Token(random() % vocab_size));
      found.tokens.resize(std::size_t((n + 1) * c.neighbour_length()), 0);
    }
    return found;
  };
}

}  // namespace gyr::testing
