// SPDX-License-Identifier: BSD-3-Clause
// Shared definitions of the scan's tensor-core kernels: bf16 tiles in shared memory and warp-level mma, with 16 output
// rows per warp. In an accumulator fragment, a lane holds rows lane / 4 and lane / 4 + 8, and of every eight columns
// number 2 (lane % 4) and the next.
#pragma once

#include "kernels/cuda/machine/tile_pipeline.hpp"
#include "kernels/cuda/ssm/ssd.hpp"

namespace gyr::cuda::scan {

inline constexpr int quads = 4;                                                // lanes that hold one row of a fragment
inline constexpr int warps = span / 16, tensor_threads = warps * warp_size;    // warps and threads of a block that computes 64 tokens
inline constexpr int wide_rows = 2 * span, wide_threads = 2 * tensor_threads;  // rows and threads of a block that computes 128 tokens
inline constexpr int usual_stages = 3;                                         // pipeline stages of shared-memory tiles

// Row stride of a shared-memory tile in elements: a multiple of 16, plus 16 bytes so that ldmatrix reads eight rows
// without bank conflicts.
GYR_FUNCTION constexpr int stride_of(Index width) { return int(ceil_div(width, 16)) * 16 + 8; }

// A bf16 tile in shared memory.
struct Tile {
  int first_byte, stride, rows;
  GYR_FUNCTION constexpr Tile(int first_byte, Index width, int rows = span) : first_byte(first_byte), stride(stride_of(width)), rows(rows) {}
  GYR_FUNCTION constexpr int end() const { return first_byte + rows * stride * int(sizeof(bf16)); }  // byte after the tile, a multiple of 16
  GYR_DEVICE bf16* at(int r, Index c) const { return Shared<bf16>(first_byte).at(r * stride + int(c)); }
};

// Calls copy(row, column, address) for every pack of 8 elements of a tile. All threads of the block take part.
template <int rows, int width, int threads, class Copy>
GYR_DEVICE void each_pack_of(const Tile& to, const Copy& copy) {
  constexpr int packs = width / 8, row_stride = threads / packs;
  static_assert(threads % packs == 0 && rows % row_stride == 0);
  const int first = thread_index() / packs, c = thread_index() % packs * 8;
  GYR_UNROLL
  for (int r = 0; r < rows; r += row_stride) copy(first + r, c, to.at(first + r, c));
}
// Issues cp.async copies of rows [first, first + rows) and columns [column, column + width) to a tile. Elements beyond
// the ends are zero.
template <int rows, int width, int threads>
GYR_DEVICE void fetch(const Global<const bf16>& x, Index first, Index end, Index column, Index end_column, const Tile& to) {
  const int rows_left = int(end - first), columns_left = int(end_column - column);
  each_pack_of<rows, width, threads>(
      to, [&](int r, int c, bf16* place) { x.copy_inside(first + r, column + c, place, r < rows_left && c < columns_left); });
}
// Issues cp.async copies of a part of a head's state to a tile: `rows` channels from p0, state dimensions [n0, n0 +
// 64). Elements beyond the ends are zero.
template <int rows, int threads>
GYR_DEVICE void fetch_state(const ChunkGrid& s, const Global<const bf16>& states, Index chunk, Index head, Index p0, Index n0, const Tile& to) {
  const Index first = (head * s.head_dim + p0) * s.state_size + n0;
  const int channels = int(s.head_dim - p0), state_dims = int(s.state_size - n0), row_stride = int(s.state_size);
  each_pack_of<rows, span, threads>(
      to, [&](int r, int c, bf16* place) { states.copy_inside(chunk, first + (r * row_stride + c), place, r < channels && c < state_dims); });
}

// A fragment of rows [16 warp, 16 warp + 16) and columns [c, c + 16), loaded with ldmatrix.
GYR_DEVICE FragmentA left_of(const Tile& a, Index c) { return load_matrix_x4(a.at(warp() * 16 + lane() % 16, c + lane() / 16 * 8)); }

// multiply_rows: d += a b' for two adjacent groups of eight rows of b, whose columns match those of a.
// multiply_columns: d += a b for two adjacent groups of eight columns of b.
GYR_DEVICE void multiply_rows(FragmentD& d, FragmentD& next, const FragmentA& a, const Tile& b, int row, Index c) {
  const FragmentA r = load_matrix_x4(b.at(row + lane() / 16 * 8 + lane() % 8, c + lane() / 8 % 2 * 8));
  multiply_add(d, a, {{r.at[0], r.at[1]}});
  multiply_add(next, a, {{r.at[2], r.at[3]}});
}
GYR_DEVICE void multiply_columns(FragmentD& d, FragmentD& next, const FragmentA& a, const Tile& b, int row, Index c) {
  const FragmentA r = load_matrix_x4_transposed(b.at(row + lane() % 16, c + lane() / 16 * 8));
  multiply_add(d, a, {{r.at[0], r.at[1]}});
  multiply_add(next, a, {{r.at[2], r.at[3]}});
}

// d (16, 8 F) += a (16, count) b (8 F, count)'
template <int count, int F>
GYR_DEVICE void add_by_rows(const Tile& a, const Tile& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int c = 0; c < count; c += 16) {
    const FragmentA left = left_of(a, c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_rows(d[n], d[n + 1], left, b, n * 8, c);
  }
}
// d (16, 8 F) += a (16, count) b (count, 8 F)
template <int count, int F>
GYR_DEVICE void add_by_columns(const Tile& a, const Tile& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int c = 0; c < count; c += 16) {
    const FragmentA left = left_of(a, c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_columns(d[n], d[n + 1], left, b, c, n * 8);
  }
}
// The same, with a given as accumulator fragments of a previous mma.
template <int F>
GYR_DEVICE void add_by_columns(const FragmentD (&a)[span / 8], const Tile& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int c = 0; c < span; c += 16) {
    const FragmentD &one = a[c / 8], &two = a[c / 8 + 1];
    const FragmentA left{{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_columns(d[n], d[n + 1], left, b, c, n * 8);
  }
}

// my_row, my_column: positions of a lane's fragment elements. each_element calls f(h, column, value), and each_pair
// calls f(h, column, value, next value), where h = 0 or 1 selects the row.
GYR_DEVICE int my_row(int h) { return warp() * 16 + lane() / quads + 8 * h; }
GYR_DEVICE int my_column(int n) { return n * 8 + lane() % quads * 2; }
template <int F, class G>
GYR_DEVICE void each_element(FragmentD (&d)[F], const G& f) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) {
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) f(i / 2, my_column(n) + i % 2, d[n].at[i]);
  }
}
template <int F, class G>
GYR_DEVICE void each_pair(FragmentD (&d)[F], const G& f) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) {
    GYR_UNROLL
    for (int h = 0; h < 2; ++h) f(h, my_column(n), d[n].at[2 * h], d[n].at[2 * h + 1]);
  }
}
// Calls f(h, column, four adjacent values) with the lane's elements rounded to bf16. Pairs of lanes exchange elements,
// so that each row is stored in runs of 32 bytes.
template <int F, class G>
GYR_DEVICE void each_four(const FragmentD (&d)[F], const G& f) {
  struct Four {
    std::uint32_t low, high;
  };
  const bool odd = lane() % 2 == 1;
  GYR_UNROLL
  for (int n = 0; n < F; n += 2) {
    GYR_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t first = pair(d[n].at[2 * h], d[n].at[2 * h + 1]), second = pair(d[n + 1].at[2 * h], d[n + 1].at[2 * h + 1]);
      const std::uint32_t other = shuffle_xor(odd ? first : second, 1);
      const Four four = odd ? Four{other, second} : Four{first, other};
      f(h, (n + odd) * 8 + lane() % quads / 2 * 4, __builtin_bit_cast(Pack<bf16, 4>, four));
    }
  }
}
// Sum over the four lanes of a fragment row.
GYR_DEVICE float quad_sum(float v) {
  for (int with = 1; with < quads; with *= 2) v += shuffle_xor(v, with);
  return v;
}

