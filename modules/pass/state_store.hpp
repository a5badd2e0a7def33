// SPDX-License-Identifier: BSD-3-Clause
// What a model carries from token to token when it generates: keys and values, convolution inputs, SSM states. Each module asks for its
// tensors by (itself, key); the first time they are made and set to zero, later the same ones come back.
#pragma once

#include <map>

#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/elementwise.hpp"
#include "modules/pass/frame.hpp"

namespace gyr {

class StateStore {
 public:
  // Room for `sequences` sequences of at most `capacity` tokens, behind an encoder with sources of at most so many.
  StateStore(Arena arena, Index sequences, Index capacity, Index source_capacity = 0)
      : arena_(std::move(arena)), sequences_(sequences), capacity_(capacity), source_capacity_(source_capacity) {}

  Index sequences() const { return sequences_; }
  Index capacity() const { return capacity_; }
  Index source_capacity() const { return source_capacity_; }
  const Arena& arena() const { return arena_; }

  // (sequences, extents...) of one owner.
  template <class Tensor, class... Extent>
  Tensor tensor(Device& dev, const void* owner, const Key<Tensor>& key, Extent... extent) {
    using Value = typename Tensor::value_type;
    auto [entry, fresh] = made_.try_emplace({owner, &key});
    if (fresh) {
      auto tensor = arena_.tensor<Value>(sequences_, Index(extent)...);
      fill<Value>(dev, flat(tensor), 0);
      entry->second = flat(tensor);
    }
    return Tensor(static_cast<Value*>(entry->second.data), sequences_, extent...);
  }
  // Another sequence takes this one's place.
  void forget(Device& dev, Index sequence) {
    for (const auto& [owner, all] : made_) fill(dev, rows(all, sequence * (all.size / sequences_), all.size / sequences_), 0);
  }

 private:
  Arena arena_;
  Index sequences_, capacity_, source_capacity_;
  std::map<std::pair<const void*, const void*>, AnyTensor> made_;
};

// Sequences [first, first + count) of a state.
template <class T>
Tensor3<T> part(const Tensor3<T>& x, Index first, Index count) {
  return Tensor3<T>(x.data() + first * Index(x.extent(1) * x.extent(2)), count, x.extent(1), x.extent(2));
}

}  // namespace gyr
