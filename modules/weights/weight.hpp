// SPDX-License-Identifier: BSD-3-Clause
// Declaration of a weight: its name, its logical shape and how it is sharded over the axes of the grid. Allocation,
// initial values, gradient reduction, the gradient norm, checkpoint slabs, resharding and parameter counts follow from
// this declaration.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/box.hpp"
#include "kernels/base/tensor.hpp"
#include "kernels/device/random.hpp"
#include "modules/weights/axis.hpp"

namespace gyr {

// A run of consecutive rows (or columns) that consists of equal units (heads, groups). The units are sharded over the
// ranks in order. With more units than ranks, each rank holds units / ranks of them. With fewer units, ranks / units
// neighbouring ranks hold the same unit and sum its gradient. If the unit is divisible, each of these ranks holds a
// different part of it, as far as its rows divide; only remaining ranks hold the same part. units == 0: single rows,
// sharded as evenly as possible; the last rank holds fewer rows and pads them (vocabularies).
struct Run {
  Index extent;
  Index units;
  bool divisible = false;
  const char* key = "";  // deck key below `model` that sets the number of units
};

// Sharding of one dimension over the ranks of one axis.
struct Sharding {
  Axis axis = Axis::tensor;
  int dim = 0;
  std::vector<Run> runs;
};
// Shardings over several axes, each along another dimension. Empty: every rank holds the full weight.
using Shardings = std::vector<Sharding>;
inline Shardings replicated() { return {}; }
inline Shardings by_rows(std::vector<Run> runs, Axis axis = Axis::tensor) { return {{axis, 0, std::move(runs)}}; }
inline Shardings by_columns(std::vector<Run> runs, Axis axis = Axis::tensor) { return {{axis, 1, std::move(runs)}}; }

// Distribution of the initial values.
struct Init {
  enum Kind { constant, normal, uniform, log_of_uniform, step_bias } kind = constant;
  double a = 0, b = 0;  // by kind: value | mean, std | low, high | low, high | dt low, dt high
};
inline Init constant(double value) { return {Init::constant, value}; }
inline Init ones() { return {Init::constant, 1}; }
inline Init zeros() { return {Init::constant, 0}; }
inline Init normal(double std) { return {Init::normal, 0, std}; }
inline Init uniform(double bound) { return {Init::uniform, -bound, bound}; }
inline Init log_of_uniform(double low, double high) { return {Init::log_of_uniform, low, high}; }
// softplus^-1(dt) with dt log-uniform in [low, high], at least 1e-4: the bias of Mamba's time steps.
inline Init step_bias(double low, double high) { return {Init::step_bias, low, high}; }
double draw(const Init&, const Stream&, Index element);

// Storage precision: narrow is the dtype of the model, wide that of its accumulators. A factor is narrow and is read
// only by linear layers, which also accept it in int8.
enum class Storage { narrow, wide, factor };
enum class Factors { stored, int8 };  // storage format of factors in a model for inference
// GEMMs of the linear layers of attention, SSM and MLP: with the weights as stored, or with ternary weights and int8 activations, which are
// quantized in every forward (kernels/ops/ternary/ternary.hpp).
enum class LinearLayers { full, ternary };

// Index of the expert that a weight belongs to; count == 0: it belongs to no expert.
struct ExpertNumber {
  Index number = 0, count = 0;

  explicit operator bool() const { return count > 0; }
};

struct Weight {
  std::string name;  // name in Hugging Face checkpoints
  Shape shape;       // logical shape, unsharded
  Shardings shardings;
  Init init;
  Storage storage = Storage::narrow;
  bool decays = true;        // true: weight decay applies
  bool of_heads = false;     // the weight works on the heads of all tensor-parallel ranks: each rank has a partial gradient
  bool of_rows = false;      // the weight works on rows of the residual stream: with sequence parallelism each rank has a partial gradient
  bool learns = true;        // false: the weight has no gradient and is treated as frozen
  double tokens = 1;         // fraction of all tokens that are multiplied by the weight
  bool of_source = false;    // `tokens` counts tokens of the encoder input, not of the text
  Span team = {0, 0};        // tensor-parallel ranks that hold the weight, the others have nothing; empty: all ranks hold it
  ExpertNumber expert = {};  // expert that the weight belongs to; expert-parallel ranks hold only the weights of their own experts
  bool adapts = false;       // the layer applies a LoRA adapter to the weight, if there is one (adapter.hpp)
  bool of_adapter = false;   // the weight is part of a LoRA adapter
  bool of_output = false;    // output matrix of a head: each row computes a logit or score

  Index size() const { return elements(shape); }
  const Sharding* sharding(Axis axis) const {
    for (const Sharding& s : shardings)
      if (s.axis == axis) return &s;
    return nullptr;
  }
};

// Marks a weight whose layer supports a LoRA adapter.
inline Weight adapting(Weight w) {
  w.adapts = true;
  return w;
}

}  // namespace gyr
