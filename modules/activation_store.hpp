// SPDX-License-Identifier: BSD-3-Clause
// What forward keeps for backward: a stack of named tensors. forward pushes, backward pops the same names in reverse, which gives the memory back.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/arena.hpp"

namespace gyr {

class ActivationStore {
 public:
  explicit ActivationStore(Arena arena) : arena_(std::move(arena)) {}

  // A new tensor on the stack: auto qkv = saved.push<Tensor2<T>>("qkv", rows, columns)
  template <class Tensor, class... Extent>
  Tensor push(const char* name, Extent... extent) {
    const Index mark = arena_.mark();
    auto tensor = arena_.tensor<typename Tensor::value_type>(Index(extent)...);
    records_.push_back({name, mark, tensor.data(), {Index(extent)...}});
    return tensor;
  }
  // Remembers a tensor that lies on the stack already, so that backward finds it without a copy.
  template <class Tensor>
  void refer(const char* name, const Tensor& tensor) {
    Record record{name, arena_.mark(), const_cast<std::remove_const_t<typename Tensor::value_type>*>(tensor.data()), {}};
    for (int d = 0; d < int(Tensor::rank); ++d) record.extents.push_back(tensor.extent(d));
    records_.push_back(std::move(record));
  }
  // The last tensor pushed or referred to. Its memory stays until the next push.
  template <class Tensor>
  Tensor pop(const char* name) {
    ensure(!records_.empty() && std::strcmp(records_.back().name, name) == 0, "backward asks for {} where {} was kept", name,
           records_.empty() ? "nothing" : records_.back().name);
    const Record record = std::move(records_.back());
    records_.pop_back();
    arena_.release(record.mark);
    typename Tensor::array_layout layout;
    for (std::size_t d = 0; d < record.extents.size(); ++d) layout.dimension[d] = record.extents[d];
    return Tensor(static_cast<typename Tensor::pointer_type>(record.data), layout);
  }
  // Forgets what came after the first `count` entries, where no backward follows.
  void forget(std::size_t count) {
    if (count >= records_.size()) return;
    arena_.release(records_[count].mark);
    records_.resize(count);
  }
  void clear() { forget(0); }

  std::size_t count() const { return records_.size(); }  // of entries
  bool empty() const { return records_.empty(); }
  const Arena& arena() const { return arena_; }

 private:
  struct Record {
    const char* name;
    Index mark;
    void* data;
    std::vector<Index> extents;
  };
  Arena arena_;
  std::vector<Record> records_;
};

}  // namespace gyr
