// SPDX-License-Identifier: BSD-3-Clause
// The tiny models of most tests: configurations T1 to T11. Weights and tokens are functions of name and index. The
// reference values come from two independent formulations of the model in double precision (sequential recurrence; full
// semiseparable matrix), which agree to 1e-15.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "regression/support/documents.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/verify/gathered.hpp"

namespace gyr::testing {

struct Reference {
  Index parameters;
  double loss;
  std::vector<double> logits;  // logits at [0, T-1, 0..2]: first sequence, last token, first three columns
  double logits_sum;           // sum of the absolute values of all logits
  double gradient_norm;
  std::map<std::string, double> gradient_norms;  // gradient norms of single weights, by name
};

struct Case {
  std::string name;
  ModelConfig model;
  Index batch, seq_length;
  Reference reference;
};

const std::vector<Case>& cases();
const Case& named(std::string_view name);
// A model of the same kind that is wide enough for 8 tensor-parallel ranks and deep enough for 8 pipeline stages: 8
// heads, 8 layers.
ModelConfig widened(const Case&);
// A model with the same depth, but two heads of six channels and an MLP of width four. With 4 or 8 tensor-parallel
// ranks, ranks hold parts of heads or replicate them.
ModelConfig narrowed(const Case&);

// Values of a weight of the cases, by its Hugging Face name and flat logical index.
class WeightValues {
 public:
  explicit WeightValues(const Weight&);
  double operator()(Index i) const;

 private:
  double base_ = 0, scale_ = 0;
  std::uint32_t name_;
};
void set_weights(Engine&);

// Sequences [first, first + batch) of the cases' tokens. Labels are the next tokens; the last one of each sequence is
// ignored.
MicroBatch micro_batch(Index first, Index batch, Index seq_length, Index vocab_size);

// Turns the batch into packed documents of these lengths, rotated from sequence to sequence (positions_of). `first` is
// the number of the batch's first sequence. The last token of each document has no label.
MicroBatch packed(MicroBatch, const Lengths&, Index first = 0);
// Adds the inputs and labels of this number of MTP depths.
MicroBatch with_future_tokens(MicroBatch, Index depths);
// Splits packed sequences into one micro-batch per document.
std::vector<MicroBatch> split_documents(const MicroBatch&);

// The configuration with the precision of T.
template <class T>
EngineConfig in(EngineConfig config) {
  config.precision = dtype_of<T>();
  return config;
}

// An engine on `grid` with the weights of the cases; a dry run determines its memory. `working`: working memory shared
// with other engines (engine.hpp).
struct AnyRig {
  AnyRig(const EngineConfig& config, Grid& grid, const Arena* working = nullptr);
  Timers timers;
  Capacity capacity;
  Engine engine;
};
template <class T>
struct Rig : AnyRig {
  Rig(const EngineConfig& config, Grid& grid) : AnyRig(in<T>(config), grid) {}
};

// True if a layer type reads or ends another text than the one that the model predicts.
inline bool of_encoder_and_decoder(const LayerType& type) {
  return type.traits.reads_source() || type.symbol == encoder_end || type.symbol == tower_end;
}

// Grid of this single process.
Grid& single_rank_grid(Index layers);
// Barrier over all ranks of the program that polls and sleeps instead of blocking inside MPI.
void sync_ranks();

}  // namespace gyr::testing
