// SPDX-License-Identifier: BSD-3-Clause
// Chunk states in bf16 with tensor cores. Each block computes 64 channels by 128 state dimensions of a head, in steps
// of 64 tokens. cp.async loads the tiles into two alternating shared-memory buffers. The factors of the tokens are
// multiplied into the fragments of x.
#include "kernels/cuda/ssm/ssd_sm80.hpp"

namespace gyr::cuda::scan {

namespace {

constexpr int channels = TensorCoreScratch::channels, state_dims = TensorCoreScratch::state_dims;

// Multiplies the two bf16 values in `two` by factor(first) and factor(first + 1).
GYR_DEVICE std::uint32_t scaled(std::uint32_t two, const Shared<float>& factor, int first) {
  const float low = __builtin_bit_cast(float, two << 16), high = __builtin_bit_cast(float, two & 0xffff0000u);
  return pair(low * factor.load(first), high * factor.load(first + 1));
}

// sum (16, 128) += (factor x)' b over 64 tokens. x: (64, 64), of which this warp uses 16 columns. b: (64, 128).
GYR_DEVICE void add_tokens(const Tile& x, const Tile& b, const Shared<float>& factor, FragmentD (&sum)[state_dims / 8]) {
  for (int l = 0; l < span; l += 16) {
    FragmentA a = load_matrix_x4_transposed(x.at(l + lane() / 16 * 8 + lane() % 8, warp() * 16 + lane() / 8 % 2 * 8));
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) a.at[i] = scaled(a.at[i], factor, l + i / 2 * 8 + lane() % quads * 2);
    GYR_UNROLL
    for (int n = 0; n < state_dims / 8; n += 2) multiply_columns(sum[n], sum[n + 1], a, b, l, n * 8);
  }
}

// Computes a tile of sum_l factor(l) x_l b_l' over the tokens [begin, end) of chunk k. Calls store(index in the state
// of all heads, two adjacent values).
template <class Factor, class Store>
GYR_DEVICE void tile_of_state(const ChunkGrid& s, const Chunk& k, Index head, Index p0, Index n0, const Global<const bf16>& x, const Global<const bf16>& b,
                              Index begin, Index end, const Factor& factor, const Store& store) {
  const Tile first_x(0, channels), first_b(first_x.end(), state_dims);
  const int stage_bytes = first_b.end() + span * int(sizeof(float));
  const auto tiles = [&](int stage) {
    struct Tiles {
      Tile x, b;
      Shared<float> factor;
    };
    return Tiles{Tile(stage * stage_bytes, channels), Tile(stage * stage_bytes + first_x.end(), state_dims),
                 Shared<float>(stage * stage_bytes + first_b.end())};
  };
  const auto begin_tile = [&](Index l0, int stage) {
    const auto to = tiles(stage);
    const Index stop = k.first + k.length, group = head / s.heads_per_group();
    fetch<span, channels, tensor_threads>(x, k.first + l0, stop, head * s.head_dim + p0, (head + 1) * s.head_dim, to.x);
    fetch<span, state_dims, tensor_threads>(b, k.first + l0, stop, group * s.state_size + n0, (group + 1) * s.state_size, to.b);
    if (const Index l = l0 + thread_index(); thread_index() < span) to.factor.store(thread_index(), l < end ? factor(l) : 0.0f);
  };
  FragmentD sum[state_dims / 8] = {};
  begin_tile(begin, 0);
  commit_copies();
  int stage = 0;
  for (Index l0 = begin; l0 < end; l0 += span, stage = 1 - stage) {
    if (l0 + span < end) begin_tile(l0 + span, 1 - stage);
    commit_copies();
    wait_copies<1>();
    sync_block();
    const auto now = tiles(stage);
    add_tokens(now.x, now.b, now.factor, sum);
    sync_block();
  }
  wait_copies<0>();
  each_pair(sum, [&](int h, int n, float v, float next) {
    const Index p = p0 + my_row(h);
    if (p < s.head_dim && n0 + n < s.state_size) store(head * s.head_elements() + p * s.state_size + n0 + n, Pack<float, 2>{{v, next}});
  });
}

constexpr int shared_bytes_of_states = 2 * (span * (stride_of(channels) + stride_of(state_dims)) * int(sizeof(bf16)) + span * int(sizeof(float)));

struct Place {
  Index n0, p0, head, chunk;
  GYR_DEVICE explicit Place(const ChunkGrid& s) {
    BlockIndex rest;
    n0 = rest.take(ceil_div(s.state_size, state_dims)) * state_dims, p0 = rest.take(ceil_div(s.head_dim, channels)) * channels;
    head = rest.take(s.num_heads), chunk = rest.left;
  }
};
Grid grid_of(const ChunkGrid& s) {
  return {s.all_chunks() * s.num_heads * ceil_div(s.head_dim, channels) * ceil_div(s.state_size, state_dims), tensor_threads, shared_bytes_of_states};
}

GYR_KERNEL chunk_states_kernel(ChunkGrid s, Tokens<bf16> in, States<float> states) {
  const Place at(s);
  const Chunk k(s, at.chunk);
  if (!states.stores_leaving_state(s, k.number)) return;
  const HeadDecay<float> decay(s, k, in.decays, at.head);
  tile_of_state(
      s, k, at.head, at.p0, at.n0, in.x, in.b, decay.last_begin / span * span, k.length,
      [&](Index l) { return decay.to_end(l) * in.dt.load(k.first + l, at.head); },
      [&](Index i, const Pack<float, 2>& v) {
        states.with_leaving_state(s, k.number, [&](const Global<float>& x, Index row) { x.template store_pack<2>(row, i, v); });
      });
}

GYR_KERNEL chunk_states_of_outputs_kernel(ChunkGrid s, Tokens<bf16> in, Global<const bf16> dy, Global<float> dstates) {
  const Place at(s);
  const Chunk k(s, at.chunk);
  const HeadDecay<float> decay(s, k, in.decays, at.head);
  tile_of_state(
      s, k, at.head, at.p0, at.n0, dy, in.c, 0, k.length, [&](Index l) { return decay.from_start(l); },
      [&](Index i, const Pack<float, 2>& v) { dstates.template store_pack<2>(k.number, i, v); });
}

// ---- Sequential walk: one block carries its part of a state from chunk to chunk ----

// Per chunk: state <- over state + sum over the tokens of factor left right'.
struct Walk {
  Global<const bf16> left, right;
  Global<const float> factor, step, over;  // factors of each token: `factor`, times `step` unless it is empty; over: decay across each chunk
};

// Shared-memory layout of a block: two stages, each with a tile of left, a tile of right, and the factors of the
// tokens.
struct WalkSharedMemory {
  static constexpr int places = 2;
  static constexpr int left_bytes = Tile(0, channels).end(), right_bytes = Tile(0, state_dims).end();
  static constexpr int place_bytes = left_bytes + right_bytes + span * int(sizeof(float)), bytes = places * place_bytes;
  static GYR_FUNCTION constexpr Tile left(int i) { return {i * place_bytes, channels}; }
  static GYR_FUNCTION constexpr Tile right(int i) { return {i * place_bytes + left_bytes, state_dims}; }
  static GYR_DEVICE Shared<float> factor(int i) { return Shared<float>(i * place_bytes + left_bytes + right_bytes); }
};

struct WalkPlace {
  int part, parts, n0, p0, head, sequence;  // part: index of this block's part of a head's state
  int first, row_stride, channels_left,
      state_left;  // offset and row stride in elements of this part of the state, and its rows and columns that exist
  GYR_DEVICE explicit WalkPlace(const ChunkGrid& s) {
    const int columns = int(ceil_div(s.state_size, state_dims)), heads = int(s.num_heads);
    int rest = int(block_index());
    parts = columns * int(ceil_div(s.head_dim, channels)), part = rest % parts, rest /= parts;
    n0 = part % columns * state_dims, p0 = part / columns * channels, head = rest % heads, sequence = rest / heads;
    row_stride = int(s.state_size), channels_left = int(s.head_dim) - p0, state_left = row_stride - n0;
    first = (head * int(s.head_dim) + p0) * row_stride + n0;
  }
  // Calls f(index in the state) for row h and column n of this lane, if they are inside the state.
  template <class F>
  GYR_DEVICE void element(int h, int n, const F& f) const {
    if (my_row(h) < channels_left && n < state_left) f(Index(first + my_row(h) * row_stride + n));
  }
};

// Walks through `count` chunks of a sequence, forward from the first or backward from the last. Calls at(chunk) before
// each chunk.
template <bool back, class At>
GYR_DEVICE void walk(const ChunkGrid& s, const Walk& in, const WalkPlace& place, int count, FragmentD (&state)[state_dims / 8], const At& at) {
  const int tiles = int(s.tiles()), steps = count * tiles;
  const Index group = place.head / s.heads_per_group(), P = s.head_dim, N = s.state_size;
  const auto chunk_of = [&](int i) { return Chunk(s, place.sequence * s.chunks + (back ? s.chunks - 1 - i / tiles : i / tiles)); };
  const auto factor = [&](int i) {
    const Chunk k = chunk_of(i);
    const Index l = i % tiles * span + thread_index(), row = k.number * s.num_heads + place.head;
    if (thread_index() >= span || l >= k.length) return 0.0f;
    return in.step ? in.factor.load(row, l) * in.step.load(row, l) : in.factor.load(row, l);
  };
  const auto put = [&](float v, int stage) {
    if (thread_index() < span) WalkSharedMemory::factor(stage).store(thread_index(), v);
  };
  if (steps > 0) put(factor(0), 0);
  pipeline<WalkSharedMemory::places>(
      steps,
      [&](int i, int stage) {
        const Chunk k = chunk_of(i);
        const Index first = k.first + i % tiles * span, end = k.first + k.length;
        fetch<span, channels, tensor_threads>(in.left, first, end, place.head * P + place.p0, place.head * P + P, WalkSharedMemory::left(stage));
        fetch<span, state_dims, tensor_threads>(in.right, first, end, group * N + place.n0, (group + 1) * N, WalkSharedMemory::right(stage));
      },
      [&](int i, int stage) {
        const float next = i + 1 < steps ? factor(i + 1) : 0.0f;
        const Chunk k = chunk_of(i);
        if (i % tiles == 0) {
          at(k);
          const float over = in.over.load(k.number, place.head);
          each_element(state, [&](int, int, float& v) { v *= over; });
        }
        if (i % tiles * span < k.length)
          add_tokens(WalkSharedMemory::left(stage), WalkSharedMemory::right(stage), WalkSharedMemory::factor(stage), state);
        put(next, 1 - stage);
      });
}

// Loads this block's part of the state in row `row`. If `from` is empty, the state stays zero.
template <class T>
GYR_DEVICE void load_state(const WalkPlace& place, const Global<T>& from, Index row, FragmentD (&state)[state_dims / 8]) {
  if (!from) return;
  each_pair(state, [&](int h, int n, float& v, float& next) {
    place.element(h, n, [&](Index i) {
      const auto two = from.template load_pack<2>(row, i);
      v = two.at[0], next = two.at[1];
    });
  });
}
GYR_DEVICE void store_state(const WalkPlace& place, FragmentD (&state)[state_dims / 8], const Global<float>& to, Index row) {
  each_pair(state, [&](int h, int n, float v, float next) { place.element(h, n, [&](Index i) { to.template store_pack<2>(row, i, {{v, next}}); }); });
}
GYR_DEVICE void store_rounded(const WalkPlace& place, const FragmentD (&state)[state_dims / 8], const Global<bf16>& to, Index row) {
  each_four(state, [&](int h, int n, const Pack<bf16, 4>& v) { place.element(h, n, [&](Index i) { to.template store_pack<4>(row, i, v); }); });
}

// Forward walk. The initial state is already stored in states.between.
GYR_KERNEL_OF(tensor_threads, 3)
walk_states_kernel(ChunkGrid s, Walk in, States<float> states, Global<bf16> rounded) {
  const WalkPlace place(s);
  const Index first = place.sequence * s.chunks, final = first + s.chunks - 1;
  FragmentD state[state_dims / 8] = {};
  load_state(place, states.between, first, state);
  const auto keep = [&](Index chunk) {
    if (chunk > first) store_state(place, state, states.between, chunk);
    store_rounded(place, state, rounded, chunk);
  };
  walk<false>(s, in, place, int(states.last ? s.chunks : s.chunks - 1), state, [&](const Chunk& k) { keep(k.number); });
  if (states.last) store_state(place, state, states.last, place.sequence);
  else keep(final);
}

// Backward walk. It also computes J = exp(s_Q) S . dS, as one partial sum per warp.
GYR_KERNEL_OF(tensor_threads, 3)
walk_gradients_kernel(ChunkGrid s, Walk in, Global<const float> entering, Global<const float> dlast, Global<float> dinitial, Global<bf16> rounded_entering,
                      Global<bf16> rounded_leaving, Global<float> through) {
  const WalkPlace place(s);
  FragmentD state[state_dims / 8] = {};
  load_state(place, dlast, place.sequence, state);
  walk<true>(s, in, place, int(s.chunks), state, [&](const Chunk& k) {
    store_rounded(place, state, rounded_leaving, k.number);
    float sum = 0;
    constexpr int some = 2;  // number of fragments (eight columns each) that are loaded per step
    GYR_UNROLL
    for (int n0 = 0; n0 < state_dims / 8; n0 += some) {
      FragmentD of_n[some] = {};
      each_pair(of_n, [&](int h, int n, float& v, float& next) {
        place.element(h, n0 * 8 + n, [&](Index i) {
          const auto two = entering.template load_pack<2>(k.number, i);
          v = two.at[0], next = two.at[1];
        });
      });
      GYR_UNROLL
      for (int n = 0; n < some; ++n) {
        GYR_UNROLL
        for (int i = 0; i < 4; ++i) sum += of_n[n].at[i] * state[n0 + n].at[i];
      }
      each_four(of_n, [&](int h, int n, const Pack<bf16, 4>& v) {
        place.element(h, n0 * 8 + n, [&](Index i) { rounded_entering.template store_pack<4>(k.number, i, v); });
      });
    }
    sum = warp_sum(sum);
    if (lane() == 0) through.store(k.number, (place.head * place.parts + place.part) * warps + warp(), in.over.load(k.number, place.head) * sum);
  });
  if (dinitial) store_state(place, state, dinitial, place.sequence);
}

Grid grid_of_walks(const ChunkGrid& s) { return {s.batch * s.num_heads * TensorCoreScratch::state_blocks(s), tensor_threads, WalkSharedMemory::bytes}; }

// ---- Rounding ----

// Rounds the states of one head of a chunk to bf16. If `through` is not empty, also rounds the gradients and computes
// J.
GYR_KERNEL round_states_kernel(ChunkGrid s, Decays<float> decays, Global<const float> entering, States<const float> gradients,
                               Global<bf16> rounded_entering, Global<bf16> rounded_leaving, Global<float> through) {
  constexpr int packs = 4, flight = 4;  // flight: number of loads in flight per tensor
  BlockIndex rest;
  const Index head = rest.take(s.num_heads), first = head * s.head_elements(), end = first + s.head_elements();
  const Chunk k(s, rest.left);
  const auto round = [](const Global<bf16>& to, Index chunk, Index i, const Pack<float, packs>& v) {
    Pack<bf16, packs> r;
    for (int e = 0; e < packs; ++e) r.at[e] = bf16(v.at[e]);
    to.template store_pack<packs>(chunk, i, r);
  };
  const bool leaves = gradients.between && gradients.stores_leaving_state(s, k.number);
  float sum = 0;
  for (Index begin = first + thread_index() * packs; begin < end; begin += Index(flight) * packs * block_threads()) {
    Pack<float, packs> in[flight] = {}, out[flight] = {};
    GYR_UNROLL
    for (int j = 0; j < flight; ++j) {
      const Index i = begin + Index(j) * packs * block_threads();
      if (i >= end) continue;
      in[j] = entering.template load_pack<packs>(k.number, i);
      if (leaves) out[j] = gradients.with_leaving_state(s, k.number, [&](const auto& x, Index row) { return x.template load_pack<packs>(row, i); });
    }
    GYR_UNROLL
    for (int j = 0; j < flight; ++j) {
      const Index i = begin + Index(j) * packs * block_threads();
      if (i >= end) continue;
      round(rounded_entering, k.number, i, in[j]);
      if (!through) continue;
      round(rounded_leaving, k.number, i, out[j]);
      for (int e = 0; e < packs; ++e) sum += in[j].at[e] * out[j].at[e];
    }
  }
  if (!through) return;
  sum = block_sum(sum, Shared<float>());
  if (thread_index() == 0) through.store(k.number, head, HeadDecay<float>(s, k, decays, head).over() * sum);
}

}  // namespace

