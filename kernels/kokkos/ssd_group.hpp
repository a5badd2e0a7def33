// SPDX-License-Identifier: BSD-3-Clause
// What the pieces of the scan share: how it is cut into chunks, decays within one, and the block that every piece works on, the q tokens of a
// chunk and the R = H/G heads that share the B and C of a group. What heads share is one product for all of them. Where kernels have threads,
// each takes some of a group's heads: they are groups with B and C of their own, but for their place and for the sum of the gradients of these.
//   s_l = sum_{k<=l} A dt_k within the chunk and l's document, u = dt x
//   Packed documents: what would cross the beginning of one decays to an exact zero, so backward needs no case of its own.
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
void product(Device& dev, MatrixOp op_a, Matrix<const P> a, MatrixOp op_b, Matrix<const P> b, Matrix<Acc<P>> c, double alpha = 1, double beta = 0) {
  gemm<P, Acc<P>>(dev, op_a, a, op_b, b, c, alpha, beta, "ssd_gemm");
}

// One chunk of one sequence: rows [first, first + length) of (B T, .).
struct Chunk {
  Index sequence, number, first, length;
  Documents documents;

  // The first token of the chunk that belongs to token l's document, and whether that began before the chunk.
  KOKKOS_INLINE_FUNCTION Index begin(Index l) const { return after(l, documents.reach(first + l)); }
  KOKKOS_INLINE_FUNCTION bool carried(Index l) const { return documents.reach(first + l) > l; }
  Index planned_begin(Index l) const { return after(l, documents.planned_reach(first + l)); }
  KOKKOS_INLINE_FUNCTION static Index after(Index l, Index reach) { return reach < l ? l - reach : 0; }
};

// Into how many parts the heads that share B and C are cut: four or more, so that a few threads have work, of four heads where they are many,
// because parts repeat what their heads share.
inline Index parts_of(Index heads) {
  Index parts = threaded ? std::max<Index>(4, heads / 4) : 1;
  while (heads % parts != 0) --parts;
  return parts;
}

// How a scan is cut into chunks of tokens and groups of heads.
struct Chunking {
  Index batch, seq_length, num_heads, sharing, num_groups, head_dim, state_size, chunk_size;  // sharing: groups with the same B and C
  Index chunks, heads_per_group;
  Documents documents;

  explicit Chunking(const SsdShape& s, const Documents& packed = {})
      : batch(s.batch), seq_length(s.seq_length), num_heads(s.num_heads), sharing(parts_of(s.num_heads / s.num_groups)),
        num_groups(s.num_groups * sharing), head_dim(s.head_dim), state_size(s.state_size), chunk_size(std::min(s.chunk_size, s.seq_length)),
        chunks(s.chunks()), heads_per_group(s.num_heads / num_groups), documents(packed) {}

  Index channels() const { return heads_per_group * head_dim; }               // of a group: R P
  Index state_elements() const { return num_heads * head_dim * state_size; }  // of a sequence: H P N
  Chunk at(Index b, Index c) const { return {b, c, b * seq_length + c * chunk_size, std::min(chunk_size, seq_length - c * chunk_size), documents}; }
  // The state of all heads, (H P, N), and of a group's, (R P, N).
  template <class A>
  Matrix<A> state(A* all) const {
    return {all, num_heads * head_dim, state_size, state_size};
  }
  template <class A>
  Matrix<A> state(A* all, Index g) const {
    return state(all).block(g * channels(), channels(), 0, state_size);
  }
};

// body(chunk) for the chunks of all sequences, those of a sequence in order.
template <class Body>
void for_chunks(const Chunking& n, const Body& body) {
  for (Index b = 0; b < n.batch; ++b)
    for (Index c = 0; c < n.chunks; ++c) body(n.at(b, c));
}

// The same where chunks of one length take equal work, but for documents.
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

// States around the chunks, or their gradients: `between` (B, chunks, H P N) enter, `last` (B, H P N), or empty, leave the sequences.
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

// Decay between places of a chunk, (H, Q): s_l = sum(h,l) + 2^-24 rest(h,l), from_start = exp(s_l), to_end = exp(s_Q - s_l); zero where a
// document begins in between.
template <class A>
struct Decay {
  Tensor2<A> sum, rest, from_start, to_end;

  Decay(Device&, const Chunking&);
  void fill(Device&, const char* kernel, const Chunk&, Tensor2<const A> dt, Tensor1<const A> a_log) const;
  // Over the whole chunk, (H, 1).
  Matrix<const A> over(const Chunk& k) const { return columns(Matrix<const A>(from_start), k.length - 1, 1); }
};

// A chunk's tokens and a group's heads. B and C are operands of type P.
template <class T, class P>
struct Group {
  using A = Acc<T>;
  Chunk chunk;
  Index number, groups, sharing, tokens, heads, head_dim, first_head;
  Decay<A> decay;
  Tensor2<const A> dt;   // (B T, H)
  Matrix<const T> x;     // (q, R P)
  Matrix<const P> b, c;  // (q, N)

  Group(Device& dev, const Chunking& n, const Chunk& chunk, Index g, const SsdInput<T>& in, Tensor2<const A> dt, const Decay<A>& decay)
      : chunk(chunk), number(g), groups(n.num_groups), sharing(n.sharing), tokens(chunk.length), heads(n.heads_per_group), head_dim(n.head_dim),
        first_head(g * heads), decay(decay), dt(dt), x(part(in.x)), b(operand<P>(dev, shared(in.b))), c(operand<P>(dev, shared(in.c))) {}

