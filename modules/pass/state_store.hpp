// SPDX-License-Identifier: BSD-3-Clause
// State that a model carries from token to token in generation: KV cache, convolution inputs, SSM states. Each module
// requests its tensors by (module, key). The first request allocates a tensor and sets it to zero, later ones return
// it.
#pragma once

#include <map>

#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/elementwise.hpp"
#include "modules/pass/frame.hpp"

namespace gyr {

class StateStore {
 public:
  // For `sequences` sequences of at most `capacity` tokens, with encoder inputs of at most `source_capacity` tokens.
  StateStore(Arena arena, Index sequences, Index capacity, Index source_capacity = 0)
      : arena_(std::move(arena)), sequences_(sequences), capacity_(capacity), source_capacity_(source_capacity) {}

  Index sequences() const { return sequences_; }
  Index capacity() const { return capacity_; }
  Index source_capacity() const { return source_capacity_; }
  const Arena& arena() const { return arena_; }

  // Tensor (sequences, extents...) of one owner.
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
  // Clears the state of a sequence, so that another one can use its entry.
  void forget(Device& dev, Index sequence) {
    for (const auto& [owner, all] : made_) fill(dev, rows(all, sequence * (all.size / sequences_), all.size / sequences_), 0);
  }
  // Copies the state of a sequence to another entry.
  void copy(Device& dev, Index from, Index to) {
    for (const auto& [owner, all] : made_) {
      const Index each = all.size / sequences_;
      if (!dev.dry_run()) copy_on_device(dev, rows(all, from * each, each), rows(all, to * each, each));
    }
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
