// SPDX-License-Identifier: BSD-3-Clause
// What a layer needs besides its weights and its frame while one micro-batch passes: device, the tensor axis and the tokens' layout.
#pragma once

#include "kernels/blocked_communicator.hpp"
#include "kernels/documents.hpp"
#include "modules/frame.hpp"
#include "modules/hook.hpp"
#include "modules/parameter.hpp"
#include "modules/state_store.hpp"

namespace gyr {

// `batch` sequences of `seq_length` new tokens each, row b * seq_length + t.
// With a state store, sequence b is number first_sequence + b of it and has seen past[b] tokens before.
struct Sequences {
  Index batch = 0, seq_length = 0;
  Index first_sequence = 0;
  std::vector<Index> past;  // (batch), or none: nothing came before

  Index rows() const { return batch * seq_length; }
  Index past_of(Index b) const { return past.empty() ? 0 : past[b]; }
};

template <class T>
struct Pass {
  Device& dev;
  BlockedCommunicator& tensor;
  Sequences sequences;
  StateStore* state = nullptr;         // generation only
  Tensor2<const Acc<T>> cosine, sine;  // (rows, head_dim / 2) of every token's position; empty without attention
  Documents documents = {};            // packed ones; not in generation
  Hook* hook = nullptr;

  // Memory until the end of the scope.
  template <class S, class... Extent>
  auto scratch(const char* name, Extent... extent) const {
    return dev.scratch.named(name).template tensor<S>(extent...);
  }

  // Calls the hook, if there is one, with an activation whose columns are sharded over the tensor axis as a weight's rows or columns are.
  void show(const std::string& name, const char* what, Matrix<const T> numbers, const Parameter& like) const {
    if (!hook) return;
    const int dim = like.weight.sharding(Axis::tensor)->dim;
    std::vector<Held> columns = like.held.boxes;
    for (Held& held : columns) held.box = {{held.box.first[dim]}, {held.box.count[dim]}}, held.local = {held.local[dim]};
    hook->observe(Observed::activation, name + what, numbers, like.weight.shape[dim], columns);
  }
  // The same of what every rank of the tensor axis holds whole.
  void show(Observed observed, const std::string& name, Matrix<const T> numbers) const {
    if (!hook) return;
    Held whole{{{0}, {numbers.columns}}, {0}, {}};
    whole.copies[Axis::tensor] = {tensor.size(), tensor.rank()};
    hook->observe(observed, name, numbers, numbers.columns, {&whole, 1});
  }
};

}  // namespace gyr
