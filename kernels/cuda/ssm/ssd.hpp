// SPDX-License-Identifier: BSD-3-Clause
// Shared definitions of the Mamba-2 scan kernels: the chunk layout, decays between tokens of a chunk, and GEMMs of
// small tiles without tensor cores. Symbols as in kernels/ops/ssd_chunk.hpp, and u = dt x. Chunks are numbered through all
// sequences of the batch.
#pragma once

#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/ops/ssd_math.hpp"

namespace gyr::cuda::scan {

using gyr::scan::difference;
using gyr::scan::rest_unit;
using gyr::scan::softplus;
using gyr::scan::softplus_slope;

inline constexpr int span = 64;  // tokens per tile of the tensor-core kernels

// Shape of a scan and its document positions, as an argument of kernels.
struct ChunkGrid {
  Index batch, seq_length, chunk_size, chunks, num_heads, num_groups, head_dim, state_size;  // chunks: number of chunks per sequence
  Global<const std::int32_t> positions;  // position of each token in its document, shape (B T); empty if not packed

  explicit ChunkGrid(const SsdShape& s, const Documents& documents = {})
      : batch(s.batch), seq_length(s.seq_length), chunk_size(std::min(s.chunk_size, s.seq_length)), chunks(s.chunks()), num_heads(s.num_heads),
        num_groups(s.num_groups), head_dim(s.head_dim), state_size(s.state_size), positions(documents.positions) {}

  GYR_FUNCTION Index all_chunks() const { return batch * chunks; }
  GYR_FUNCTION Index tiles() const { return ceil_div(chunk_size, span); }
  GYR_FUNCTION Index heads_per_group() const { return num_heads / num_groups; }
  GYR_FUNCTION Index head_elements() const { return head_dim * state_size; }
  GYR_FUNCTION Index state_elements() const { return num_heads * head_elements(); }

  // Counts for the FLOP and byte estimates: tokens, and pairs (l, s) with s <= l in the same chunk. Document boundaries
  // are ignored.
  double tokens() const { return double(batch) * double(seq_length); }
  double pairs() const {
    const double full_chunks = double(seq_length / chunk_size), q = double(chunk_size), rest = double(seq_length % chunk_size);
    return double(batch) * (full_chunks * q * (q + 1) + rest * (rest + 1)) / 2;
  }
  // Elements in the states of all chunks.
  double states() const { return double(all_chunks()) * double(state_elements()); }
};

// One chunk of one sequence: rows [first, first + length) of (B T, .).
struct Chunk {
  Index number, first, length;

  GYR_DEVICE Chunk(const ChunkGrid& s, Index number) : number(number) {
    const Index begin = number % s.chunks * s.chunk_size;
    first = number / s.chunks * s.seq_length + begin;
    length = s.chunk_size < s.seq_length - begin ? s.chunk_size : s.seq_length - begin;
  }
  GYR_DEVICE Index reach(const ChunkGrid& s, Index l) const { return s.positions ? Index(s.positions.load(first + l)) : Documents::unlimited; }
  // begin: first token of the chunk that belongs to the document of token l. carried: true if that document began
  // before the chunk.
  GYR_DEVICE Index begin(const ChunkGrid& s, Index l) const {
    const Index r = reach(s, l);
    return r < l ? l - r : 0;
  }
  GYR_DEVICE bool carried(const ChunkGrid& s, Index l) const { return reach(s, l) > l; }
};

// Decay exponents s_l = sum + 2^-24 rest for every head of every chunk, (B chunks H, Q).
template <class A>
struct Decays {
  Global<const A> sum, rest;
};

template <class A>
struct DecaySum {
  A sum, rest;
};
// Decay from token s to token l: exp(s_l - s_s).
template <class A>
GYR_DEVICE A decay_between(const DecaySum<A>& l, const DecaySum<A>& s) {
  return fast_exp(difference(l.sum, l.rest, s.sum, s.rest));
}

// Decays of one head within a chunk. They are exactly 0 across a document boundary.
template <class A>
struct HeadDecay {
  const ChunkGrid& grid;
  const Chunk& chunk;
  const Decays<A>& all;
  Index row, last_begin;  // last_begin: first token of the last token's document

