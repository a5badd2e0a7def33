// SPDX-License-Identifier: BSD-3-Clause
// Shared definitions of the host scan: chunks, decays within a chunk, and groups, on which every step works. A group is
// the q tokens of a chunk and the R = H/G heads with the same B and C, for which a single GEMM computes what they have
// in common. If kernels are threaded, a group is divided into several groups of fewer heads. They use the same columns
// of B and C, and the gradients of these are summed over them.
//   s_l = sum_{k<=l} A dt_k within the chunk and l's document, u = dt x
//   Packed documents: decays across the start of a document are exactly zero, so backward needs no special case.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/kokkos/lanes.hpp"
#include "kernels/kokkos/operand.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/ssd.hpp"
#include "kernels/ops/ssd_math.hpp"

namespace gyr::scan {

template <class P>
void matmul(Device& dev, MatrixOp op_a, Matrix<const P> a, MatrixOp op_b, Matrix<const P> b, Matrix<Acc<P>> c, double alpha = 1, double beta = 0) {
  gemm<P, Acc<P>>(dev, op_a, a, op_b, b, c, alpha, beta, "ssd_gemm");
}

// One chunk of one sequence: rows [first, first + length) of (B T, .).
struct Chunk {
  Index sequence, number, first, length;
  Documents documents;

  // begin: first token of the chunk that belongs to the document of token l. carried: true if that document began
  // before the chunk.
  KOKKOS_INLINE_FUNCTION Index begin(Index l) const { return after(l, documents.reach(first + l)); }
  KOKKOS_INLINE_FUNCTION bool carried(Index l) const { return documents.reach(first + l) > l; }
  Index planned_begin(Index l) const { return after(l, documents.planned_reach(first + l)); }
  KOKKOS_INLINE_FUNCTION static Index after(Index l, Index reach) { return reach < l ? l - reach : 0; }
};

// Number of parts into which the heads with the same B and C are divided: at least four, so that a few threads have
// work, and four heads per part if there are many heads. More parts would repeat more of the common work.
inline Index parts_of(Index heads) {
  Index parts = threaded ? std::max<Index>(4, heads / 4) : 1;
  while (heads % parts != 0) --parts;
  return parts;
}

// Partition of a scan into chunks of tokens and groups of heads.
struct Chunking {
  Index batch, seq_length, num_heads, sharing, num_groups, head_dim, state_size, chunk_size;  // sharing: number of groups with the same B and C
  Index chunks, heads_per_group;
  Documents documents;

  explicit Chunking(const SsdShape& s, const Documents& packed = {})
      : batch(s.batch), seq_length(s.seq_length), num_heads(s.num_heads), sharing(parts_of(s.num_heads / s.num_groups)),
        num_groups(s.num_groups * sharing), head_dim(s.head_dim), state_size(s.state_size), chunk_size(std::min(s.chunk_size, s.seq_length)),
        chunks(s.chunks()), heads_per_group(s.num_heads / num_groups), documents(packed) {}

  Index channels() const { return heads_per_group * head_dim; }               // channels of one group, R P
  Index state_elements() const { return num_heads * head_dim * state_size; }  // elements of the state of one sequence, H P N
  Chunk at(Index b, Index c) const { return {b, c, b * seq_length + c * chunk_size, std::min(chunk_size, seq_length - c * chunk_size), documents}; }
  // State of all heads, (H P, N), and of one group, (R P, N).
  template <class A>
  Matrix<A> state(A* all) const {
    return {all, num_heads * head_dim, state_size, state_size};
  }
  template <class A>
  Matrix<A> state(A* all, Index g) const {
    return state(all).block(g * channels(), channels(), 0, state_size);
  }
};

// Calls body(chunk) for the chunks of all sequences, in order within each sequence.
template <class Body>
void for_chunks(const Chunking& n, const Body& body) {
  for (Index b = 0; b < n.batch; ++b)
    for (Index c = 0; c < n.chunks; ++c) body(n.at(b, c));
}

// The same, but a dry run counts chunks of equal length by running only one of them, unless documents are packed.
template <class Body>
void for_equal_chunks(Device& dev, const Chunking& n, const Body& body) {
  const bool equal = !n.documents.packed();
  const auto of_sequence = [&](Index b) {
    for_equal(
        dev, n.chunks - 1, [&](Index c) { body(n.at(b, c)); }, equal);
    body(n.at(b, n.chunks - 1));
  };
  for_equal(dev, n.batch, of_sequence, equal);
}

// Chunk states or their gradients. between: state that enters each chunk, (B, chunks, H P N). last: state that leaves
// each sequence, (B, H P N), or empty.
template <class A>
struct States {
  Tensor3<A> between;
  Tensor2<A> last;

