// SPDX-License-Identifier: BSD-3-Clause
// Weights as a rank stores them: the value of each weight and, unless it is frozen, its gradient. Gradients are stored
// in one flat buffer, bucket after bucket, so that reductions and the optimizer work on ranges. Frozen weights take no
// space there.
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

// LoRA adapter of a weight: layers compute with w + scale b a.
struct Adapter {
  Parameter *a = nullptr, *b = nullptr;
  double scale = 0;
};

class Parameter {
 public:
  Weight weight;
  std::optional<Adapter> adapter;
  Placement held;        // shape and boxes of this rank's tensor-parallel shard of the weight
  bool trained = true;   // false: frozen, without gradient and optimizer state
  bool ternary = false;  // true: the layer computes with the quantized weight (ternary_linear.hpp)
  bool tied = false;     // true: another pipeline stage holds the same weight and counts it in norms and checkpoints

  Index size() const { return elements(held.shape); }
  // First logical index that this rank holds along a dimension.
  Index first(int dim) const { return held.boxes.empty() ? weight.shape[dim] : held.boxes[0].box.first[dim]; }
  // True if this rank is the first of the ranks that hold the same shard.
  bool contributes() const { return held.boxes.empty() || held.boxes[0].first_copy(); }
  Index rows() const { return held.shape[0]; }
  Index columns() const { return size() / rows(); }

  // Views of this rank's tensor-parallel shard. With ZeRO sharding they are valid from a call of
  // Parameters::bind_values or bind_gradients to the next.
  template <class S>
  Tensor1<S> vector() const {
    return Tensor1<S>(typed<S>(value_), size());
  }
  template <class S>
  Tensor2<S> matrix() const {
    return Tensor2<S>(typed<S>(value_), rows(), columns());
  }
  // Operand of a linear layer: this shard, followed by the shards of adjacent weights up to `rows` rows in total.
  template <class T>
  Factor<T> factor(Index rows = 0) const {
    const Index all = std::max(rows, this->rows());
    if (int8_) return {{}, {int8_.values, int8_.scales, all, columns()}};
    return {{typed<const T>(value_), all, columns(), columns()}};
  }
  // Empty if the weight is frozen.
  template <class A>
  Tensor1<A> vector_gradient() const {
    return trained ? Tensor1<A>(static_cast<A*>(gradient_), size()) : Tensor1<A>();
  }
  template <class A>
  Tensor2<A> matrix_gradient() const {
    return trained ? Tensor2<A>(static_cast<A*>(gradient_), rows(), columns()) : Tensor2<A>();
  }
  // Ternary weights: scales of the sections of this weight (ternary_sections.hpp) and of the adjacent weights after it, `count` in total. A
  // forward computes them, and the backward reads them.
  template <class A>
  Tensor1<A> ternary_scales(int count) const {
    return Tensor1<A>(static_cast<A*>(ternary_scales_), count);
  }
  DType dtype() const { return dtype_; }
  AnyTensor value() const { return {value_, dtype_, size()}; }

  // Data that this rank stores: the tensor-parallel shard, or with ZeRO its part of the shard. The gradient is complete
  // after the reduction, and absent for a frozen weight.
  Piece kept_value() const;
  Piece kept_gradient() const;
  // updated(): elements of the shard that this rank's optimizer updates. kept_in(): the same elements in a flat run of
  // these parts of all weights, laid out as the optimizer state.
  Span updated() const { return flat_shard_.of(size(), part_); }
  Piece kept_in(const AnyTensor& run) const { return {gyr::rows(run, kept_offset_, updated().size()), updated()}; }
  Index kept_offset() const { return kept_offset_; }
  const FlatShard& flat_shard() const { return flat_shard_; }
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
  Int8Matrix int8_;  // used instead of value_ for int8 weights
  void* ternary_scales_ = nullptr;
  bool value_is_sharded_ = false, gradient_is_sharded_ = false;
  void *kept_value_ = nullptr, *kept_gradient_ = nullptr;  // memory of the ZeRO shards of value and gradient
  // Cluster: number of a set of adjacent weights that share a GEMM, equal for all weights of the set.
  int group_ = 0, cluster_ = 0, section_ = 0;
  FlatShard flat_shard_;
  int part_ = 0;
  Index gradient_offset_ = 0, kept_offset_ = 0;  // offset in the section; offset in a flat run of the elements that this rank updates
};

using ParameterList = std::span<const std::unique_ptr<Parameter>>;
using Arrived = std::function<void(const Parameter&)>;  // called for each weight once it is loaded, before the next one