  GYR_DEVICE HeadDecay(const ChunkGrid& s, const Chunk& k, const Decays<A>& all, Index head)
      : grid(s), chunk(k), all(all), row(k.number * s.num_heads + head), last_begin(k.begin(s, k.length - 1)) {}
  // exp(s_l - s_s). Precondition: s <= l, and both tokens belong to the same document.
  GYR_DEVICE A between(Index l, Index s) const { return decay_between(at(l), at(s)); }
  GYR_DEVICE DecaySum<A> at(Index l) const { return {all.sum.load(row, l), all.rest.load(row, l)}; }
  GYR_DEVICE A from_start(Index l) const { return chunk.carried(grid, l) ? fast_exp(all.sum.load(row, l)) : A(0); }
  GYR_DEVICE A to_end(Index l) const { return l >= last_begin ? between(chunk.length - 1, l) : A(0); }
  GYR_DEVICE A over() const { return from_start(chunk.length - 1); }
};

// Chunk states or their gradients. between: state that enters each chunk, (B chunks, H P N). last: state that leaves
// each sequence, (B, H P N), or empty.
template <class A>
struct States {
  Global<A> between, last;

  GYR_DEVICE bool has_next_chunk(const ChunkGrid& s, Index chunk) const { return chunk % s.chunks + 1 < s.chunks; }
  GYR_DEVICE bool stores_leaving_state(const ChunkGrid& s, Index chunk) const { return has_next_chunk(s, chunk) || last; }
  // Calls f(tensor, row) with the location of the state that leaves a chunk.
  template <class F>
  GYR_DEVICE auto with_leaving_state(const ChunkGrid& s, Index chunk, const F& f) const {
    return has_next_chunk(s, chunk) ? f(between, chunk + 1) : f(last, chunk / s.chunks);
  }
};

// Views (B, chunks, .) as (B chunks, .). The view is empty if x is empty.
template <class T>
Global<T> rows_of(const Tensor3<T>& x) {
  if (!x.data()) return {};
  return Matrix<T>(x.data(), x.extent(0) * x.extent(1), x.extent(2), x.extent(2));
}

// ---- GEMMs of tiles: 64 threads, each with rows y + 8 i (i < 4) and columns x + 8 j (j < J). ----

inline constexpr int side = 8, threads = side * side, tile = 4 * side, depth = 16, operand_stride = depth + 1;
inline constexpr int square_stride = tile + 1, square_tile_elements = tile * square_stride;
// J of the widest tiles: 8 for tiles of 64 columns. double uses square tiles with J = 4, because it lacks the
// registers.
template <class A>
inline constexpr int wide = std::is_same_v<A, double> ? 4 : 8;
template <class A>
inline constexpr int columns_of = side* wide<A>;
template <class A>
inline constexpr int gemm_tile_elements = (tile + columns_of<A>)*operand_stride;

GYR_DEVICE int my_x() { return thread_index() % side; }
GYR_DEVICE int my_y() { return thread_index() / side; }

// GEMM operand with elements (i, k). Elements adjacent in memory have consecutive k (along) or consecutive i (across).
template <bool along, class F>
struct Operand {
  F at;
};
template <class F>
GYR_DEVICE Operand<true, F> along(const F& f) {
  return {f};
}
template <class F>
GYR_DEVICE Operand<false, F> across(const F& f) {
  return {f};
}

// Calls f(i, j, row, column) for every element of the tile that this thread holds.
template <int J, class F>
GYR_DEVICE void each_of_tile(const F& f) {
  const int x = my_x(), y = my_y();
  GYR_UNROLL
  for (int i = 0; i < 4; ++i) {
    GYR_UNROLL
    for (int j = 0; j < J; ++j) f(i, j, y + side * i, x + side * j);
  }
}

template <class A, bool is_along, class F>
GYR_DEVICE void load_gemm_operand(const Shared<A>& operands, int begin, int rows, Index first, Index count, const Operand<is_along, F>& x) {
  for (int i = thread_index(); i < rows * depth; i += threads) {
    const int r = is_along ? i / depth : i % rows, k = is_along ? i % depth : i / rows;
    operands.store(begin + r * operand_stride + k, first + k < count ? x.at(r, first + k) : A(0));
  }
}

// sum(i, j) += sum over k < count of a(i, k) b(j, k), computed by all threads of the block. operands: shared memory for
// gemm_tile_elements elements.
template <class A, int J, class Left, class Right>
GYR_DEVICE void add_gemm(Index count, const Left& a, const Right& b, const Shared<A>& operands, A (&sum)[4][J]) {
  constexpr int b_offset = tile * operand_stride;
  for (Index first = 0; first < count; first += depth) {
    sync_block();
    load_gemm_operand(operands, 0, tile, first, count, a);
    load_gemm_operand(operands, b_offset, side * J, first, count, b);
    sync_block();
    const int left_row = my_y() * operand_stride, right_row = b_offset + my_x() * operand_stride;
    for (int k = 0; k < depth; ++k) {
      A left[4], right[J];
      for (int i = 0; i < 4; ++i) left[i] = operands.load(left_row + side * i * operand_stride + k);
      for (int j = 0; j < J; ++j) right[j] = operands.load(right_row + side * j * operand_stride + k);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        GYR_UNROLL
        for (int j = 0; j < J; ++j) sum[i][j] += left[i] * right[j];
      }
    }
  }
}