  Index channels() const { return heads * head_dim; }
  Index state_size() const { return b.columns; }
  Matrix<const A> over() const { return decay.over(chunk).block(first_head, heads, 0, 1); }
  // The chunk's rows and the group's columns of (B T, .).
  template <class X>
  Matrix<X> part(Matrix<X> all) const {
    return all.block(chunk.first, tokens, number * (all.columns / groups), all.columns / groups);
  }
  // The same of B and C, which are as many as groups that share none.
  template <class X>
  Matrix<X> shared(Matrix<X> all) const {
    const Index width = all.columns / (groups / sharing);
    return all.block(chunk.first, tokens, number / sharing * width, width);
  }
  // The columns of one head of (q, R P).
  template <class X>
  Matrix<X> of_head(Matrix<X> x, Index r) const {
    return columns(x, r * head_dim, head_dim);
  }
};

// body(lane, group) for the groups of a chunk, each with its own scratch.
template <class T, class P, class Body>
void for_groups(Device& dev, const char* kernel, const Chunking& n, const Chunk& k, const SsdInput<T>& in, Tensor2<const Acc<T>> dt,
                const Decay<Acc<T>>& decay, const Body& body) {
  for_lanes(dev, kernel, n.num_groups, [&](Device& lane, Index g) {
    Scope scope(lane.scratch);
    body(lane, Group<T, P>(lane, n, k, g, in, dt, decay));
  });
}

// Room for the gradients of B and C of a chunk by groups, (groups q, N) each; none where every group has its own.
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
  // Adds them up in the order of the groups into the rows of the chunk.
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

// Gradients of a group on their way from its outputs and states to its inputs.
template <class P>
struct GroupGradient {
  using A = Acc<P>;
  Matrix<P> u;                 // (q, R P): u itself, which both pieces need
  Matrix<A> du;                // (q, R P)
  Matrix<A> b, c;              // (q, N)
  Tensor2<double> within;      // (R, q): sum_{l>=k,s<k} E(l,s), see ssd_output.cpp
  Tensor2<A> inflow, outflow;  // (R, q): I and F, what the state gave each output and each token the state
  Tensor1<A> through;          // (R P): summands of J, what the state that entered gave the one that left

  template <class T>
  GroupGradient(Device& dev, const Group<T, P>& k, Matrix<A> db, Matrix<A> dc)
      : u(dev.scratch.tensor<P>(k.tokens, k.channels())), du(dev.scratch.tensor<A>(k.tokens, k.channels())), b(db), c(dc),
        within(dev.scratch.tensor<double>(k.heads, k.tokens)), inflow(dev.scratch.tensor<A>(k.heads, k.tokens)),
        outflow(dev.scratch.tensor<A>(k.heads, k.tokens)), through(dev.scratch.tensor<A>(k.channels())) {}
};

// ---- ssd.cpp ----

// From the gradients of a group's outputs and of the state that leaves the chunk to those of its tokens and weights.
template <class T, class P>
void group_backward(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Matrix<const Acc<T>> entering,
                    Matrix<const Acc<T>> dleaving, Matrix<const P> dy, Matrix<const P> carried, const SharedGradient<Acc<T>>&,
                    const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);

// ---- ssd_steps.cpp ----

template <class T>
void time_steps(Device&, const SsdShape&, Matrix<const T> dt_raw, Tensor1<const Acc<T>> dt_bias, Tensor2<Acc<T>> dt);
template <class T, class P>
void step_inputs(Device&, const Group<T, P>&, Matrix<P> u);
template <class T, class P>
void step_inputs_backward(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Matrix<const P> dy,
                          const GroupGradient<P>&, const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);

// ---- ssd_state.cpp ----

// What the group's tokens add to the state that leaves the chunk, beta times what is there added. And its adjoint, the first to write u, du and db.
template <class T, class P>
void chunk_state(Device&, const Group<T, P>&, double beta, Matrix<Acc<T>> leaving);
template <class T, class P>
void chunk_state_backward(Device&, const Group<T, P>&, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving, const GroupGradient<P>&);

// ---- ssd_passing.cpp ----

// to = factor of its head * from + added, nothing where that is empty; rows are channels of heads. `to` may be either.
template <class A>
void pass_state(Device&, const char* kernel, Index head_dim, Matrix<const A> factor /*(heads, 1)*/, Matrix<const A> from, Matrix<const A> added,
                Matrix<A> to);
template <class A>
void copy(Device&, const char* kernel, const A* from, A* to, Index count);  // zeros where `from` is null

// ---- ssd_output.cpp ----

template <class T, class P>
void chunk_output(Device&, const Group<T, P>&, Tensor1<const Acc<T>> d, Matrix<const Acc<T>> entering, Matrix<T> y);

// exp(s) dY, (q, R P): its product with C is the gradient of the state that entered, its product with that state a part of the gradient of C.
template <class T, class P>
void carried_outputs(Device&, const Group<T, P>&, Matrix<const P> dy, Matrix<P> carried);
template <class T, class P>
void chunk_output_backward(Device&, const Group<T, P>&, Matrix<const Acc<T>> entering, Matrix<const P> dy, Matrix<const P> carried,
                           const GroupGradient<P>&);

}  // namespace gyr::scan