// Section of a bucket: weights of one storage type that are all trained or all frozen. Frozen weights that share a GEMM
// with trained ones are in the section of the trained ones; with ZeRO they also occupy gradient space there. Team
// weights and expert-parallel weights have their own sections, because not all ranks hold them. Weights that all
// tensor-parallel ranks hold are therefore laid out and sharded alike on all of them.
struct WeightSection {
  bool trained, of_experts, wide, of_team;
  Coordinate ranks = {};                      // ranks that hold the same weights and may shard them (ZeRO), and the index of this rank
  Index size = 0, gradient_size = 0;          // elements of the section, padded so that all ZeRO shards are equal
  Index values = 0, gradients = 0;            // offset in the flat run of values of this type; offset in the gradients, if trained
  Index kept_values = 0, kept_gradients = 0;  // the same offsets in the runs of what each of these ranks stores
  Index kept_size() const { return size / ranks.ranks; }
  Index kept_gradient_size() const { return gradient_size / ranks.ranks; }
};

// Weights whose gradients are reduced together and whose values are gathered together.
struct Bucket {
  Span groups;          // index range of the groups of declared weights in the bucket
  bool kept_unsharded;  // the bucket stays unsharded during a step, even with ZeRO-3
  std::vector<WeightSection> sections;
};

enum class Gradients { none, kept };
using Trained = std::function<bool(const Weight&)>;  // returns true if a weight is trained; empty: all weights are

class Parameters {
 public:
  // `dtype`: dtype of the model. `at`: coordinates of the rank on the axes that weights are sharded over. Ranks along
  // other axes hold the same weights and are not counted as copies; they may shard what they store (`over`, ZeRO).
  Parameters(DType dtype, const Coordinates& at, Trained trained = {}, const ShardedOver& over = {}, const Mixers& mixers = Mixers::all_ranks())
      : dtype_(dtype), at_(at), trained_(std::move(trained)), over_(over.level == Shard::none ? ShardedOver() : over), mixers_(mixers) {}

  // Declares a weight. `adjacent`: its memory directly follows that of the previous weight, so that one GEMM can serve
  // both. Their gradients are adjacent too if both are trained.
  enum class Fit { aligned, adjacent };
  Parameter& declare(Weight weight, Fit = Fit::aligned);

  // Enables LoRA: target weights get adapters, which are declared after the adjacent weights that share a GEMM. Must be
  // called before any declaration.
  void adapt(const LoraConfig& lora) { lora_ = lora; }
  void declare_adapters();  // declares the adapters of the targets declared last

  // While this object exists, declared weights belong to a team: a subset of the tensor-parallel ranks that includes
  // this rank.
  class Team {
   public:
    Team(Parameters&, const Span& ranks);
    ~Team() { parameters_.team_ = {0, 0}; }
    Team(const Team&) = delete;

   private:
    Parameters& parameters_;
  };
  const Mixers& mixers() const { return mixers_; }
  // True if this rank is a member of the team.
  bool in(const Span& team) const { return within(team, at_).has_value(); }

  // Begins a new group of declarations. Every bucket consists of one or more groups.
  void begin_group();
  // Makes the current group a bucket of its own that stays unsharded during a step: for weights that are used at both
  // ends of the model.
  void keep_unsharded();
  int groups() const { return int(groups_.size()); }

  // Sets the GEMMs of weights that a layer multiplies by adapted_linear (projection.hpp). Must be called before any declaration.
  void compute(LinearLayers linear) { linear_ = linear; }

  // Sets how factors are stored. Must be called before lay_out(); int8 weights cannot be trained.
  void hold(Factors factors) { factors_ = factors; }

  ExpertLoads& expert_loads() { return expert_loads_; }
  const ExpertLoads& expert_loads() const { return expert_loads_; }

  // Computes the memory layout: buckets of at least `bucket_bytes` of gradients, starting with the last group. No
  // weight may be declared afterwards.
  void lay_out(Index bucket_bytes);
  void allocate(Arena& weights, Arena& gradients, Gradients);
  // Uses the values of the weights of the same name in `of`, for inference. Must be called before allocate(), which then
  // allocates nothing; `of` must outlive this object. Exit::config if a weight is absent, or is stored in another type,
  // sharding or form.
  void borrow(ParameterList of);

  // Weights that are stored in int8 are loaded one after the other into a buffer for the largest of them (load_into)
  // and quantized from there (quantize_loaded). Without a buffer none can be loaded.
  bool in_int8(const Parameter& p) const { return factors_ == Factors::int8 && p.weight.storage == Storage::factor; }
  Index largest_int8_weight() const;  // number of elements of the largest weight stored in int8; 0: none
  void load_into(const AnyTensor& memory);
  void quantize_loaded(Device&, const Parameter&);