  A* entering(const Chunk& k) const { return &between(k.sequence, k.number, 0); }
  A* leaving(const Chunk& k) const { return is_last(k) ? last_of(k) : &between(k.sequence, k.number + 1, 0); }
  bool stores_leaving_state(const Chunk& k) const { return !is_last(k) || last.data(); }

 private:
  bool is_last(const Chunk& k) const { return k.number + 1 == Index(between.extent(1)); }
  A* last_of(const Chunk& k) const { return last.data() ? &last(k.sequence, 0) : nullptr; }
};

// Decays within a chunk, (H, Q): s_l = sum(h,l) + 2^-24 rest(h,l), from_start = exp(s_l), to_end = exp(s_Q - s_l).
// Decays across the start of a document are zero.
template <class A>
struct Decay {
  Tensor2<A> sum, rest, from_start, to_end;

  Decay(Device&, const Chunking&);
  void fill(Device&, const char* kernel, const Chunk&, Tensor2<const A> dt, Tensor1<const A> a_log) const;
  // Decay across the full chunk, (H, 1).
  Matrix<const A> over(const Chunk& k) const { return columns(Matrix<const A>(from_start), k.length - 1, 1); }
};

// Tokens of a chunk and heads of a group. B and C are GEMM operands of type P.
template <class T, class P>
struct Group {
  using A = Acc<T>;
  Chunk chunk;
  Index number, groups, sharing, tokens, heads, head_dim, first_head;
  Decay<A> decay;
  Tensor2<const A> dt;   // time steps of all tokens, shape (B T, H)
  Matrix<const T> x;     // inputs x of the group, one row per token, shape (q, R P)
  Matrix<const P> b, c;  // B and C of the group, one row per token, shape (q, N)

  Group(Device& dev, const Chunking& n, const Chunk& chunk, Index g, const SsdInput<T>& in, Tensor2<const A> dt, const Decay<A>& decay)
      : chunk(chunk), number(g), groups(n.num_groups), sharing(n.sharing), tokens(chunk.length), heads(n.heads_per_group), head_dim(n.head_dim),
        first_head(g * heads), decay(decay), dt(dt), x(part(in.x)), b(operand<P>(dev, shared(in.b))), c(operand<P>(dev, shared(in.c))) {}

  Index channels() const { return heads * head_dim; }
  Index state_size() const { return b.columns; }
  Matrix<const A> over() const { return decay.over(chunk).block(first_head, heads, 0, 1); }
  // Block of (B T, .) with the chunk's rows and the group's columns.
  template <class X>
  Matrix<X> part(Matrix<X> all) const {
    return all.block(chunk.first, tokens, number * (all.columns / groups), all.columns / groups);
  }
  // The same for B and C, whose columns are common to `sharing` groups.
  template <class X>
  Matrix<X> shared(Matrix<X> all) const {
    const Index width = all.columns / (groups / sharing);
    return all.block(chunk.first, tokens, number / sharing * width, width);
  }
  // Columns of one head in (q, R P).
  template <class X>
  Matrix<X> of_head(Matrix<X> x, Index r) const {
    return columns(x, r * head_dim, head_dim);
  }
};

// Calls body(lane, group) for the groups of a chunk. A lane is a device for one thread (lanes.hpp), with its own
// scratch.
template <class T, class P, class Body>
void for_groups(Device& dev, const char* kernel, const Chunking& n, const Chunk& k, const SsdInput<T>& in, Tensor2<const Acc<T>> dt,
                const Decay<Acc<T>>& decay, const Body& body) {
  for_lanes(dev, kernel, n.num_groups, [&](Device& lane, Index g) {
    Scope scope(lane.scratch);
    body(lane, Group<T, P>(lane, n, k, g, in, dt, decay));
  });
}

// Scratch for the gradients of B and C of a chunk by group, (groups q, N) each. Empty if every group has its own B and
// C.
template <class A>
struct SharedGradient {
  Matrix<A> b, c;
  SharedGradient(Device& dev, const Chunking& n) {
    if (n.sharing == 1) return;
    b = dev.scratch.tensor<A>(n.num_groups * n.chunk_size, n.state_size), c = dev.scratch.tensor<A>(n.num_groups * n.chunk_size, n.state_size);
  }
  template <class T, class P>
  Matrix<A> of(const Group<T, P>& k, Matrix<A> all) const {
    return all.block(k.number * k.tokens, k.tokens, 0, all.columns);
  }
  // Adds the gradients of the groups with the same B and C, in order, and stores the sums in the rows of the chunk.
  template <class T>
  void deliver(Device& dev, const char* kernel, const Chunking& n, const Chunk& k, Matrix<T> db, Matrix<T> dc) const {
    if (n.sharing == 1) return;
    const double elements = double(k.length) * n.num_groups * n.state_size;
    const auto run = dev.launch(kernel, 2 * elements, 2 * sizeof(A) * elements);
    if (!run) return;
    const auto from_b = b, from_c = c;
    const Index sharing = n.sharing, width = n.state_size, tokens = k.length, first = k.first;
    for_rows(
        dev, "ssd_add_shared", n.num_groups / sharing * tokens, KOKKOS_LAMBDA(const Index i) {
          const Index g = i / tokens, l = i % tokens;
          T *const b_row = db.row(first + l) + g * width, *const c_row = dc.row(first + l) + g * width;
          for (Index j = 0; j < width; ++j) {
            A b_sum = 0, c_sum = 0;
            for (Index s = g * sharing; s < (g + 1) * sharing; ++s) b_sum += from_b(s * tokens + l, j), c_sum += from_c(s * tokens + l, j);
            b_row[j] = T(b_sum), c_row[j] = T(c_sum);
          }
        });
  }
};

// Intermediate gradients of a group, from its outputs and states to its inputs.
template <class P>
struct GroupGradient {
  using A = Acc<P>;
  Matrix<P> u;                 // u = dt x, shape (q, R P), which both parts of backward use
  Matrix<A> du;                // gradient of u, one row per token, shape (q, R P)
  Matrix<A> b, c;              // gradients of B and C, one row per token, shape (q, N)
  Tensor2<double> within;      // partial sums of da, (R, q): sum_{l>=k,s<k} E(l,s), see ssd_output.cpp
  Tensor2<A> inflow, outflow;  // terms I (state to each output) and F (each token to the state) of da, shape (R, q)
  Tensor1<A> through;          // summands of the term J (entering to leaving state) of da, shape (R P)

