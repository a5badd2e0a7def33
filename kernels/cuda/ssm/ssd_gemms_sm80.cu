// SPDX-License-Identifier: BSD-3-Clause
// Decay factors of tokens, which all channels of a head use, and dot products C . B, which all heads of a group use.
// Each block computes the dot products of 64 by 64 tokens.
#include "kernels/cuda/ssm/ssd_sm80.hpp"

namespace gyr::cuda::scan {

namespace {

GYR_KERNEL factors_kernel(ChunkGrid s, Tokens<bf16> in, Global<float> start, Global<float> end, Global<float> step) {
  BlockIndex rest;
  const Index head = rest.take(s.num_heads);
  const Chunk k(s, rest.left);
  const HeadDecay<float> decay(s, k, in.decays, head);
  for (Index l = thread_index(); l < k.length; l += block_threads()) {
    start.store(decay.row, l, decay.from_start(l));
    end.store(decay.row, l, decay.to_end(l));
    step.store(decay.row, l, in.dt.load(k.first + l, head));
  }
}

GYR_KERNEL cb_kernel(ChunkGrid s, Global<const bf16> rows, Global<const bf16> columns, bool rows_of_s, Global<float> cb) {
  BlockIndex rest;
  const Index column_tile = rest.take(s.tiles()), row_tile = rest.take(s.tiles()), group = rest.take(s.num_groups), N = s.state_size;
  const Chunk k(s, rest.left);
  const Index r0 = row_tile * span, c0 = column_tile * span, end = k.first + k.length;
  if (!(rows_of_s ? sync_with(s, k, c0, r0) : sync_with(s, k, r0, c0))) return;
  const auto place = [](int i) { return Tile(i * Tile(0, span).end(), span); };
  FragmentD sum[span / 8] = {};
  pipeline<usual_stages>(
      int(ceil_div(N, span)),
      [&](int i, int at) {
        fetch<span, span, tensor_threads>(rows, k.first + r0, end, group * N + i * span, (group + 1) * N, place(2 * at));
        fetch<span, span, tensor_threads>(columns, k.first + c0, end, group * N + i * span, (group + 1) * N, place(2 * at + 1));
      },
      [&](int, int at) { add_by_rows<span>(place(2 * at), place(2 * at + 1), sum); });
  const Index row = pair_of(s, k.number, group, row_tile, column_tile);
  GYR_UNROLL
  for (int n = 0; n < span / 8; ++n) cb.template store_pack<4>(row, number_of(n), {{sum[n].at[0], sum[n].at[1], sum[n].at[2], sum[n].at[3]}});
}

}  // namespace

void factors_by_tensor_cores(Device& dev, const char* kernel, const ChunkGrid& s, const Tokens<bf16>& in, const TensorCoreScratch& scratch) {
  launch(dev, kernel, {s.all_chunks() * s.num_heads, tensor_threads}, factors_kernel, s, in, scratch.start, scratch.end, scratch.step);
}

void cb_by_tensor_cores(Device& dev, const char* kernel, const ChunkGrid& s, const Tokens<bf16>& in, bool rows_of_s,
                        const TensorCoreScratch& scratch) {
  launch(dev, kernel, {s.all_chunks() * s.num_groups * s.tiles() * s.tiles(), tensor_threads, 2 * usual_stages * Tile(0, span).end()},
         cb_kernel, s, rows_of_s ? in.b : in.c, rows_of_s ? in.c : in.b, rows_of_s, scratch.cb);
}

}  // namespace gyr::cuda::scan
