// SPDX-License-Identifier: BSD-3-Clause
// What a rank holds of each weight: its value and, unless it is frozen, its gradient. Gradients lie in one flat run, bucket behind bucket, so
// that reductions and the optimizer see ranges; frozen weights take no room there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "kernels/comm/blocked_communicator.hpp"
#include "modules/weights/adapter.hpp"
#include "modules/weights/expert_load.hpp"
#include "modules/weights/factor.hpp"
#include "modules/weights/mixers.hpp"
#include "modules/weights/shard.hpp"

namespace gyr {

class Parameter;

// What is trained beside a weight: it is computed with as w + scale b a.
struct Adapter {
  Parameter *a = nullptr, *b = nullptr;
  double scale = 0;
};

class Parameter {
 public:
  Weight weight;
  std::optional<Adapter> adapter;
  Placement held;       // on this rank
  bool trained = true;  // false: frozen, without gradient and optimizer state
  bool tied = false;    // another stage holds the same weight and counts it

  Index size() const { return elements(held.shape); }
  // The first element that this rank holds along a dimension.
  Index first(int dim) const { return held.boxes.empty() ? weight.shape[dim] : held.boxes[0].box.first[dim]; }
  // Of those that hold the same part, whether this rank is the first.
  bool contributes() const { return held.boxes.empty() || held.boxes[0].first_copy(); }
  Index rows() const { return held.shape[0]; }
  Index columns() const { return size() / rows(); }

  // Of the whole share: where weights or gradients are cut, only between the call of Parameters::bind and the next one.
  template <class S>
  Tensor1<S> vector() const {
    return Tensor1<S>(typed<S>(value_), size());
  }
  template <class S>
  Tensor2<S> matrix() const {
    return Tensor2<S>(typed<S>(value_), rows(), columns());
  }
  // What a linear layer multiplies with: this share, with the rows of those declared adjacent to it up to so many.
  template <class T>
  Factor<T> factor(Index rows = 0) const {
    const Index all = std::max(rows, this->rows());
    if (int8_) return {{}, {int8_.values, int8_.scales, all, columns()}};
    return {{typed<const T>(value_), all, columns(), columns()}};
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

  // What this rank keeps: the share, or its part of it. The gradient's is whole once it is reduced; absent where the weight is frozen.
  Piece kept_value() const;
  Piece kept_gradient() const;
  // The part that this rank updates, and the same of a run in which the parts of all weights lie as in the optimizer's.
  Span updated() const { return cut_.of(size(), part_); }
  Piece kept_in(const AnyTensor& run) const { return {gyr::rows(run, kept_offset_, updated().size()), updated()}; }
  const FlatCut& cut() const { return cut_; }
  int group() const { return group_; }

 private:
  friend class Parameters;
  template <class S>
  S* typed(void* p) const {
    ensure(dtype_of<std::remove_const_t<S>>() == dtype_, "{} is stored as {}", weight.name, name_of(dtype_));
    return static_cast<S*>(p);
  }
  DType dtype_ = DType::f32;
  void *value_ = nullptr, *gradient_ = nullptr;
  Int8Matrix int8_;  // in its place
  bool value_is_cut_ = false, gradient_is_cut_ = false;
  void *kept_value_ = nullptr, *kept_gradient_ = nullptr;  // where it is
  int group_ = 0, cluster_ = 0, section_ = 0;              // cluster: neighbours that one product serves
  FlatCut cut_;
  int part_ = 0;
  Index gradient_offset_ = 0, kept_offset_ = 0;  // in the section; in a run of what this rank updates
};

using ParameterList = std::span<const std::unique_ptr<Parameter>>;
using Arrived = std::function<void(const Parameter&)>;  // told of each weight when it is there, before the next one comes

// Weights of one type in a bucket, all trained or all frozen; but frozen ones among trained neighbours that one product serves are with these, and
// where what is kept is cut they take room as these do. What a team holds is apart, so that what all ranks of the tensor axis hold lies, and is cut,
// alike on them; so are experts that ranks deal among themselves, which fewer ranks hold.
struct WeightSection {
  bool trained, of_experts, wide, of_team;
  Coordinate ranks = {};                      // that hold the same and may cut it, and this one of them
  Index size = 0, gradient_size = 0;          // elements, padded so that all parts are equal
  Index values = 0, gradients = 0;            // where they begin: in the run of the type; in that of gradients, where trained
  Index kept_values = 0, kept_gradients = 0;  // the same in runs of what each of the ranks keeps
  Index kept_size() const { return size / ranks.ranks; }
  Index kept_gradient_size() const { return gradient_size / ranks.ranks; }
};

// Weights that are reduced and gathered together.
struct Bucket {
  Span groups;      // of declarations
  bool kept_whole;  // in a step, even where weights are cut
  std::vector<WeightSection> sections;
};

enum class Gradients { none, kept };
using Trained = std::function<bool(const Weight&)>;  // whether a weight is trained; all are where empty

class Parameters {
 public:
  // `dtype`: the model's scalar. `at`: where the rank stands along the axes that weights are sharded over. Ranks along others hold the same and do
  // not count as copies; they may cut among themselves what they keep.
  Parameters(DType dtype, const Coordinates& at, Trained trained = {}, const ShardedOver& over = {}, const Mixers& mixers = Mixers::together())
      : dtype_(dtype), at_(at), trained_(std::move(trained)), over_(over.level == Shard::none ? ShardedOver() : over), mixers_(mixers) {}