// exp(s_l - s_s) if l >= s, otherwise some value of at most 1.
GYR_DEVICE float fast_decay(const DecaySum<float>& l, const DecaySum<float>& s) {
  constexpr float log2_e = 1.44269504f;
  const float exponent = difference(l.sum, l.rest, s.sum, s.rest) * log2_e;
  return exp2(exponent < 0 ? exponent : 0.0f);
}

// Storage of the dot products of 64 by 64 tokens in fragment order, (B chunks G tiles tiles, 4096). pair_of: row.
// number_of: first of the four elements of this lane.
GYR_DEVICE Index pair_of(const ChunkGrid& s, Index chunk, Index group, Index row_tile, Index column_tile) {
  return ((chunk * s.num_groups + group) * s.tiles() + row_tile) * s.tiles() + column_tile;
}
GYR_DEVICE Index number_of(int n) { return ((warp() % warps * (span / 8) + n) * warp_size + lane()) * 4; }

// True if any of the 64 tokens from s0 may be visible to any of the 64 tokens from l0.
GYR_DEVICE bool sync_with(const ChunkGrid& s, const Chunk& k, Index l0, Index s0) { return l0 >= s0 && l0 < k.length && k.begin(s, l0) < s0 + span; }

// True if the tensor-core kernels support the shape and the rows of all tensors are aligned to packs of 16 bytes.
template <class... X>
bool fits_tensor_cores(const ChunkGrid& s, const Global<X>&... tensors) {
  return TensorCoreScratch::fits(s) && (tensors.template packs<pack_bytes / int(sizeof(X))>() && ...);
}