// Multiplies each row of the tile by factor(row).
template <class A, int J, class F>
GYR_DEVICE void scale_rows(A (&sum)[4][J], const F& factor) {
  GYR_UNROLL
  for (int i = 0; i < 4; ++i) {
    const A f = factor(my_y() + side * i);
    GYR_UNROLL
    for (int j = 0; j < J; ++j) sum[i][j] *= f;
  }
}

// Splits a block index into coordinates, the fastest-varying coordinate first.
struct BlockIndex {
  Index left = block_index();
  GYR_DEVICE Index take(Index count) {
    const Index i = left % count;
    left /= count;
    return i;
  }
};

// ---- Functions that ssd.cu combines. The caller has already reported their FLOPs and bytes with Device::launch. ----

// Scratch for the decay exponents of one call.
template <class A>
struct DecayScratch {
  Tensor2<A> sum, rest;
  DecayScratch(Device& dev, const ChunkGrid& s)
      : sum(dev.scratch.tensor<A>(s.all_chunks() * s.num_heads, s.chunk_size)),
        rest(dev.scratch.tensor<A>(s.all_chunks() * s.num_heads, s.chunk_size)) {}
  Decays<A> decays() const { return {Tensor2<const A>(sum), Tensor2<const A>(rest)}; }
};

// Scratch of the tensor-core kernels. Per-token values are (B chunks H, Q). All tensors are empty if the kernels do not
// support the shape.
struct TensorCoreScratch {
  Tensor2<bf16> entering, leaving;      // (B chunks, H P N): entering states, and gradients of leaving states, in bf16
  Tensor2<float> both;                  // one allocation that contains `entering` and `leaving`
  Tensor2<bf16> of_outputs, of_inputs;  // gradient dG of C B' and its transpose, (B chunks G Q, Q), Q rounded up to full tiles
  Tensor2<float> cb;                    // C . B of each pair of tiles in mma fragment order, (B chunks G tiles tiles, 4096)
  Tensor2<float> start, end, step;      // decay from the chunk start exp(s_l), decay to its end exp(s_Q - s_l), and dt_l

