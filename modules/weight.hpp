// SPDX-License-Identifier: BSD-3-Clause
// A weight is declared once: its name, its logical shape and how it is sharded over the ranks of the tensor axis. Allocation, initial
// values, gradient reduction, who counts in the norm, checkpoint slabs, resharding and parameter counts follow from this line.
#pragma once

#include <string>
#include <vector>

#include "kernels/random.hpp"
#include "kernels/tensor.hpp"

namespace gyr {

// Consecutive rows (or columns) made of equal units (heads, groups) that are sharded over the ranks in order.
// More units than ranks: each rank holds units/ranks of them. Fewer: ranks/units neighbours hold the same unit and sum its gradient; of a
// divisible unit each of them holds another part, as far as its rows divide, and only those left over hold the same part.
// units == 0: single rows sharded as evenly as they go, the last rank holding fewer and padding the rest (vocabularies).
struct Run {
  Index extent;
  Index units;
  bool divisible = false;
};

struct Sharding {
  int dim = 0;            // which dimension is sharded
  std::vector<Run> runs;  // none: every rank holds the whole
};
inline Sharding replicated() { return {}; }
inline Sharding by_rows(std::vector<Run> runs) { return {0, std::move(runs)}; }
inline Sharding by_columns(std::vector<Run> runs) { return {1, std::move(runs)}; }

// Where initial values come from.
struct Init {
  enum Kind { constant, normal, uniform, log_of_uniform, step_bias } kind = constant;
  double a = 0, b = 0;  // value | mean, std | low, high | low, high | dt low, dt high
};
inline Init ones() { return {Init::constant, 1}; }
inline Init zeros() { return {Init::constant, 0}; }
inline Init normal(double std) { return {Init::normal, 0, std}; }
inline Init uniform(double bound) { return {Init::uniform, -bound, bound}; }
inline Init log_of_uniform(double low, double high) { return {Init::log_of_uniform, low, high}; }
// softplus^-1(dt) of dt log-uniform in [low, high], at least 1e-4: the bias of Mamba's time steps.
inline Init step_bias(double low, double high) { return {Init::step_bias, low, high}; }
double draw(const Init&, const Stream&, Index element);

enum class Storage { narrow, wide };  // in the model's scalar, or always in its accumulator

struct Weight {
  std::string name;  // Hugging Face's name
  Shape shape;       // logical, whole
  Sharding sharding;
  Init init;
  Storage storage = Storage::narrow;
  bool decays = true;  // weight decay applies

  Index size() const { return elements(shape); }
};

// A part of the sharded dimension that this rank holds: logical [global, global + extent) lies at [local, local + extent).
struct Piece {
  Index global, local, extent;
  int replicas;  // neighbours that hold the same
  int replica;   // which of them this rank is
};

struct Shard {
  Shape shape;                // local
  std::vector<Piece> pieces;  // along sharding.dim (dimension 0 where replicated)
};

// What rank `rank` of `ranks` holds of a weight; Exit::config naming the counts that would work where units do not divide.
Shard shard(const Weight&, int ranks, int rank);

}  // namespace gyr
