// SPDX-License-Identifier: BSD-3-Clause
// What a layer keeps of a micro-batch from its forward for its backward: tensors under keys, found again in any order.
//   static constexpr Key<Tensor2<T>> qkv{"qkv"};
//   auto x = frame.put(qkv, rows, columns);       forward
//   const auto x = frame.get(qkv);                backward
//   frame.release(Phase::weight_gradients);       who called backward: the tensors are gone
// Some may be dropped between the two and computed again by a second forward, which asks of each tensor whether it is wanted:
//   frame.drop(Effort::product, output);          behind the first forward: what takes no more than that is gone, but the output
//   frame.again();                                before the second
//   const auto x = frame.put(qkv, rows, columns);
//   if (frame.wants(qkv)) ...                     compute it, or its rows from frame.first_row_wanted(qkv) on
// And tensors may leave their memory and come back to another place (offload_batch.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// What it takes to have a tensor again, rising: a pass over numbers, a matrix product, attention or a scan over tokens, a sum over ranks.
enum class RecomputeCost { pass, product, mixing, sum };

// The halves of a backward, in order: what they need is kept so long.
enum class Phase { input_gradients, weight_gradients };

// Whether a tensor's rows, which are tokens, may be made again apart from each other.
enum class Rows { together, apart };

// A tensor's name, known at compile time: the key is the object itself, its text is for messages. It is needed until the end of a phase.
template <class Tensor>
struct Key {
  const char* name;
  RecomputeCost recompute_cost = RecomputeCost::sum;
  Phase until = Phase::weight_gradients;
  Rows rows = Rows::together;
};

// Rows of x from `first` on; of what is empty nothing.
template <class Tensor>
Tensor rows_from(const Tensor& x, Index first) {
  return Index(x.extent(0)) > first ? rows(x, first, Index(x.extent(0)) - first) : Tensor();
}

// Memory comes from an arena, on top of what is there, and goes back when the frame is cleared, with all that came after it; where the arena
// follows a tape, each tensor's goes back when it is released. Nested frames (a layer's branches, a chunk's layers) take from the same arena;
// they stay from micro-batch to micro-batch and are filled anew.
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
  // Whether what has been put under this key has to be computed: always, but for what a second forward finds kept or does not need any more.
  template <class Tensor>
  bool wants(const Key<Tensor>& key) const {
    return find(&key, key.name).wanted;
  }
  // Of a tensor whose rows may be made apart, the first that has to be computed: 0, but where a second forward finds those before it.
  template <class Tensor>
  Index first_row_wanted(const Key<Tensor>& key) const {
    return find(&key, key.name).first;
  }
  // Remembers a tensor that lies elsewhere, so that backward finds it without a copy.
  template <class Tensor>
  void refer(const Key<Tensor>& key, const std::type_identity_t<Tensor>& tensor) {
    Entry& entry = add(&key, key.name, key.recompute_cost, key.until);
    entry.data = const_cast<std::remove_const_t<typename Tensor::value_type>*>(tensor.data());
    for (int d = 0; d < int(Tensor::rank); ++d) entry.extents[d] = tensor.extent(d);
  }
  // What was put or referred to under this very key; an internal error where it was not, or is released.
  template <class Tensor>
  Tensor get(const Key<Tensor>& key) const {
    const Entry& entry = held(&key, key.name);
    typename Tensor::array_layout layout;
    for (int d = 0; d < int(Tensor::rank); ++d) layout.dimension[d] = entry.extents[d];
    return Tensor(static_cast<typename Tensor::pointer_type>(entry.data), layout);
  }

  // Of the i-th part of what this frame is of. The name is told when it is first asked for.
  Frame& nested(int i, const char* name = "part");

  // What was needed until the end of this phase, here and in nested frames, may not be asked for any more; where the arena follows a tape,
  // its memory serves others.
  void release(Phase);
  // The same of the tensor that lies there, if it is one of these.
  void release(const void* data);
  // What takes no more effort than that to have again, here and in nested frames, but for what lies at `but`: its memory serves others.
  void drop(RecomputeCost most, const void* but);
  // The forward is run once more: what has been dropped is put anew, what has not is found where it is.
  void again();
  // Forgets everything, and gives back the memory from the first tensor of this frame on.
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
    bool owned = false;  // by this frame, not elsewhere
    bool wanted = true;
    void* data = nullptr;
    std::array<Index, 4> extents{};
    Rows rows = Rows::together;
    Index row_bytes = 0;
    Index first = 0;  // row from which on a second forward makes what is held again

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
  bool again_ = false;  // a second forward is under way
  Index mark_ = -1;     // where the arena stood before the first tensor of this frame or a nested one; -1: there is none
  Frame* outer_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Frame>> nested_;
};

}  // namespace gyr