  static bool fits(const ChunkGrid& s) {
    return s.head_dim % 8 == 0 && s.state_size % 8 == 0 && s.head_dim <= 128 && s.state_size <= 256 && s.chunk_size <= 2048;
  }
  // True if one block carries its part of a state through all chunks of a sequence, instead of one block per chunk.
  // This moves each state through memory only once. It needs enough blocks to fill a GPU, or few chunks.
  static constexpr Index channels = 64, state_dims = 128;  // channels and state dimensions of a head's state per block
  static Index state_blocks(const ChunkGrid& s) { return ceil_div(s.head_dim, channels) * ceil_div(s.state_size, state_dims); }
  static bool walks(const ChunkGrid& s) { return fits(s) && (s.batch * s.num_heads * state_blocks(s) >= 128 || s.chunks <= 4); }
  TensorCoreScratch() = default;
  TensorCoreScratch(Device& dev, const ChunkGrid& s, bool backward) {
    if (!fits(s)) return;
    const Index groups = s.all_chunks() * s.num_groups, heads = s.all_chunks() * s.num_heads;
    const Index states = s.all_chunks() * s.state_elements();
    if (backward) {
      both = dev.scratch.tensor<float>(s.all_chunks(), s.state_elements());
      bf16* const half = reinterpret_cast<bf16*>(both.data());
      entering = Tensor2<bf16>(half, s.all_chunks(), s.state_elements());
      leaving = Tensor2<bf16>(half ? half + states : half, s.all_chunks(), s.state_elements());
    } else {
      entering = dev.scratch.tensor<bf16>(s.all_chunks(), s.state_elements());
    }
    cb = dev.scratch.tensor<float>(groups * s.tiles() * s.tiles(), span * span);
    for (auto* x : {&start, &end, &step}) *x = dev.scratch.tensor<float>(heads, s.chunk_size);
    if (!backward) return;
    for (auto* x : {&of_outputs, &of_inputs}) *x = dev.scratch.tensor<bf16>(groups * s.tiles() * span, s.tiles() * span);
  }
};
template <class T>
TensorCoreScratch tensor_core_scratch(Device& dev, const ChunkGrid& s, bool backward) {
  if constexpr (std::is_same_v<T, bf16>) return {dev, s, backward};
  else return {};
}

// Per-token and per-head sums of the backward pass, (B chunks H, Q), from which the gradient of dt is computed. State
// dimensions are split into parts of columns_of<A>.
template <class A>
struct TokenSums {
  Index parts;
  Index stretch;                 // tokens of a chunk per partial sum of E
  Global<double> rows, columns;  // partial sums of E(l,s) = dW(l,s) W(l,s), s < l, over s and over l: (B chunks H stretches, Q)
  // Dot products I_l = C_l . (state term of dC_l) and F_s = B_s . (state term of dB_s) of a head, (B chunks H parts,
  // Q).
  Global<A> inflow, outflow;
  Global<A> ddt, dd;  // dot products x . dU and x . dy per token and head, (B chunks H, Q)
  Index throughs;     // partial sums per head in `through`
  Global<A> through;  // J = exp(s_Q) S . dS, from the entering state to the leaving state, (B chunks, H throughs)

  TokenSums(Device& dev, const ChunkGrid& s, bool by_tiles) : parts(ceil_div(s.state_size, columns_of<A>)), stretch(by_tiles ? span : s.chunk_size) {
    const Index all = s.all_chunks() * s.num_heads, q = s.chunk_size;
    for (auto* x : {&rows, &columns}) *x = dev.scratch.tensor<double>(all * ceil_div(q, stretch), q);
    inflow = dev.scratch.tensor<A>(all * parts, q), outflow = dev.scratch.tensor<A>(all * parts, q);
    ddt = dev.scratch.tensor<A>(all, q), dd = dev.scratch.tensor<A>(all, q);
    throughs = by_tiles ? 4 * TensorCoreScratch::state_blocks(s) : 1;
    through = dev.scratch.tensor<A>(s.all_chunks(), s.num_heads * throughs);
  }
};

