// SPDX-License-Identifier: BSD-3-Clause
// Context of a layer for one micro-batch, besides weights and frame: device, tensor-parallel ranks, placement of the
// tokens and attention mask.
#pragma once

#include <optional>

#include "kernels/comm/blocked_communicator.hpp"
#include "kernels/ops/attention.hpp"
#include "modules/pass/frame.hpp"
#include "modules/pass/hook.hpp"
#include "modules/pass/rotary.hpp"
#include "modules/pass/sequence_layout.hpp"
#include "modules/pass/state_store.hpp"
#include "modules/settings/fp8_recipe.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Rows of the residual stream that a tensor-parallel rank keeps: all, or with sequence parallelism one of `parts` equal
// parts. The last part is padded with zeros.
struct StreamRows {
  Index rows = 0;  // number of rows (tokens) of the micro-batch, before they are sharded
  int parts = 1, part = 0;

  bool split() const { return parts > 1; }
  Index rows_per_part() const { return (rows + parts - 1) / parts; }
  Index padded() const { return parts * rows_per_part(); }
  Index first() const { return std::min(rows, part * rows_per_part()); }
  Index count() const { return std::min(rows, (part + 1) * rows_per_part()) - first(); }
};

// Expert-parallel ranks; null if every rank has all experts. `capacity_factor`: capacity of each rank's receive buffer in
// multiples of balanced routing; 0: capacity for any routing.
struct ExpertRanks {
  Communicator* ranks = nullptr;
  double capacity_factor = 0;
};

// Encoder output in the rows that this rank keeps, or a table of relative position biases. `gradient` accumulates its
// gradient in a backward.
struct EncoderState {
  AnyTensor2 values = {}, gradient = {};

  explicit operator bool() const { return values.rows > 0; }
};

// Inputs of the random number generator for a micro-batch, besides the place in the model: seed, step and first sample.
struct Drawn {
  std::uint64_t seed = 0;
  Tensor1<const DrawnAt> now = {};  // (1) current step and first sample, in device memory
};

struct Pass {
  Device& dev;
  BlockedCommunicator& tensor;
  BlockedCommunicator* team;  // tensor-parallel ranks that compute the same mixer; null if every rank computes both
  Communicator* context;      // context-parallel ranks that share the sequences; null without context parallelism
  ExpertRanks experts;
  RotaryTables& rotary;
  SequenceLayout sequences;
  StreamRows stream;
  Mask mask;                    // attention mask of this pass
  StateStore* state = nullptr;  // KV cache and SSM states, only in generation; otherwise null
  Hook* hook = nullptr;
  // Weight of a loss term that every sequence has: 1 / sequences of the step on all data-parallel ranks; 0: there is no
  // backward.
  double sequence_weight = 0;
  // Decoder layers: pass of the encoder input, null if only the text is processed; and the encoder output.
  Pass* source = nullptr;
  EncoderState encoded = {};
  // Layers R with context parallelism: encoded neighbours of the chunk before each block of tokens (neighbour_halo.hpp). The
  // gradient is this tensor-parallel rank's part.
  EncoderState encoded_before = {};
  EncoderState bias = {};           // relative position bias (buckets, heads of this rank)
  std::optional<Drawn> drawn = {};  // seed and step of the random numbers, only in training
  Fp8Recipe fp8 = Fp8Recipe::none;  // GEMMs of linear layers (projection.hpp)

  // Dropout at a named place in the model; none outside of training.
  Dropout dropout(const std::string& place, double p) const {
    if (!drawn || p <= 0) return {};
    Dropout dropout = dropout_at(drawn->seed, place, p, drawn->now.data());
    dropout.numbers = sequences.numbers;
    return dropout;
  }
  // y = dropout of x, for rows of the residual stream; y may be x.
  template <class S>
  void drop(const Dropout& dropout, Tensor2<const S> x, Tensor2<S> y) const {
    if (dropout.drops()) gyr::drop<S>(dev, dropout, sequences.places(), stream.split() ? stream.first() : 0, x, y);
  }

  // RoPE angles of all rows. If they depend on the sequence length, or if positions have several components, the table is
  // in scratch memory until the end of the scope.
  template <class A>
  RowRotation<A> rotation(double rope_theta, const RopeScaling& scaling, Index rotary_dim, const RotarySections& sections = {}) const {
    if (scaling.type != RopeScaling::dynamic && sections.count == 1)
      return {rotary.get<A>(dev, rope_theta, scaling, rotary_dim), sequences.positions};
    const Index rows = sequences.rows();
    const Rotation<A> table{scratch<A>("RoPE cosines of rows", rows, rotary_dim / 2), scratch<A>("RoPE sines of rows", rows, rotary_dim / 2)};
    const RotaryPositions positions = sections.count == 1 ? RotaryPositions{sequences.positions} : RotaryPositions{sequences.components, sections};
    rope_table_of_rows<A>(dev, rope_theta, scaling, positions, sequences.lengths, table);
    return {table, sequences.row_indices};
  }

  // Scratch memory until the end of the scope.
  template <class S, class... Extent>
  auto scratch(const char* name, Extent... extent) const {
    return dev.scratch.named(name).template tensor<S>(extent...);
  }

  // Tensor-parallel ranks over which a weight is sharded: its team if it has one, otherwise all.
  BlockedCommunicator& holders(const Parameter& of) const { return of.weight.team.size() > 0 ? *team : tensor; }

  // Passes an activation to the hook, if there is one. Its columns are sharded over the tensor-parallel ranks like the
  // rows or columns of weight `like`.
  void show(const std::string& name, const char* what, const AnyMatrix& values, const Parameter& like) const {
    if (!hook) return;
    const int dim = like.weight.sharding(Axis::tensor)->dim;
    std::vector<Held> columns = like.held.boxes;
    for (Held& held : columns) held.box = {{held.box.first[dim]}, {held.box.count[dim]}}, held.local = {held.local[dim]};
    observe(Observed::activation, name + what, values, 0, like.weight.shape[dim], columns);
  }
  // Same for rows of the residual stream, or of its gradient.
  void show(Observed observed, const std::string& name, AnyMatrix values) const {
    if (!hook) return;
    Held full{{{0}, {values.columns}}, {0}, {}};
    if (!stream.split()) full.copies[Axis::tensor] = {tensor.size(), tensor.rank()};
    values.rows = stream.count();
    observe(observed, name, values, stream.first(), values.columns, {&full, 1});
  }

 private:
  // With context parallelism, passes block by block, each with its position in the unsharded batch and without padding.
  void observe(Observed observed, const std::string& name, const AnyMatrix& values, Index first, Index width, std::span<const Held> columns) const {
    if (!sequences.shared()) return hook->observe(observed, name, values, first, width, columns);
    const Index length = sequences.block_length();
    for (Index block = 0; block < sequences.batch * sequences.blocks(); ++block) {
      const Index begin = std::max(first, block * length), end = std::min(first + values.rows, (block + 1) * length);
      if (begin >= end) continue;
      const Index sequence = begin / sequences.seq_length, token = sequences.place(begin % sequences.seq_length);
      const Index count = std::min(end - begin, sequences.full_tokens - token);
      if (count > 0) hook->observe(observed, name, rows(values, begin - first, count), sequence * sequences.full_tokens + token, width, columns);
    }
  }
};

}  // namespace gyr
