// SPDX-License-Identifier: BSD-3-Clause
// Outputs and input gradients of the scan in bf16 with tensor cores. Outputs combine the entering state with earlier
// tokens. Input gradients combine the gradient of the leaving state with later tokens. One block computes 128 tokens of
// a head, 16 per warp. The dot products C . B are loaded as mma accumulator fragments, multiplied by the decays, and
// used as the A operand of the next mma.
#include "kernels/cuda/ssm/ssd_sm80.hpp"

namespace gyr::cuda::scan {

namespace {

// out_r = factor_r left_r S' + sum over o of W(r,o) other_o
struct Flow {
  Global<const bf16> left, state, other;  // left: C or B; other: x or dy
  Global<const float> factor, step, cb;
};

// Shared-memory layout of a block. Each stage holds a tile of `left`, and a tile of the state or of other tokens. Three
// tables over all tokens of the chunk follow: both parts of the decay exponents, and dt (outputs) or the first visible
// token (input gradients).
template <int W>
struct SharedStorage {
  static constexpr int left_bytes = Tile(0, span, wide_rows).end();
  static constexpr int right_bytes = std::max(Tile(0, span, W).end(), Tile(0, W).end());
  int tokens;
  GYR_FUNCTION explicit SharedStorage(const ChunkGrid& s) : tokens(int(s.tiles()) * span) {}
  static GYR_FUNCTION constexpr int place(int i) { return i * (left_bytes + right_bytes); }
  static GYR_FUNCTION constexpr Tile left(int i) { return {place(i), span, wide_rows}; }
  static GYR_FUNCTION constexpr Tile state(int i) { return {place(i) + left_bytes, span, W}; }
  static GYR_FUNCTION constexpr Tile other(int i) { return {place(i) + left_bytes, W}; }
  GYR_FUNCTION int table(int i) const { return place(usual_stages) + i * tokens * int(sizeof(float)); }
  GYR_FUNCTION int bytes() const { return table(3); }
};

template <int W, bool of_inputs>
struct TokenSum {
  const ChunkGrid& s;
  const Flow& in;
  const Decays<float>& decays;
  const Chunk& k;
  Index head, r0, row;
  SharedStorage<W> storage;
  DecaySum<float> mine[2];
  int token[2], begin[2];
  static constexpr int never = 1 << 30;  // first visible token of rows beyond the chunk: none is visible

  GYR_DEVICE TokenSum(const ChunkGrid& s, const Flow& in, const Decays<float>& decays, const Chunk& k, Index head, Index r0)
      : s(s), in(in), decays(decays), k(k), head(head), r0(r0), row(k.number * s.num_heads + head), storage(s) {
    for (int h = 0; h < 2; ++h) {
      token[h] = int(r0) + my_row(h), mine[h] = {}, begin[h] = never;  // defaults for rows beyond the chunk, to which no token is visible
      if (inside(h)) mine[h] = {decays.sum.load(row, token[h]), decays.rest.load(row, token[h])}, begin[h] = int(k.begin(s, token[h]));
    }
  }
  GYR_DEVICE void fill_table() const {
    for (int i = thread_index(); i < storage.tokens; i += wide_threads) {
      const bool inside = i < k.length;
      Shared<float>(storage.table(0)).store(i, inside ? decays.sum.load(row, i) : 0.0f);
      Shared<float>(storage.table(1)).store(i, inside ? decays.rest.load(row, i) : 0.0f);
      if constexpr (of_inputs) Shared<int>(storage.table(2)).store(i, inside ? int(k.begin(s, i)) : never);
      else Shared<float>(storage.table(2)).store(i, inside ? in.step.load(row, i) : 0.0f);
    }
  }
  GYR_DEVICE bool inside(int h) const { return token[h] < k.length; }
  GYR_DEVICE bool wanted(int h, int p) const { return inside(h) && p < s.head_dim; }
  GYR_DEVICE Index global_row(int h) const { return k.first + token[h]; }
  GYR_DEVICE Index column(int p) const { return head * s.head_dim + p; }
  GYR_DEVICE void store(const FragmentD (&x)[W / 8], const Global<bf16>& to) const {
    each_four(x, [&](int h, int p, const Pack<bf16, 4>& v) {
      if (wanted(h, p)) to.template store_pack<4>(global_row(h), column(p), v);
    });
  }

