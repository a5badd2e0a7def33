// SPDX-License-Identifier: BSD-3-Clause
// A run as its deck describes it. Every key is declared in run_config.cpp with default, unit, range and help.
#pragma once

#include "src/config/fault_settings.hpp"
#include "src/config/learning_rate.hpp"
#include "src/config/supervise_settings.hpp"
#include "src/deck/deck.hpp"
#include "src/engine/engine.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

struct BatchStep {
  double tokens;  // from this many consumed tokens on ...
  Index batch;    // ... a step takes this many sequences
};

struct DataConfig {
  std::vector<std::string> prefixes;
  std::vector<double> weights;
  std::string split, order, tokenizer;
  bool separate;  // documents do not see each other
  std::uint64_t seed;
  std::vector<Span> skip;  // samples that no step takes, in rising order
};

// What a step does whose loss or gradient is not finite: end the run, leave the update out, or go back to the last checkpoint and
// leave its samples out.
enum class NonFinite { stop, skip, rollback };

struct TrainConfig {
  std::string init_from, precision;
  Index steps, global_batch_size, micro_batch_size, seq_length;
  std::vector<BatchStep> ramp;
  Index eval_every, eval_batches, log_every;
  std::uint64_t seed;
  double walltime;  // seconds, 0: without end
  NonFinite non_finite;
  Index max_skips;       // in a row
  double spike;          // times the mean of recent losses, 0: any
  Index check_replicas;  // steps between, 0: never
};

struct ParallelConfig {
  int data, pipeline, tensor;  // data 0: whatever the ranks leave
  std::vector<Axis> order;     // of the axes, outermost first
  std::vector<int> permutation;
  std::vector<Index> layers;  // per stage; empty: cut by cost
  Index bucket_bytes;
};

struct CheckpointConfig {
  Index every, keep, keep_every;
  std::string files, read;
  int deflate;
  bool async, verify;
};

struct DumpConfig {
  std::vector<Index> steps;
  std::vector<std::string> what;  // patterns of paths
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LearningRate lr;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  DumpConfig dump;
  WatchSettings watch;
  FaultSettings fault;
  SuperviseSettings supervise;
  std::string output;

  // Largest global batch of the run, in sequences.
  Index largest_batch() const;
  // The first of `batch` samples to take where `first` is the next: behind those to be skipped that it would touch.
  static Index next_sample(Index first, Index batch, const std::vector<Span>& skip);
  // Sequences of the step that begins after `tokens` consumed tokens.
  Index batch_after(double tokens) const;
};

// What keys are where the deck says nothing: the published 0.5B's shape, or a model that exists already.
struct RunDefaults {
  RunDefaults();
  ModelConfig model;
  std::string tokenizer, precision = "fp32";
  Index seq_length = 1024;
};

// Declares and reads every key of a run; the deck still has to be finished by the caller.
RunConfig read_run_config(Deck& deck, const RunDefaults& = {});
// train.init_from alone, which decides about the defaults of the others.
std::string read_init_from(Deck& deck);

// The layout of a run on `ranks` ranks. Exit::config with the factorisations that would work where the deck's grid does not fit.
Layout layout_of(const RunConfig&, int ranks);
EngineConfig engine_config(const RunConfig&, const Layout&);

}  // namespace gyr