// Kernel inputs of one call.
template <class T>
struct Tokens {
  Global<const T> x, b, c;
  Global<const Acc<T>> dt;
  Decays<Acc<T>> decays;
};

// Defined in ssd.cu.
// Copies `from` to x row by row. Writes zeros if `from` is empty.
template <class A>
void copy_rows(Device&, const char* kernel, Global<const A> from, Global<A> x);

// Defined in ssd_steps.cu.
template <class T>
void time_steps(Device&, const SsdShape&, Matrix<const T> dt_raw, Tensor1<const Acc<T>> dt_bias, Tensor2<Acc<T>> dt);
// over: decay across each chunk, (B chunks, H), or empty.
template <class A>
void fill_decays(Device&, const char* kernel, const ChunkGrid&, Tensor2<const A> dt, Tensor1<const A> a_log, const DecayScratch<A>&, Global<A> over);
// partial: scratch of (B chunks, 3 H), the gradients of dt_bias, a_log and D of each chunk.
template <class T>
void steps_backward(Device&, const SsdShape&, const ChunkGrid&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>> dt,
                    const TokenSums<Acc<T>>&, Tensor2<Acc<T>> partial, Matrix<T> d_raw, const SsdWeightGradient<Acc<T>>&);

// Defined in ssd_state.cu.
// chunk_states writes L_c to the location of the state that leaves chunk c. chunk_states_of_outputs writes dstates(c) =
// sum_l exp(s_l) dy_l C_l'.
template <class T>
void chunk_states(Device&, const ChunkGrid&, const Tokens<T>&, const States<Acc<T>>&);
template <class T>
void chunk_states_of_outputs(Device&, const ChunkGrid&, const Tokens<T>&, Global<const T> dy, Global<Acc<T>> dstates);

// Sequential walks through all chunks (see TensorCoreScratch::walks). walk_states computes the entering and last states, and
// bf16 copies. walk_gradients computes the bf16 gradients of the leaving states, J, and dinitial. Both return false and
// do nothing if the shape or an alignment is not supported.
template <class T>
bool walk_states(Device&, const ChunkGrid&, const Tokens<T>&, Global<const Acc<T>> over, const States<Acc<T>>&, const TensorCoreScratch&);
template <class T>
bool walk_gradients(Device&, const ChunkGrid&, const Tokens<T>&, Global<const Acc<T>> over, Global<const T> dy, Global<const Acc<T>> entering,
                    Global<const Acc<T>> dlast, Global<Acc<T>> dinitial, const SsdInputGradient<T>&, const TensorCoreScratch&, TokenSums<Acc<T>>&);

// Defined in ssd_passing.cu.
template <class A>
void pass_states(Device&, const ChunkGrid&, Global<const A> decay, Global<const A> initial, const States<A>&);
template <class A>
void pass_states_backward(Device&, const ChunkGrid&, Global<const A> decay, Global<const A> dlast, Global<A> dstates);
// Defined in ssd_output.cu.
template <class T>
void outputs(Device&, const ChunkGrid&, const Tokens<T>&, Tensor1<const Acc<T>> d, Global<const Acc<T>> entering, const TensorCoreScratch&,
             bool walked, Global<T> y);

// Defined in ssd_gradient.cu.
template <class T>
void token_gradients(Device&, const ChunkGrid&, const Tokens<T>&, Tensor1<const Acc<T>> d, Global<const T> dy, Global<const Acc<T>> entering,
                     const States<const Acc<T>>& gradients, const TensorCoreScratch&, bool walked, const SsdInputGradient<T>&, TokenSums<Acc<T>>&);

}  // namespace gyr::cuda::scan