  // Range [first_tile, end_tile) of the tiles of other tokens that interact with any row of this block.
  GYR_DEVICE int first_tile() const { return int((of_inputs ? r0 : k.begin(s, r0)) / span); }
  GYR_DEVICE int end_tile() const {
    const Index last = (r0 + wide_rows < k.length ? r0 + wide_rows : k.length) - 1;
    if (!of_inputs) return int(last / span) + 1;
    int tile = int(last / span) + 1;
    while (tile * span < k.length && k.begin(s, tile * span) <= last) ++tile;
    return tile;
  }
  // True if the state contributes to any row of this block.
  GYR_DEVICE bool of_state() const { return of_inputs ? k.begin(s, k.length - 1) < r0 + wide_rows : k.carried(s, r0); }

  // Computes W(r,o) for the warp's 16 rows and the 64 tokens from o0: dot product times decay, times dt for outputs.
  // Masked pairs get 0.
  GYR_DEVICE void weigh(int o0, FragmentD (&weight)[span / 8]) const {
    const Index pair = pair_of(s, k.number, head / s.heads_per_group(), (r0 + warp() * 16) / span, o0 / span);
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      const auto pair_cb = in.cb.template load_pack<4>(pair, number_of(n));
      const int o = o0 + my_column(n);
      const auto of_columns = [&](int i) { return Shared<Pack<float, 2>>(storage.table(i) + o * int(sizeof(float))).load(0); };
      const Pack<float, 2> sum = of_columns(0), rest = of_columns(1);
      Pack<float, 2> step = {};
      Pack<int, 2> their_begin = {};
      if constexpr (of_inputs) their_begin = Shared<Pack<int, 2>>(storage.table(2) + o * int(sizeof(int))).load(0);
      else step = of_columns(2);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, j = i % 2;
        const DecaySum<float> other{sum.at[j], rest.at[j]};
        const bool seen = of_inputs ? token[h] <= o + j && token[h] >= their_begin.at[j] : o + j <= token[h] && o + j >= begin[h];
        const float decay = of_inputs ? fast_decay(other, mine[h]) : fast_decay(mine[h], other) * step.at[j];
        weight[n].at[i] = seen ? pair_cb.at[i] * decay : 0.0f;
      }
    }
  }

  GYR_DEVICE void operator()(FragmentD (&out)[W / 8]) const {
    const int slabs = of_state() ? int(ceil_div(s.state_size, span)) : 0, first = first_tile();
    const Index group = head / s.heads_per_group(), end = k.first + k.length, N = s.state_size;
    pipeline<usual_stages>(
        slabs + end_tile() - first,
        [&](int i, int at) {
          if (i < slabs) {
            fetch<wide_rows, span, wide_threads>(in.left, k.first + r0, end, group * N + i * span, (group + 1) * N, storage.left(at));
            fetch_state<W, wide_threads>(s, in.state, k.number, head, 0, i * span, storage.state(at));
          } else {
            fetch<span, W, wide_threads>(in.other, k.first + (first + i - slabs) * span, end, head * s.head_dim, (head + 1) * s.head_dim,
                                         storage.other(at));
          }
        },
        [&](int i, int at) {
          if (i < slabs) {
            add_by_rows<span>(storage.left(at), storage.state(at), out);
            if (i + 1 < slabs) return;
            float factor[2];
            for (int h = 0; h < 2; ++h) factor[h] = inside(h) ? in.factor.load(row, token[h]) : 0.0f;
            each_element(out, [&](int h, int, float& v) { v *= factor[h]; });
          } else {
            const int o0 = (first + i - slabs) * span, w0 = int(r0) + warp() * 16;
            if (w0 >= k.length || (of_inputs ? o0 + span <= w0 : o0 >= w0 + 16)) return;
            FragmentD weight[span / 8];
            weigh(o0, weight);
            add_by_columns(weight, storage.other(at), out);
          }
        },
        [&] { fill_table(); });
  }
};

struct Place {
  Index r0, head, chunk;
  GYR_DEVICE explicit Place(const ChunkGrid& s) {
    BlockIndex rest;
    r0 = rest.take(ceil_div(s.chunk_size, wide_rows)) * wide_rows, head = rest.take(s.num_heads), chunk = rest.left;
  }
};
template <int W>
Grid grid_of(const ChunkGrid& s) {
  return {s.all_chunks() * s.num_heads * ceil_div(s.chunk_size, wide_rows), wide_threads, SharedStorage<W>(s).bytes()};
}
constexpr int blocks_of(int width) { return width <= span ? 2 : 1; }

