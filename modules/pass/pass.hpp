// SPDX-License-Identifier: BSD-3-Clause
// What a layer needs besides its weights and its frame while one micro-batch passes: device, the tensor axis, where the tokens stand and what
// they may see.
#pragma once

#include <optional>

#include "kernels/comm/blocked_communicator.hpp"
#include "kernels/ops/attention.hpp"
#include "modules/pass/frame.hpp"
#include "modules/pass/hook.hpp"
#include "modules/pass/rotary.hpp"
#include "modules/pass/sequence_layout.hpp"
#include "modules/pass/state_store.hpp"
#include "modules/weights/parameter.hpp"

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

// The ranks that deal experts among themselves: null where every rank has all. Each has memory for `room` times the rows that it would have for its
// experts if all were chosen alike; 0: for any routing.
struct ExpertRanks {
  Communicator* ranks = nullptr;
  double room = 0;
};

// What an encoder made of the source, in the rows that this rank keeps, or by distance from query to key; and in a backward where its gradient is
// added up.
struct EncoderState {
  AnyTensor2 values = {}, gradient = {};

  explicit operator bool() const { return values.rows > 0; }
};

// What the random numbers of a micro-batch are functions of, besides where they are needed.
struct Drawn {
  std::uint64_t seed = 0;
  Tensor1<const DrawnAt> now = {};  // (1) where kernels run
};

struct Pass {
  Device& dev;
  BlockedCommunicator& tensor;
  BlockedCommunicator* team;  // ranks of the tensor axis that work on the same mixer; null where all work on both
  Communicator* context;      // ranks that share the sequences; null where none does
  ExpertRanks experts;
  RotaryTables& rotary;
  SequenceLayout sequences;
  StreamRows stream;
  Mask mask;                    // of queries and keys of this pass
  StateStore* state = nullptr;  // generation only
  Hook* hook = nullptr;
  // What a term of the loss that every sequence has counts with: 1 / sequences of the step, of all data ranks; 0: there is no backward.
  double sequence_weight = 0;
  // Of a layer behind an encoder: the pass of the source, null where the text alone goes on; and what the encoder made of it.
  Pass* source = nullptr;
  EncoderState encoded = {};
  EncoderState bias = {};           // (buckets, heads of this rank)
  std::optional<Drawn> drawn = {};  // where it is trained on

  // At a place in the model; where nothing is trained, nothing is dropped.
  Dropout dropout(const std::string& place, double p) const {
    return drawn && p > 0 ? dropout_at(drawn->seed, place, p, drawn->now.data()) : Dropout();
  }
  // y = what it leaves of x, rows of the stream; y may be x.
  template <class S>
  void drop(const Dropout& dropout, Tensor2<const S> x, Tensor2<S> y) const {
    if (dropout.drops()) gyr::drop<S>(dev, dropout, sequences.places(), stream.split() ? stream.first() : 0, x, y);
  }

  // Memory until the end of the scope.
  template <class S, class... Extent>
  auto scratch(const char* name, Extent... extent) const {
    return dev.scratch.named(name).template tensor<S>(extent...);
  }

  // The ranks of the tensor axis that hold a weight among themselves.
  BlockedCommunicator& holders(const Parameter& of) const { return of.weight.team.size() > 0 ? *team : tensor; }

  // Calls the hook, if there is one, with an activation whose columns are sharded over the tensor axis as a weight's rows or columns are.
  void show(const std::string& name, const char* what, const AnyMatrix& numbers, const Parameter& like) const {
    if (!hook) return;
    const int dim = like.weight.sharding(Axis::tensor)->dim;
    std::vector<Held> columns = like.held.boxes;
    for (Held& held : columns) held.box = {{held.box.first[dim]}, {held.box.count[dim]}}, held.local = {held.local[dim]};
    observe(Observed::activation, name + what, numbers, 0, like.weight.shape[dim], columns);
  }
  // The same of rows of the residual stream, or of its gradient.
  void show(Observed observed, const std::string& name, AnyMatrix numbers) const {
    if (!hook) return;
    Held whole{{{0}, {numbers.columns}}, {0}, {}};
    if (!stream.split()) whole.copies[Axis::tensor] = {tensor.size(), tensor.rank()};
    numbers.rows = stream.count();
    observe(observed, name, numbers, stream.first(), numbers.columns, {&whole, 1});
  }

 private:
  // Of shared sequences block by block, each where it stands in the whole batch, and without what only pads.
  void observe(Observed observed, const std::string& name, const AnyMatrix& numbers, Index first, Index width, std::span<const Held> columns) const {
    if (!sequences.shared()) return hook->observe(observed, name, numbers, first, width, columns);
    const Index length = sequences.block_length();
    for (Index block = 0; block < sequences.batch * sequences.blocks(); ++block) {
      const Index begin = std::max(first, block * length), end = std::min(first + numbers.rows, (block + 1) * length);
      if (begin >= end) continue;
      const Index sequence = begin / sequences.seq_length, token = sequences.place(begin % sequences.seq_length);
      const Index count = std::min(end - begin, sequences.whole - token);
      if (count > 0) hook->observe(observed, name, rows(numbers, begin - first, count), sequence * sequences.whole + token, width, columns);
    }
  }
};

}  // namespace gyr