  template <class T>
  GroupGradient(Device& dev, const Group<T, P>& k, Matrix<A> db, Matrix<A> dc)
      : u(dev.scratch.tensor<P>(k.tokens, k.channels())), du(dev.scratch.tensor<A>(k.tokens, k.channels())), b(db), c(dc),
        within(dev.scratch.tensor<double>(k.heads, k.tokens)), inflow(dev.scratch.tensor<A>(k.heads, k.tokens)),
        outflow(dev.scratch.tensor<A>(k.heads, k.tokens)), through(dev.scratch.tensor<A>(k.channels())) {}
};

// ---- Defined in ssd.cpp ----

// Backward pass of a group: from the gradients of its outputs and of the state that leaves the chunk to those of its
// tokens and weights.
template <class T, class P>
void group_backward(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Matrix<const Acc<T>> entering,
                    Matrix<const Acc<T>> dleaving, Matrix<const P> dy, Matrix<const P> carried, const SharedGradient<Acc<T>>&,
                    const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);

// ---- Defined in ssd_steps.cpp ----

template <class T>
void time_steps(Device&, const SsdShape&, Matrix<const T> dt_raw, Tensor1<const Acc<T>> dt_bias, Tensor2<Acc<T>> dt);
template <class T, class P>
void step_inputs(Device&, const Group<T, P>&, Matrix<P> u);
template <class T, class P>
void step_inputs_backward(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Matrix<const P> dy,
                          const GroupGradient<P>&, const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);

// ---- Defined in ssd_state.cpp ----

// chunk_state: leaving = beta leaving + contribution of the group's tokens. chunk_state_backward: the adjoint, which is
// the first to write u, du and db.
template <class T, class P>
void chunk_state(Device&, const Group<T, P>&, double beta, Matrix<Acc<T>> leaving);
template <class T, class P>
void chunk_state_backward(Device&, const Group<T, P>&, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving, const GroupGradient<P>&);

// ---- Defined in ssd_passing.cpp ----

// to = factor of the head * from + added, where `added` may be empty. Rows are channels of heads. `to` may be `from` or
// `added`.
template <class A>
void pass_state(Device&, const char* kernel, Index head_dim, Matrix<const A> factor /*(heads, 1)*/, Matrix<const A> from, Matrix<const A> added,
                Matrix<A> to);
template <class A>
void copy(Device&, const char* kernel, const A* from, A* to, Index count);  // copies `count` elements, or writes zeros if `from` is null

// ---- Defined in ssd_output.cpp ----

template <class T, class P>
void chunk_output(Device&, const Group<T, P>&, Tensor1<const Acc<T>> d, Matrix<const Acc<T>> entering, Matrix<T> y);

// carried = exp(s) dY, (q, R P). The GEMM with C is the gradient of the entering state. The GEMM with that state is a
// part of the gradient of C.
template <class T, class P>
void carried_outputs(Device&, const Group<T, P>&, Matrix<const P> dy, Matrix<P> carried);
template <class T, class P>
void chunk_output_backward(Device&, const Group<T, P>&, Matrix<const Acc<T>> entering, Matrix<const P> dy, Matrix<const P> carried,
                           const GroupGradient<P>&);

}  // namespace gyr::scan