  DType dtype() const { return dtype_; }
  Shard shard() const { return over_.level; }
  // Coordinates of this rank among the ranks of the current team.
  Coordinates coordinates() const { return *within(team_, at_); }
  // Experts that this rank holds, out of `count`.
  Span experts(Index count) const { return experts_of(at_.experts, count); }
  // True if this rank counts a weight in sums over the expert-parallel ranks, which all hold the weights that belong to
  // no expert.
  bool counts(const Parameter& p) const;
  const std::vector<std::unique_ptr<Parameter>>& all() const { return all_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int bucket_of(int group) const;
  Index extent() const { return extent_; }            // number of elements of the flat gradient buffer, with padding
  Index kept_extent() const { return kept_extent_; }  // size of the part of the gradients that this rank updates
  // Flat gradient buffer in the accumulator's precision: (extent), or with ZeRO-2 and 3 the part that this rank stores.
  const AnyTensor& gradients() const { return gradients_; }
  // Reduced gradients that this rank keeps.
  std::vector<AnyTensor> kept_gradients() const;

  // A flat run and this rank's ZeRO shard of it, which is part of the run or in separate memory. Expert weights are
  // sharded over other ranks than the rest.
  struct Distribution {
    AnyTensor all, mine;
    bool of_experts;
  };
  // Values and gradients of a bucket before sharding. `buffer`: index of the double buffer, for buckets without memory
  // of their own.
  std::vector<Distribution> values(int bucket, int buffer) const;
  std::vector<Distribution> gradients(int bucket, int buffer) const;
  // Gradients of a bucket, one section after the other in `memory`, possibly in another dtype.
  std::vector<Distribution> gradients_in(const AnyTensor& memory, int bucket) const;
  Index gradient_size(int bucket) const;  // number of gradient elements in all sections of a bucket
  // From now on, the weights of the bucket are used from this buffer.
  void bind_values(int bucket, int buffer);
  void bind_gradients(int bucket, int buffer);
  // Adds the reduced gradients in a buffer to those that this rank keeps.
  void keep_gradients(Device&, int bucket, int buffer);

  // All-reduces gradients that are partial sums: those of units that several ranks of an axis hold because there are
  // fewer units than ranks, and, with `split_rows` (sequence parallelism), those of weights that work on shards of the
  // rows. One all-reduce for each number of copies. `along`: the team or the axis, for weights that teams hold or that
  // all ranks hold.
  enum class Holders { all, team };
  void reduce_copies(Device&, Arena& communication, Axis, Holders, BlockedCommunicator& along, bool split_rows) const;
  // Copy counts that occur, except 1. Weights that are not sharded over the axis are ignored, because their gradients
  // are equal on all ranks.
  std::vector<int> copy_counts(Axis, Holders) const;

 private:
  struct Group {
    std::size_t first;  // index of its first weight in all_
    bool unsharded = false;
  };
  // Memory for values, by storage type.
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
  void allocate_ternary_scales(Arena&);
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
  LinearLayers linear_ = LinearLayers::full;
  std::vector<Parameter*> without_adapter_;  // targets whose adapters are not declared yet
  Span team_ = {0, 0};
  Factors factors_ = Factors::stored;
  bool borrows_ = false;  // true: values are in memory of other parameters
  ExpertLoads expert_loads_;
  std::vector<Group> groups_;
  std::vector<bool> cluster_trained_;
  std::vector<Bucket> buckets_;
  Index extent_ = 0, narrow_extent_ = 0, wide_extent_ = 0;
  Index kept_extent_ = 0, kept_narrow_extent_ = 0, kept_wide_extent_ = 0;
  Values values_;        // values, unsharded or this rank's ZeRO shard
  AnyTensor gradients_;  // gradients, unsharded or this rank's ZeRO shard
  std::array<Values, 2> value_buffers_;
  std::array<AnyTensor, 2> gradient_buffers_;
  std::vector<Values> unsharded_values_;  // values of the buckets that stay unsharded, by bucket
  std::vector<AnyTensor> unsharded_gradients_;
};

// Position in this rank's shard of a box of the weight that lies inside one box that the rank holds.
Box local_box(const Parameter&, const Box&);

// value(local element) = source(logical element) for the elements that the rank keeps, via host memory. Several threads
// call `source` concurrently.
void assign(Device&, const Parameter&, const std::function<double(Index)>& source);
// Draws initial values as a function of (seed, name, logical element), so that every layout gets the same values.
void initialise(Device&, const Parameter&, std::uint64_t seed);

template <class Visit>
void stretches(const Parameter& p, Visit&& visit) {
  stretches(p.weight, p.held, visit);
}
// Same for a part `of` of the shard; local elements are counted from the start of that part.
template <class Visit>
void stretches(const Parameter& p, const Span& of, Visit&& visit) {
  stretches(p, [&](Index logical, Index local, Index count, const Held& held) {
    const Index first = std::max(local, of.first), last = std::min(local + count, of.last);
    if (first < last) visit(logical + first - local, first - of.first, last - first, held);
  });
}

}  // namespace gyr
