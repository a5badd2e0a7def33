// SPDX-License-Identifier: BSD-3-Clause
// What a rank holds of each weight: its value and, unless it is frozen, its gradient. All gradients of a rank lie in one flat run, in the
// order of declaration, so that reductions and the optimizer see ranges; frozen weights take no room there.
#pragma once

#include <functional>
#include <memory>

#include "kernels/blocked_communicator.hpp"
#include "modules/weight.hpp"

namespace gyr {

class Parameter {
 public:
  Weight weight;
  Shard shard;
  Index offset = 0;     // in the flat run of gradients
  bool trained = true;  // false: frozen, without gradient and optimizer state
  bool tied = false;    // another stage holds the same weight and counts it

  Index size() const { return elements(shard.shape); }
  // Of neighbours on the tensor axis that hold the same part, whether this rank is the first.
  bool contributes() const { return shard.pieces[0].replica == 0; }
  Index rows() const { return shard.shape[0]; }
  Index columns() const { return size() / rows(); }

  template <class S>
  Tensor1<S> vector() const {
    return Tensor1<S>(typed<S>(value_), size());
  }
  template <class S>
  Tensor2<S> matrix() const {
    return Tensor2<S>(typed<S>(value_), rows(), columns());
  }
  // Empty where the weight is frozen.
  template <class A>
  Tensor1<A> vector_gradient() const {
    return trained ? Tensor1<A>(static_cast<A*>(gradient_), size()) : Tensor1<A>();
  }
  template <class A>
  Tensor2<A> matrix_gradient() const {
    return trained ? Tensor2<A>(static_cast<A*>(gradient_), rows(), columns()) : Tensor2<A>();
  }
  bool has_gradient() const { return gradient_ != nullptr; }
  DType dtype() const { return dtype_; }

 private:
  template <class T>
  friend class Parameters;
  template <class S>
  S* typed(void* p) const {
    ensure(dtype_of<std::remove_const_t<S>>() == dtype_, "{} is stored as {}", weight.name, name_of(dtype_));
    return static_cast<S*>(p);
  }
  DType dtype_ = DType::f32;
  void* value_ = nullptr;
  void* gradient_ = nullptr;
};

enum class Gradients { none, kept };
using Trained = std::function<bool(const Weight&)>;  // whether a weight is trained; all are where empty

template <class T>
class Parameters {
 public:
  Parameters(int ranks, int rank, Trained trained = {}) : ranks_(ranks), rank_(rank), trained_(std::move(trained)) {}

  // Declares a weight. `adjacent`: directly behind the previous one in memory, so that one product can serve both; so do their gradients
  // where both are trained.
  enum class Placement { aligned, adjacent };
  Parameter& declare(Weight weight, Placement placement = Placement::aligned);

  void allocate(Arena& weights, Arena& gradients, Gradients);

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  Index extent() const { return extent_; }                  // of the flat run, with its padding
  Tensor1<Acc<T>> gradients() const { return gradients_; }  // (extent)
  const std::vector<std::unique_ptr<Parameter>>& all() const { return all_; }

  // Sums gradients of units that several neighbours of the tensor axis hold: one all-reduce per number of replicas.
  void reduce_replicas(Device&, Arena& communication, BlockedCommunicator& tensor) const;
  // Numbers of replicas that occur, besides 1 and the weights every rank holds whole (their gradients are equal everywhere).
  std::vector<int> replica_counts() const;

 private:
  int ranks_, rank_;
  std::vector<std::unique_ptr<Parameter>> all_;
  Trained trained_;
  Index extent_ = 0, value_extent_ = 0, wide_extent_ = 0;
  std::vector<Index> value_offset_, wide_offset_;
  Tensor1<Acc<T>> gradients_;
};

// value(local element) = source(logical element), on the host side of the device's memory.
template <class T>
void assign(Device&, const Parameter&, const std::function<double(Index)>& source);
// Draws a parameter's initial values by (seed, name, logical element): every layout gets the same numbers.
template <class T>
void initialise(Device&, const Parameter&, std::uint64_t seed);

// Visits each contiguous stretch a rank holds: logical first element, local first element, count; whether this rank is the first
// of those that hold it.
template <class Visit>
void stretches(const Parameter& p, Visit&& visit) {
  const Weight& w = p.weight;
  Index inner = 1, outer = 1;  // elements behind and before the sharded dimension
  for (int d = w.sharding.dim + 1; d < int(w.shape.size()); ++d) inner *= w.shape[d];
  for (int d = 0; d < w.sharding.dim; ++d) outer *= w.shape[d];
  const Index whole = w.shape[w.sharding.dim] * inner, local = p.shard.shape[w.sharding.dim] * inner;
  for (const Piece& piece : p.shard.pieces)
    for (Index o = 0; o < outer; ++o)
      if (piece.extent > 0) visit(o * whole + piece.global * inner, o * local + piece.local * inner, piece.extent * inner, piece);
}

}  // namespace gyr