// Defined in ssd_gemms_sm80.cu.
// exp(s_l), exp(s_Q - s_l) and dt_l of every head and token.
void factors_by_tensor_cores(Device&, const char* kernel, const ChunkGrid&, const Tokens<bf16>&, const TensorCoreScratch&);
// C_l . B_s of all tokens l >= s. Rows are l, or s if rows_of_s is true.
void cb_by_tensor_cores(Device&, const char* kernel, const ChunkGrid&, const Tokens<bf16>&, bool rows_of_s, const TensorCoreScratch&);

// Defined in ssd_state_sm80.cu.
// Rounds the entering states to bf16. With `sums`, also rounds the gradients of the leaving states and computes J.
void round_states(Device&, const char* kernel, const ChunkGrid&, const Tokens<bf16>&, const Global<const float>& entering,
                  const States<const float>& gradients, const TensorCoreScratch&, TokenSums<float>*);

// Defined in ssd_output_sm80.cu. Computes dx, and the per-token sums x . dU and x . dy.
void input_gradients_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const TensorCoreScratch&, const Global<bf16>& dx, const TokenSums<float>&);

bool walk_states_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, const Global<const float>& over, const States<float>&,
                                 const TensorCoreScratch&);
bool walk_gradients_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, const Global<const float>& over, const Global<const bf16>& dy,
                                    const Global<const float>& entering, const Global<const float>& dlast, const Global<float>& dinitial,
                                    const SsdInputGradient<bf16>& d_in, const TensorCoreScratch&, TokenSums<float>&);

// bf16 tensor-core versions of the kernels in ssd_*.cu. They return false and do nothing if the shape or an alignment
// is not supported.
bool chunk_states_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, const States<float>&);
bool chunk_states_of_outputs_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, const Global<const bf16>& dy,
                                             const Global<float>& dstates);
bool outputs_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, Tensor1<const float> d, const Global<const float>& entering,
                             const TensorCoreScratch&, bool walked, const Global<bf16>& y);
bool token_gradients_by_tensor_cores(Device&, const ChunkGrid&, const Tokens<bf16>&, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const Global<const float>& entering, const States<const float>& gradients, const TensorCoreScratch&, bool walked,
                                     const SsdInputGradient<bf16>&, TokenSums<float>&);

}  // namespace gyr::cuda::scan