  // Declares a weight. `adjacent`: directly behind the previous one in memory, so that one product can serve both; so do their gradients
  // where both are trained.
  enum class Fit { aligned, adjacent };
  Parameter& declare(Weight weight, Fit = Fit::aligned);

  // Weights that are targets have adapters, declared behind the neighbours that one product serves; said before anything is declared.
  void adapt(const LoraConfig& lora) { lora_ = lora; }
  void declare_adapters();  // of the last of them

  // While it lives, what is declared belongs to some ranks of the tensor axis, of which this is one.
  class Team {
   public:
    Team(Parameters&, const Span& ranks);
    ~Team() { parameters_.team_ = {0, 0}; }
    Team(const Team&) = delete;

   private:
    Parameters& parameters_;
  };
  const Mixers& mixers() const { return mixers_; }
  // Whether this rank is one of a team's.
  bool in(const Span& team) const { return within(team, at_).has_value(); }

  // What is declared from now on belongs to another group: the least that makes a bucket.
  void begin_group();
  // The group is a bucket of its own, and kept whole during a step: of what is used at both ends of the model.
  void keep_whole();
  int groups() const { return int(groups_.size()); }

  // Factors are held so; said before all is laid out, and not of what is trained.
  void hold(Factors factors) { factors_ = factors; }

  ExpertLoads& expert_loads() { return expert_loads_; }
  const ExpertLoads& expert_loads() const { return expert_loads_; }

  // Says where everything lies: buckets of at least so many bytes of gradients, the last groups first. No declarations behind it.
  void lay_out(Index bucket_bytes);
  void allocate(Arena& weights, Arena& gradients, Gradients);

  // Where factors are held in int8, they arrive one after the other in memory for the largest of them, and are taken from there. Without memory none
  // arrives.
  bool in_int8(const Parameter& p) const { return factors_ == Factors::int8 && p.weight.storage == Storage::factor; }
  Index largest_int8_weight() const;  // elements
  void load_into(const AnyTensor& memory);
  void quantize_loaded(Device&, const Parameter&);

