// SPDX-License-Identifier: BSD-3-Clause
// What a layer needs besides its weights and its frame while one micro-batch passes: device, the tensor axis, where the tokens stand and what
// they may see.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/blocked_communicator.hpp"
#include "modules/frame.hpp"
#include "modules/hook.hpp"
#include "modules/parameter.hpp"
#include "modules/rotary.hpp"
#include "modules/sequence_layout.hpp"
#include "modules/state_store.hpp"

namespace gyr {

// Rows of the residual stream that a rank of the tensor axis keeps: all, or the part-th of equal parts. Behind the last row come zeros.
struct StreamRows {
  Index rows = 0;  // of the micro-batch
  int parts = 1, part = 0;

  bool split() const { return parts > 1; }
  Index share() const { return (rows + parts - 1) / parts; }
  Index padded() const { return parts * share(); }
  Index first() const { return std::min(rows, part * share()); }
  Index count() const { return std::min(rows, (part + 1) * share()) - first(); }
};

struct Pass {
  Device& dev;
  BlockedCommunicator& tensor;
  RotaryTables& rotary;
  SequenceLayout sequences;
  StreamRows stream;
  Mask mask;                    // of queries and keys of this pass
  StateStore* state = nullptr;  // generation only
  Hook* hook = nullptr;

  // Memory until the end of the scope.
  template <class S, class... Extent>
  auto scratch(const char* name, Extent... extent) const {
    return dev.scratch.named(name).template tensor<S>(extent...);
  }

  // Calls the hook, if there is one, with an activation whose columns are sharded over the tensor axis as a weight's rows or columns are.
  void show(const std::string& name, const char* what, const AnyMatrix& numbers, const Parameter& like) const {
    if (!hook) return;
    const int dim = like.weight.sharding(Axis::tensor)->dim;
    std::vector<Held> columns = like.held.boxes;
    for (Held& held : columns) held.box = {{held.box.first[dim]}, {held.box.count[dim]}}, held.local = {held.local[dim]};
    hook->observe(Observed::activation, name + what, numbers, 0, like.weight.shape[dim], columns);
  }
  // The same of rows of the residual stream, or of its gradient.
  void show(Observed observed, const std::string& name, AnyMatrix numbers) const {
    if (!hook) return;
    Held whole{{{0}, {numbers.columns}}, {0}, {}};
    if (!stream.split()) whole.copies[Axis::tensor] = {tensor.size(), tensor.rank()};
    numbers.rows = stream.count();
    hook->observe(observed, name, numbers, stream.first(), numbers.columns, {&whole, 1});
  }
};

}  // namespace gyr