template <int W>
GYR_KERNEL_OF(wide_threads, blocks_of(W))
outputs_kernel(ChunkGrid s, Flow in, Decays<float> decays, Global<const float> skip, Global<bf16> y) {
  const Place at(s);
  const Chunk k(s, at.chunk);
  if (at.r0 >= k.length) return;
  const TokenSum<W, false> sum(s, in, decays, k, at.head, at.r0);
  FragmentD out[W / 8] = {};
  sum(out);
  const float d = skip.load(at.head);
  each_pair(out, [&](int h, int p, float& v, float& next) {
    if (!sum.wanted(h, p)) return;
    const auto x = in.other.template load_pack<2>(sum.global_row(h), sum.column(p));
    v += d * float(x.at[0]), next += d * float(x.at[1]);
  });
  sum.store(out, y);
}

// dx = dt dU + D dy, and the per-token sums x . dU and x . dy.
template <int W>
GYR_KERNEL_OF(wide_threads, blocks_of(W))
input_gradients_kernel(ChunkGrid s, Flow in, Decays<float> decays, Global<const bf16> x, Global<const float> skip, Global<bf16> dx, Global<float> ddt,
                       Global<float> dd) {
  const Place at(s);
  const Chunk k(s, at.chunk);
  if (at.r0 >= k.length) return;
  const TokenSum<W, true> sum(s, in, decays, k, at.head, at.r0);
  FragmentD du[W / 8] = {};
  sum(du);
  const float d = skip.load(at.head);
  float step[2] = {}, of_steps[2] = {}, of_skip[2] = {};
  for (int h = 0; h < 2; ++h)
    if (sum.inside(h)) step[h] = in.step.load(sum.row, sum.token[h]);
  each_pair(du, [&](int h, int p, float& v, float& next) {
    if (!sum.wanted(h, p)) return;
    const auto here = x.template load_pack<2>(sum.global_row(h), sum.column(p)),
               dy = in.other.template load_pack<2>(sum.global_row(h), sum.column(p));
    of_steps[h] += float(here.at[0]) * v + float(here.at[1]) * next;
    of_skip[h] += float(here.at[0]) * float(dy.at[0]) + float(here.at[1]) * float(dy.at[1]);
    v = step[h] * v + d * float(dy.at[0]), next = step[h] * next + d * float(dy.at[1]);
  });
  sum.store(du, dx);
  for (int h = 0; h < 2; ++h) {
    const float all_steps = quad_sum(of_steps[h]), all_skip = quad_sum(of_skip[h]);
    if (!sum.inside(h) || lane() % quads > 0) continue;
    ddt.store(sum.row, sum.token[h], all_steps);
    dd.store(sum.row, sum.token[h], all_skip);
  }
}

// Calls f(W) with W = channels per block, 64 or 128.
template <class F>
void with_width(const ChunkGrid& s, const F& f) {
  if (s.head_dim <= span) f(std::integral_constant<int, span>());
  else f(std::integral_constant<int, 2 * span>());
}

}  // namespace

bool outputs_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const float>& entering,
                             const TensorCoreScratch& storage, bool walked, const Global<bf16>& y) {
  if (!fits_tensor_cores(s, in.x, in.b, in.c, entering, y)) return false;
  if (!walked) {
    factors_by_tensor_cores(dev, "ssd", s, in, storage);
    round_states(dev, "ssd", s, in, entering, {}, storage, nullptr);
  }
  cb_by_tensor_cores(dev, "ssd", s, in, false, storage);
  const Flow flow{in.c, storage.entering, in.x, storage.start, storage.step, storage.cb};
  with_width(s, [&](auto w) { launch(dev, "ssd", grid_of<w>(s), outputs_kernel<w>, s, flow, in.decays, d, y); });
  return true;
}

void input_gradients_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const TensorCoreScratch& storage, const Global<bf16>& dx, const TokenSums<float>& sums) {
  const Flow flow{in.b, storage.leaving, dy, storage.end, storage.step, storage.cb};
  with_width(
      s, [&](auto w) { launch(dev, "ssd_backward", grid_of<w>(s), input_gradients_kernel<w>, s, flow, in.decays, in.x, d, dx, sums.ddt, sums.dd); });
}

}  // namespace gyr::cuda::scan
