// SPDX-License-Identifier: BSD-3-Clause
// Small models with layers R, and micro-batches with random neighbours, for tests.
#pragma once

#include <random>

#include "regression/support/cases.hpp"

namespace gyr::testing {

inline ModelConfig retrieval_model(const std::string& pattern, Index chunk, Index neighbours, const std::string& encoder) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern, m.retrieval = {chunk, neighbours, encoder};
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

}  // namespace gyr::testing
