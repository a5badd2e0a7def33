// SPDX-License-Identifier: BSD-3-Clause
// Saved activations: tensors that a layer's forward keeps for its backward, for one micro-batch, under keys and in any order.
//   static constexpr Key<Tensor2<T>> qkv{"qkv"};
//   auto x = frame.put(qkv, rows, columns);       forward
//   const auto x = frame.get(qkv);                backward
//   frame.release(Phase::weight_gradients);       caller of the backward; the tensors are then gone
// Activation checkpointing: tensors may be dropped after the forward and recomputed by a second forward, which asks for each whether it is wanted:
//   frame.drop(RecomputeCost::gemm, output);             after the first forward: drops tensors of at most that recomputation cost, except the output
//   frame.again();                                before the second forward
//   const auto x = frame.put(qkv, rows, columns);
//   if (frame.wants(qkv)) ...                     compute it, or its rows from frame.first_row_wanted(qkv) on
// Tensors may also be offloaded and return to another address (offload_batch.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// Cost of recomputing a tensor, in ascending order: elementwise pass, GEMM, attention or scan over tokens,
// communication between ranks; never: later layers read the tensor, which is therefore neither dropped nor offloaded.
enum class RecomputeCost { pass, gemm, mixing, sum, never };

// The two parts of a backward, in order. A tensor is kept until the end of the phase that needs it.
enum class Phase { input_gradients, weight_gradients };

// split: each row of the tensor (a token) can be recomputed without the other rows.
enum class RowSplit { full, split };

// Identifies a saved tensor. The address of the key object is its identity, the name is for messages. The tensor is
// needed until the end of phase `until`.
template <class Tensor>
struct Key {
  const char* name;
  RecomputeCost recompute_cost = RecomputeCost::sum;
  Phase until = Phase::weight_gradients;
  RowSplit rows = RowSplit::full;
};

// Rows of x from `first` on; an empty tensor if there are none.
template <class Tensor>
Tensor rows_from(const Tensor& x, Index first) {
  return Index(x.extent(0)) > first ? rows(x, first, Index(x.extent(0)) - first) : Tensor();
}

// Memory comes from an arena, on top of what it holds. Clearing the frame returns it, with everything allocated later.
// If the arena follows a tape, the memory of each tensor returns when that tensor is released. Nested frames (branches
// of a layer, layers of a chunk) use the same arena. They persist from micro-batch to micro-batch and are filled again.
class Frame {
 public:
  explicit Frame(Arena& arena, std::string name = "frame") : arena_(&arena), name_(std::move(name)) {}

  template <class Tensor, class... Extent>
  requires(!std::is_same_v<Tensor, AnyTensor2>) Tensor put(const Key<Tensor>& key, Extent... extent) {
    Entry& entry = add(&key, key.name, key.recompute_cost, key.until);
    if (entry.takes_memory()) entry.data = arena_->named(key.name).template tensor<typename Tensor::value_type>(Index(extent)...).data();
    entry.owned = true, entry.rows = key.rows;
    entry.extents = {Index(extent)...};
    entry.row_bytes = (Index(sizeof(typename Tensor::value_type)) * ... * Index(extent)) / std::max<Index>(1, entry.extents[0]);
    return Tensor(static_cast<typename Tensor::pointer_type>(entry.data), Index(extent)...);
  }
  AnyTensor2 put(const Key<AnyTensor2>& key, DType dtype, Index rows, Index columns) {
    Entry& entry = add(&key, key.name, key.recompute_cost, key.until);
    if (entry.takes_memory()) entry.data = take(arena_->named(key.name), dtype, rows, columns).data;
    entry.owned = true;
    entry.extents = {rows, columns};
    entry.row_bytes = columns * size_of(dtype);
    return {entry.data, dtype, rows, columns};
  }
  // True if the tensor put under this key has to be computed: always, unless a second forward finds it kept or no
  // longer needs it.
  template <class Tensor>
  bool wants(const Key<Tensor>& key) const {
    return find(&key, key.name).wanted;
  }
  // First row that has to be computed, for a tensor whose rows can be recomputed independently: 0, unless a second
  // forward finds the rows before it.
  template <class Tensor>
  Index first_row_wanted(const Key<Tensor>& key) const {
    return find(&key, key.name).first;
  }
  // Records a tensor that is stored elsewhere, so that the backward finds it without a copy.
  template <class Tensor>
  void refer(const Key<Tensor>& key, const std::type_identity_t<Tensor>& tensor) {
    Entry& entry = add(&key, key.name, key.recompute_cost, key.until);
    entry.data = const_cast<std::remove_const_t<typename Tensor::value_type>*>(tensor.data());
    for (int d = 0; d < int(Tensor::rank); ++d) entry.extents[d] = tensor.extent(d);
  }
  // The tensor that was put or referred to under this key. Internal error if there is none, or if it was released.
  template <class Tensor>
  Tensor get(const Key<Tensor>& key) const {
    const Entry& entry = held(&key, key.name);
    typename Tensor::array_layout layout;
    for (int d = 0; d < int(Tensor::rank); ++d) layout.dimension[d] = entry.extents[d];
    return Tensor(static_cast<typename Tensor::pointer_type>(entry.data), layout);
  }

  // Frame of the i-th part, for example of a layer in a chunk. The first call sets the name.
  Frame& nested(int i, const char* name = "part");

  // Releases the tensors that are needed until the end of this phase, here and in nested frames. If the arena follows a
  // tape, their memory is reused.
  void release(Phase);
  // Releases the tensor at this address, if it belongs to this frame or a nested one.
  void release(const void* data);
  // Drops the tensors whose recomputation cost is at most `most`, here and in nested frames, except the one at `but`.
  // Their memory is reused.
  void drop(RecomputeCost most, const void* but);
  // Begins a second forward. Dropped tensors are put again, the others are found in place.
  void again();
  // Forgets all tensors, and returns the arena's memory from this frame's first tensor on.
  void clear();
  bool empty() const;

 private:
  friend class OffloadBatch;
  enum class State { held, dropped, released, away };
  struct Entry {
    const void* key;
    const char* name;
    RecomputeCost recompute_cost;
    Phase until;
    State state = State::held;
    bool owned = false;  // true: its memory belongs to this frame; false: it refers to a tensor stored elsewhere
    bool wanted = true;
    void* data = nullptr;
    std::array<Index, 4> extents{};
    RowSplit rows = RowSplit::full;
    Index row_bytes = 0;
    Index first = 0;  // first row that a second forward recomputes in a tensor that is held

    bool takes_memory() const { return wanted && first == 0; }
    Index bytes() const { return extents[0] * row_bytes; }
  };
  Entry& add(const void* key, const char* name, RecomputeCost recompute_cost, Phase until);
  const Entry& find(const void* key, const char* name) const;
  const Entry& held(const void* key, const char* name) const;
  void forget();
  void release(Entry&);
  void drop(Entry&);

  Arena* arena_;
  std::string name_;
  bool again_ = false;  // true during a second forward
  Index mark_ = -1;     // arena position before the first tensor of this frame or a nested one; -1: no tensor yet
  Frame* outer_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Frame>> nested_;
};

}  // namespace gyr