  DType dtype() const { return dtype_; }
  Shard shard() const { return over_.level; }
  // Among those that what is declared belongs to.
  Coordinates coordinates() const { return *within(team_, at_); }
  // The experts of so many that this rank has.
  Span experts(Index count) const { return experts_of(at_.experts, count); }
  // Whether this rank counts a weight in sums over those that deal experts among themselves, all of which keep whatever belongs to no expert.
  bool counts(const Parameter& p) const;
  const std::vector<std::unique_ptr<Parameter>>& all() const { return all_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int bucket_of(int group) const;
  Index extent() const { return extent_; }            // of the flat run of gradients, with its padding
  Index kept_extent() const { return kept_extent_; }  // of the part this rank updates
  // The flat run, in the accumulator's precision: (extent), or the part this rank keeps.
  const AnyTensor& gradients() const { return gradients_; }
  // What this rank keeps of it once it is reduced.
  std::vector<AnyTensor> kept_gradients() const;

  // A run and this rank's part of it, in its place there or apart. Other ranks hold the same of experts than of what else there is.
  struct Distribution {
    AnyTensor all, mine;
    bool of_experts;
  };
  // A bucket's values and gradients where they are whole. `buffer`: which of the two that take turns, where no place of their own is kept.
  std::vector<Distribution> values(int bucket, int buffer) const;
  std::vector<Distribution> gradients(int bucket, int buffer) const;
  // The same, one behind the other in other memory: in another scalar perhaps.
  std::vector<Distribution> gradients_in(const AnyTensor& memory, int bucket) const;
  Index gradient_size(int bucket) const;  // elements of all of them
  // The bucket's weights are computed with there from now on.
  void bind_values(int bucket, int buffer);
  void bind_gradients(int bucket, int buffer);
  // Adds what has been reduced in a buffer to what this rank keeps.
  void keep_gradients(Device&, int bucket, int buffer);

  // Sums gradients that are parts of a sum: of what several ranks of an axis hold because there are fewer units than ranks, and, with
  // `split_rows`, of weights that work on shares of rows on all of them. One all-reduce per number of copies. Of weights that teams hold, or of
  // those that all hold: `along` is the team or the axis.
  enum class Holders { all, team };
  void reduce_copies(Device&, Arena& communication, Axis, Holders, BlockedCommunicator& along, bool split_rows) const;
  // Numbers of copies that occur, besides 1 and those of weights that are not sharded over the axis (their gradients are equal everywhere).
  std::vector<int> copy_counts(Axis, Holders) const;

 private:
  struct Group {
    std::size_t first;  // in the list
    bool whole = false;
  };
  // Memory of the values of a bucket, by type.
  struct Values {
    AnyTensor narrow, wide;
  };
  static bool held_by(Holders who, const Weight& w) { return (w.team.size() > 0) == (who == Holders::team); }
  bool one_type() const { return dtype_ == accumulator_of(dtype_); }
  bool is_expert_sharded(const Parameter& p) const { return p.weight.expert && at_.experts.ranks > 1; }
  bool is_wide(const Parameter& p) const { return !one_type() && p.weight.storage == Storage::wide; }
  Span parameters_of(const Span& groups) const;
  void make_buckets(Index bucket_bytes);
  void place(Bucket&);
  WeightSection section(const Bucket&, WeightSection, int number);
  void allocate_values(Arena&);
  void allocate_int8(Arena&);
  void allocate_gradients(Arena&);
  Coordinate cutting(bool of_experts) const;
  int buffers() const;
  template <class Visit>
  void for_each_in(int bucket, Visit&& visit);

  DType dtype_;
  Coordinates at_;
  std::vector<std::unique_ptr<Parameter>> all_;
  Trained trained_;
  ShardedOver over_;
  Mixers mixers_;
  LoraConfig lora_;
  std::vector<Parameter*> without_adapter_;  // targets that wait for theirs
  Span team_ = {0, 0};
  Factors factors_ = Factors::stored;
  ExpertLoads expert_loads_;
  std::vector<Group> groups_;
  std::vector<bool> cluster_trained_;
  std::vector<Bucket> buckets_;
  Index extent_ = 0, narrow_extent_ = 0, wide_extent_ = 0;
  Index kept_extent_ = 0, kept_narrow_extent_ = 0, kept_wide_extent_ = 0;
  Values values_;        // whole, or this rank's part
  AnyTensor gradients_;  // the same
  std::array<Values, 2> value_buffers_;
  std::array<AnyTensor, 2> gradient_buffers_;
  std::vector<Values> whole_values_;  // by bucket, of those that are kept whole
  std::vector<AnyTensor> whole_gradients_;
};

// value(local element) = source(logical element), of what the rank keeps, on the host side of the device's memory; by several threads at a time.
void assign(Device&, const Parameter&, const std::function<double(Index)>& source);
// Draws a parameter's initial values by (seed, name, logical element): every layout gets the same numbers.
void initialise(Device&, const Parameter&, std::uint64_t seed);

template <class Visit>
void stretches(const Parameter& p, Visit&& visit) {
  stretches(p.weight, p.held, visit);
}
// The same of a part of the share: local elements are counted in the part.
template <class Visit>
void stretches(const Parameter& p, const Span& of, Visit&& visit) {
  stretches(p, [&](Index logical, Index local, Index count, const Held& held) {
    const Index first = std::max(local, of.first), last = std::min(local + count, of.last);
    if (first < last) visit(logical + first - local, first - of.first, last - first, held);
  });
}

}  // namespace gyr
