// SPDX-License-Identifier: BSD-3-Clause
// The tiny models every proof runs on: configurations T1 to T11 with weights and tokens that are functions of name and index,
// and reference values from two independent double-precision formulations of the model (sequential recurrence; full semiseparable
// matrix), which agreed to 1e-15.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "regression/support/documents.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/verify/gathered_gradients.hpp"

namespace gyr::testing {

struct Reference {
  Index parameters;
  double loss;
  std::vector<double> logits;  // [0, T-1, 0..2]
  double logits_sum;           // of absolute values
  double gradient_norm;
  std::map<std::string, double> gradient_norms;  // of single weights
};

struct Case {
  std::string name;
  ModelConfig model;
  Index batch, seq_length;
  Reference reference;
};

const std::vector<Case>& cases();
const Case& named(std::string_view name);
// The same kind of model, wide enough for 8 tensor ranks and deep enough for 8 stages: 8 heads, 8 layers.
ModelConfig widened(const Case&);
// As deep, but with two heads of six channels and four in the MLP: 4 and 8 tensor ranks hold parts of heads, and some the same as others.
ModelConfig narrowed(const Case&);

// The weights of the cases by Hugging Face name and flat logical index.
class WeightValues {
 public:
  explicit WeightValues(const Weight&);
  double operator()(Index i) const;

 private:
  double base_ = 0, scale_ = 0;
  std::uint32_t name_;
};
void set_weights(Engine&);

// Sequences `first` to `first + batch` of the cases' tokens; labels are the next tokens, the last one ignored.
MicroBatch micro_batch(Index first, Index batch, Index seq_length, Index vocab_size);

// The same tokens as documents of these lengths, in other turns in every sequence (positions_of), of which the batch begins with number
// `first`; the last token of each document has no label.
MicroBatch packed(MicroBatch, const Lengths&, Index first = 0);
// Each document alone.
std::vector<MicroBatch> split_documents(const MicroBatch&);

// The same in the precision of T.
template <class T>
EngineConfig in(EngineConfig config) {
  config.precision = dtype_of<T>();
  return config;
}

// An engine on `grid` with the weights of the cases, its memory sized by a dry run. `working`: shared with others (engine.hpp).
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

// Whether a layer type stands in models with an encoder and a decoder alone.
inline bool of_encoder_and_decoder(const LayerType& type) { return type.symbol == 'X' || type.symbol == encoder_end; }

// The grid of this process alone.
Grid& alone(Index layers);
// Waiting without blocking inside MPI until all ranks of the program are here.
void meet();

}  // namespace gyr::testing
