// SPDX-License-Identifier: BSD-3-Clause
// What a rank holds of each weight: its value and, unless it is frozen, its gradient. All gradients of a rank lie in one flat run, in the
// order of declaration, so that reductions and the optimizer see ranges; frozen weights take no room there.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "kernels/any_tensor.hpp"
#include "kernels/blocked_communicator.hpp"
#include "modules/placement.hpp"

namespace gyr {

class Parameter {
 public:
  Weight weight;
  Placement held;       // on this rank
  Index offset = 0;     // in the flat run of gradients
  bool trained = true;  // false: frozen, without gradient and optimizer state
  bool tied = false;    // another stage holds the same weight and counts it

  Index size() const { return elements(held.shape); }
  // The first element that this rank holds along a dimension.
  Index first(int dim) const { return held.boxes.empty() ? weight.shape[dim] : held.boxes[0].box.first[dim]; }
  // Of those that hold the same part, whether this rank is the first.
  bool contributes() const { return held.boxes.empty() || held.boxes[0].first_copy(); }
  Index rows() const { return held.shape[0]; }
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
  DType dtype() const { return dtype_; }
  AnyTensor value() const { return {value_, dtype_, size()}; }
  AnyTensor gradient() const { return {gradient_, accumulator_of(dtype_), size()}; }  // absent where the weight is frozen

 private:
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

using ParameterList = std::span<const std::unique_ptr<Parameter>>;

enum class Gradients { none, kept };
using Trained = std::function<bool(const Weight&)>;  // whether a weight is trained; all are where empty

class Parameters {
 public:
  // `dtype`: the model's scalar. `at`: where the rank stands along the axes that weights are sharded over. Ranks along others hold the same and do
  // not count as copies.
  Parameters(DType dtype, const Coordinates& at, Trained trained = {}) : dtype_(dtype), at_(at), trained_(std::move(trained)) {}

  // Declares a weight. `adjacent`: directly behind the previous one in memory, so that one product can serve both; so do their gradients
  // where both are trained.
  enum class Fit { aligned, adjacent };
  Parameter& declare(Weight weight, Fit = Fit::aligned);

  void allocate(Arena& weights, Arena& gradients, Gradients);

  DType dtype() const { return dtype_; }
  const Coordinates& coordinates() const { return at_; }
  Index extent() const { return extent_; }                   // of the flat run, with its padding
  const AnyTensor& gradients() const { return gradients_; }  // (extent), in the accumulator's precision
  const std::vector<std::unique_ptr<Parameter>>& all() const { return all_; }

  // Sums gradients that are parts of a sum: of what several ranks of an axis hold because there are fewer units than ranks, and, with
  // `split_rows`, of weights that work on shares of rows on all of them. One all-reduce per number of copies.
  void reduce_copies(Device&, Arena& communication, Axis, BlockedCommunicator& along, bool split_rows) const;
  // Numbers of copies that occur, besides 1 and those of weights that are not sharded over the axis (their gradients are equal everywhere).
  std::vector<int> copy_counts(Axis) const;

 private:
  DType dtype_;
  Coordinates at_;
  std::vector<std::unique_ptr<Parameter>> all_;
  Trained trained_;
  Index extent_ = 0, value_extent_ = 0, wide_extent_ = 0;
  std::vector<Index> value_offset_, wide_offset_;
  AnyTensor gradients_;
};

// value(local element) = source(logical element), on the host side of the device's memory.
void assign(Device&, const Parameter&, const std::function<double(Index)>& source);
// Draws a parameter's initial values by (seed, name, logical element): every layout gets the same numbers.
void initialise(Device&, const Parameter&, std::uint64_t seed);

template <class Visit>
void stretches(const Parameter& p, Visit&& visit) {
  stretches(p.weight, p.held, visit);
}

}  // namespace gyr
