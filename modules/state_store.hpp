// SPDX-License-Identifier: BSD-3-Clause
// What a model carries from token to token when it generates: keys and values, convolution inputs, SSM states. Each module asks for its
// tensors by (itself, key); the first time they are made and set to zero, later the same ones come back.
#pragma once

#include <map>

#include "kernels/elementwise.hpp"
#include "modules/frame.hpp"

namespace gyr {

class StateStore {
 public:
  // Room for `sequences` sequences of at most `capacity` tokens.
  StateStore(Arena arena, Index sequences, Index capacity) : arena_(std::move(arena)), sequences_(sequences), capacity_(capacity) {}

  Index sequences() const { return sequences_; }
  Index capacity() const { return capacity_; }
  const Arena& arena() const { return arena_; }

  // (sequences, extents...) of one owner.
  template <class Tensor, class... Extent>
  Tensor tensor(Device& dev, const void* owner, const Key<Tensor>& key, Extent... extent) {
    using Value = typename Tensor::value_type;
    auto [entry, fresh] = made_.try_emplace({owner, &key}, nullptr);
    if (fresh) {
      auto tensor = arena_.tensor<Value>(sequences_, Index(extent)...);
      fill<Value>(dev, flat(tensor), 0);
      entry->second = tensor.data();
    }
    return Tensor(static_cast<Value*>(entry->second), sequences_, extent...);
  }

 private:
  Arena arena_;
  Index sequences_, capacity_;
  std::map<std::pair<const void*, const void*>, void*> made_;
};

// Sequences [first, first + count) of a state.
template <class T>
Tensor3<T> part(const Tensor3<T>& x, Index first, Index count) {
  return Tensor3<T>(x.data() + first * Index(x.extent(1) * x.extent(2)), count, x.extent(1), x.extent(2));
}

}  // namespace gyr
