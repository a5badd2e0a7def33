// SPDX-License-Identifier: BSD-3-Clause
// A weight is declared once: its name, its logical shape and how it is sharded over axes of the grid. Allocation, initial values, gradient
// reduction, who counts in the norm, checkpoint slabs, resharding and parameter counts follow from this line.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/box.hpp"
#include "kernels/base/tensor.hpp"
#include "kernels/device/random.hpp"
#include "modules/weights/axis.hpp"

namespace gyr {

// Consecutive rows (or columns) made of equal units (heads, groups) that are sharded over the ranks in order.
// More units than ranks: each rank holds units/ranks of them. Fewer: ranks/units neighbours hold the same unit and sum its gradient; of a
// divisible unit each of them holds another part, as far as its rows divide, and only those left over hold the same part.
// units == 0: single rows sharded as evenly as they go, the last rank holding fewer and padding the rest (vocabularies).
struct Run {
  Index extent;
  Index units;
  bool divisible = false;
  const char* key = "";  // of the deck, below model: what says how many units there are
};

// How one dimension is sharded over the ranks of one axis.
struct Sharding {
  Axis axis = Axis::tensor;
  int dim = 0;
  std::vector<Run> runs;
};
// Over several axes at once: each another dimension. None: every rank holds the whole.
using Shardings = std::vector<Sharding>;
inline Shardings replicated() { return {}; }
inline Shardings by_rows(std::vector<Run> runs, Axis axis = Axis::tensor) { return {{axis, 0, std::move(runs)}}; }
inline Shardings by_columns(std::vector<Run> runs, Axis axis = Axis::tensor) { return {{axis, 1, std::move(runs)}}; }

// Where initial values come from.
struct Init {
  enum Kind { constant, normal, uniform, log_of_uniform, step_bias } kind = constant;
  double a = 0, b = 0;  // value | mean, std | low, high | low, high | dt low, dt high
};
inline Init constant(double value) { return {Init::constant, value}; }
inline Init ones() { return {Init::constant, 1}; }
inline Init zeros() { return {Init::constant, 0}; }
inline Init normal(double std) { return {Init::normal, 0, std}; }
inline Init uniform(double bound) { return {Init::uniform, -bound, bound}; }
inline Init log_of_uniform(double low, double high) { return {Init::log_of_uniform, low, high}; }
// softplus^-1(dt) of dt log-uniform in [low, high], at least 1e-4: the bias of Mamba's time steps.
inline Init step_bias(double low, double high) { return {Init::step_bias, low, high}; }
double draw(const Init&, const Stream&, Index element);

// In the model's scalar, or always in its accumulator. A factor is narrow and read by linear layers alone, which take it in int8 too.
enum class Storage { narrow, wide, factor };
enum class Factors { stored, int8 };  // how a model that is only read holds its factors

// Which of a layer's experts a weight belongs to: to none where they are none.
struct ExpertNumber {
  Index number = 0, count = 0;

  explicit operator bool() const { return count > 0; }
};

struct Weight {
  std::string name;  // Hugging Face's name
  Shape shape;       // logical, whole
  Shardings shardings;
  Init init;
  Storage storage = Storage::narrow;
  bool decays = true;        // weight decay applies
  bool of_heads = false;     // works on heads of all ranks: each has a part of its gradient
  bool of_rows = false;      // works on rows of the residual stream: where ranks keep shares of these, each has a part of its gradient
  bool learns = true;        // by its gradient; false: it has none, and is held as if it were frozen
  double tokens = 1;         // the part of all tokens that are multiplied with it
  bool of_source = false;    // these being the source's, not the text's
  Span team = {0, 0};        // the ranks of the tensor axis that hold it among themselves, the others nothing; empty: all of them hold it
  ExpertNumber expert = {};  // whose it is: ranks that deal experts among themselves hold those of their own alone
  bool adapts = false;       // its layer computes with an adapter beside it, if it has one (adapter.hpp)
  bool of_adapter = false;   // it is a part of one

  Index size() const { return elements(shape); }
  const Sharding* sharding(Axis axis) const {
    for (const Sharding& s : shardings)
      if (s.axis == axis) return &s;
    return nullptr;
  }
};

// The weight of a layer that computes with an adapter beside it.
inline Weight adapting(Weight w) {
  w.adapts = true;
  return w;
}

}  // namespace gyr