void round_states(Device& dev, const char* kernel, const ChunkGrid& s, const Tokens<bf16>& in, const Global<const float>& entering,
                  const States<const float>& gradients, const TensorCoreScratch& scratch, TokenSums<float>* sums) {
  if (sums) sums->throughs = 1;
  launch(dev, kernel, {s.all_chunks() * s.num_heads, usual_threads, usual_warps * int(sizeof(float))}, round_states_kernel, s, in.decays, entering,
         gradients, scratch.entering, scratch.leaving, sums ? sums->through : Global<float>());
}

bool walk_states_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, const Global<const float>& over, const States<float>& states,
                                 const TensorCoreScratch& scratch) {
  if (!TensorCoreScratch::walks(s) || !fits_tensor_cores(s, in.x, in.b, in.c, states.between, states.last)) return false;
  factors_by_tensor_cores(dev, "ssd", s, in, scratch);
  launch(dev, "ssd", grid_of_walks(s), walk_states_kernel, s, Walk{in.x, in.b, scratch.end, scratch.step, over}, states, scratch.entering);
  return true;
}

bool walk_gradients_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, const Global<const float>& over, const Global<const bf16>& dy,
                                    const Global<const float>& entering, const Global<const float>& dlast, const Global<float>& dinitial,
                                    const SsdInputGradient<bf16>& d_in, const TensorCoreScratch& scratch, TokenSums<float>& sums) {
  const Global<bf16> dx(d_in.x), db(d_in.b), dc(d_in.c);
  if (!TensorCoreScratch::walks(s) || !fits_tensor_cores(s, in.x, in.b, in.c, dy, entering, dlast, dinitial, dx, db, dc)) return false;
  factors_by_tensor_cores(dev, "ssd_backward", s, in, scratch);
  launch(dev, "ssd_backward", grid_of_walks(s), walk_gradients_kernel, s, Walk{dy, in.c, scratch.start, {}, over}, entering, dlast, dinitial,
         scratch.entering, scratch.leaving, sums.through);
  return true;
}

bool chunk_states_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, const States<float>& states) {
  if (!fits_tensor_cores(s, in.x, in.b, states.between, states.last)) return false;
  launch(dev, "ssd", grid_of(s), chunk_states_kernel, s, in, states);
  return true;
}

bool chunk_states_of_outputs_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, const Global<const bf16>& dy,
                                             const Global<float>& dstates) {
  if (!fits_tensor_cores(s, dy, in.c, dstates)) return false;
  launch(dev, "ssd_backward", grid_of(s), chunk_states_of_outputs_kernel, s, in, dy, dstates);
  return true;
}

}  // namespace gyr::cuda::scan
