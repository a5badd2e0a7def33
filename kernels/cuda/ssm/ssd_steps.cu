// SPDX-License-Identifier: BSD-3-Clause
// Time steps dt, decay exponents (cumulative sums of A dt within a chunk, in double), their gradients, and the
// recurrence of a single token.
#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/cuda/ssm/ssd.hpp"
#include "kernels/base/instances.hpp"

namespace gyr {

namespace cuda::scan {

namespace {

template <class A>
GYR_DEVICE A time_step(A v, A low, A high) {
  const A free = softplus(v);
  return free < low ? low : (free > high ? high : free);
}

template <class T>
GYR_KERNEL time_steps_kernel(Acc<T> low, Acc<T> high, Global<const T> raw, Global<const Acc<T>> bias, Global<Acc<T>> dt) {
  each_row(dt.rows(), [&](Index r) {
    each_column<1>(dt.columns(), [&](Index h) { dt.store(r, h, time_step(Acc<T>(raw.load(r, h)) + bias.load(h), low, high)); });
  });
}

// One thread adds up the tokens of one head of a chunk in order. Sums in any other order would not decrease
// monotonically, and exp(s_l - s_s) would not be exactly 1 between tokens with dt = 0 after large steps.
template <class A>
GYR_KERNEL decays_kernel(ChunkGrid s, Global<const A> dt, Global<const A> a_log, Global<A> sum, Global<A> rest, Global<A> over) {
  const Index task = block_index() * block_threads() + thread_index(), h = task % s.num_heads;
  if (task >= sum.rows()) return;
  const Chunk k(s, task / s.num_heads);
  const double rate = -std::exp(double(a_log.load(h)));
  constexpr int flight = 8;  // number of loads in flight
  double total = 0;
  for (Index l0 = 0; l0 < k.length; l0 += flight) {
    A step[flight] = {};
    bool begins[flight] = {};
    GYR_UNROLL
    for (int i = 0; i < flight; ++i)
      if (const Index l = l0 + i; l < k.length) step[i] = dt.load(k.first + l, h), begins[i] = k.reach(s, l) == 0;
    GYR_UNROLL
    for (int i = 0; i < flight; ++i) {
      if (const Index l = l0 + i; l < k.length) {
        total = std::fma(rate, double(step[i]), begins[i] ? 0 : total);
        sum.store(task, l, A(total));
        rest.store(task, l, A((total - double(A(total))) / rest_unit));
      }
    }
  }
  if (over) over.store(k.number, h, k.carried(s, k.length - 1) ? fast_exp(A(total)) : A(0));
}

// sum_up_to: sum of v over this lane and all lower lanes. sum_to: sum from this lane to lane `last`; all lanes in
// between must have the same `last`.
GYR_DEVICE double sum_up_to(double v) {
  for (int with = 1; with < warp_size; with *= 2) {
    const double other = shuffle(v, lane() + warp_size - with);
    if (lane() >= with) v += other;
  }
  return v;
}
GYR_DEVICE double sum_to(int last, double v) {
  for (int with = 1; with < warp_size; with *= 2) {
    const double other = shuffle(v, lane() + with);
    if (lane() + with <= last) v += other;
  }
  return v;
}

// Calls f(task, chunk, head) for each head of a chunk that this warp processes. Its lanes hold 32 tokens at a time.
template <class F>
GYR_DEVICE void each_head(const ChunkGrid& s, const F& f) {
  each_row(s.all_chunks() * s.num_heads, [&](Index task) { f(task, Chunk(s, task / s.num_heads), task % s.num_heads); });
}
Grid grid_of_heads(const ChunkGrid& s) { return {std::min(ceil_div(s.all_chunks() * s.num_heads, usual_warps), most_blocks), usual_threads}; }
// Mask of the lanes whose token is the first one of a document.
GYR_DEVICE std::uint32_t beginnings(const ChunkGrid& s, const Chunk& k, Index l) { return ballot(l < k.length && k.reach(s, l) == 0); }

// Writes to rows(l) the gradient da_l of A dt_l, without its last term, the sum of F:
//   da_k = sum_{l>=k,s<k} E(l,s) + sum_{l>=k} I_l + J + sum_{s<k} F_s
// The first sum equals the row sums minus the column sums of E, from k to the end of the document of k.
template <class A>
GYR_DEVICE void add_later(const ChunkGrid& s, const Chunk& k, const TokenSums<A>& g, Index task) {
  const Index stretches = ceil_div(s.chunk_size, g.stretch);
  double later = 0, within = 0;  // sums over later tokens: I and J, and E within the document
  for (Index i = 0; i < g.throughs; ++i) later += double(g.through.load(k.number, task % s.num_heads * g.throughs + i));
  for (Index l0 = (k.length - 1) / warp_size * warp_size; l0 >= 0; l0 -= warp_size) {
    const Index l = l0 + lane();
    double difference = 0, inflow = 0;
    if (l < k.length) {
      const Index first = task * stretches, mine = l / g.stretch, last = (k.length - 1) / g.stretch;
      for (Index i = 0; i <= mine; ++i) difference += g.rows.load(first + i, l);
      for (Index i = mine; i <= last; ++i) difference -= g.columns.load(first + i, l);
      for (Index part = 0; part < g.parts; ++part) inflow += double(g.inflow.load(task * g.parts + part, l));
    }
    const std::uint32_t all = beginnings(s, k, l), next_begins = all & ~((2u << lane()) - 1);
    double mine = sum_to(next_begins ? lowest_bit(next_begins) - 1 : warp_size - 1, difference);
    if (!next_begins) mine += within;
    const double from_here = sum_to(warp_size - 1, inflow) + later;
    within = shuffle(all & 1u ? 0.0 : mine, 0), later = shuffle(from_here, 0);
    const bool begins = l == 0 || all >> lane() & 1u;  // exactly zero: no pair of tokens crosses the start of a document or chunk
    if (l < k.length) g.rows.store(task * stretches, l, (begins ? 0.0 : mine) + from_here);
  }
}

// ddt_l = x_l . dU_l + A da_l is propagated through clamp and softplus to dt_raw and dt_bias. da_log = A sum_l da_l
// dt_l. The weight gradients of each chunk are written to `partial`.
template <class T>
GYR_KERNEL steps_backward_kernel(ChunkGrid s, Acc<T> low, Acc<T> high, Global<const T> raw, Global<const Acc<T>> bias, Global<const Acc<T>> a_log,
                                 Global<const Acc<T>> dt, TokenSums<Acc<T>> g, Global<T> d_raw, Global<Acc<T>> partial) {
  using A = Acc<T>;
  each_head(s, [&](Index task, const Chunk& k, Index h) {
    const double rate = -std::exp(double(a_log.load(h)));
    add_later(s, k, g, task);
    // before: sum of F over earlier tokens. All are double, since they are long sums of both signs.
    double before = 0, d_rate = 0, d_bias = 0, d_skip = 0;
    for (Index l0 = 0; l0 < k.length; l0 += warp_size) {
      const Index l = l0 + lane(), row = k.first + l;
      double outflow = 0;
      for (Index part = 0; l < k.length && part < g.parts; ++part) outflow += double(g.outflow.load(task * g.parts + part, l));
      const double up_to = sum_up_to(outflow), previous = shuffle(up_to, lane() + warp_size - 1), earlier = before + (lane() > 0 ? previous : 0);
      before += shuffle(up_to, warp_size - 1);
      if (l >= k.length) continue;
      const double da = g.rows.load(task * ceil_div(s.chunk_size, g.stretch), l) + earlier;
      const A v = A(raw.load(row, h)) + bias.load(h), free = softplus(v);
      const bool clamped = free < low || free > high;
      const A dv = clamped ? A(0) : A(double(g.ddt.load(task, l)) + rate * da) * softplus_slope(v);
      d_raw.store(row, h, T(dv));
      d_rate += da * double(dt.load(row, h));
      d_bias += double(dv);
      d_skip += double(g.dd.load(task, l));
    }
    d_rate = warp_sum(d_rate), d_bias = warp_sum(d_bias), d_skip = warp_sum(d_skip);
    if (lane() > 0) return;
    partial.store(k.number, h, A(d_bias));
    partial.store(k.number, s.num_heads + h, A(d_rate * rate));
    partial.store(k.number, 2 * s.num_heads + h, A(d_skip));
  });
}

// One warp adds the contributions of all chunks to the gradient of one weight of a head. The gradient may be empty.
template <class A>
GYR_KERNEL weights_backward_kernel(Global<const A> partial, Global<A> bias, Global<A> a_log, Global<A> skip) {
  const Index heads = partial.columns() / 3, which = block_index() / heads, h = block_index() % heads;
  const Global<A> out = which == 0 ? bias : which == 1 ? a_log : skip;
  if (!out) return;
  double sum = 0;
  for (Index chunk = lane(); chunk < partial.rows(); chunk += warp_size) sum += double(partial.load(chunk, block_index()));
  sum = warp_sum(sum);
  if (lane() == 0) out.store(h, A(double(out.load(h)) + sum));
}

}  // namespace

template <class T>
void time_steps(Device& dev, const SsdShape& s, Matrix<const T> dt_raw, Tensor1<const Acc<T>> dt_bias, Tensor2<Acc<T>> dt) {
  const Global<Acc<T>> out(dt);
  launch(dev, "ssd", grid_of_rows(out), time_steps_kernel<T>, Acc<T>(s.dt_low), Acc<T>(s.dt_high), dt_raw, dt_bias, out);
}

template <class A>
void fill_decays(Device& dev, const char* kernel, const ChunkGrid& s, Tensor2<const A> dt, Tensor1<const A> a_log, const DecayScratch<A>& scratch,
                 Global<A> over) {
  launch(dev, kernel, {ceil_div(Index(scratch.sum.extent(0)), threads), threads}, decays_kernel<A>, s, dt, a_log, scratch.sum, scratch.rest, over);
}

template <class T>
void steps_backward(Device& dev, const SsdShape& shape, const ChunkGrid& s, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<const Acc<T>> dt,
                    const TokenSums<Acc<T>>& sums, Tensor2<Acc<T>> partial, Matrix<T> d_raw, const SsdWeightGradient<Acc<T>>& dw) {
  using A = Acc<T>;
  launch(dev, "ssd_backward", grid_of_heads(s), steps_backward_kernel<T>, s, A(shape.dt_low), A(shape.dt_high), in.dt_raw, w.dt_bias, w.a_log, dt,
         sums, d_raw, partial);
  launch(dev, "ssd_backward", {3 * s.num_heads, warp_size}, weights_backward_kernel<A>, Tensor2<const A>(partial), Global<A>(dw.dt_bias),
         Global<A>(dw.a_log), Global<A>(dw.d));
}

#define GYR_STEPS(T)                                                                                                                          \
  template void time_steps<T>(Device&, const SsdShape&, Matrix<const T>, Tensor1<const Acc<T>>, Tensor2<Acc<T>>);                             \
  template void steps_backward<T>(Device&, const SsdShape&, const ChunkGrid&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>>, \
                                  const TokenSums<Acc<T>>&, Tensor2<Acc<T>>, Matrix<T>, const SsdWeightGradient<Acc<T>>&);
GYR_SCALARS(GYR_STEPS)
#undef GYR_STEPS
template void fill_decays<double>(Device&, const char*, const ChunkGrid&, Tensor2<const double>, Tensor1<const double>, const DecayScratch<double>&,
                                  Global<double>);
template void fill_decays<float>(Device&, const char*, const ChunkGrid&, Tensor2<const float>, Tensor1<const float>, const DecayScratch<float>&,
                                 Global<float>);

namespace {

// One warp updates one channel of a head, which is one row of its state.
template <class T>
GYR_KERNEL step_kernel(ChunkGrid s, Acc<T> low, Acc<T> high, Global<const T> x, Global<const T> b, Global<const T> c, Global<const T> raw,
                       Global<const Acc<T>> bias, Global<const Acc<T>> a_log, Global<const Acc<T>> d, Global<Acc<T>> state, Global<T> y) {
  using A = Acc<T>;
  const Index P = s.head_dim, N = s.state_size;
  each_row(s.batch * s.num_heads * P, [&](Index task) {
    const Index r = task / (s.num_heads * P), channel = task % (s.num_heads * P), h = channel / P, first = h / s.heads_per_group() * N;
    const A dt = time_step(A(raw.load(r, h)) + bias.load(h), low, high), decay = std::exp(-std::exp(a_log.load(h)) * dt);
    const A value = A(x.load(r, channel)), u = dt * value;
    A sum = 0;
    for (Index n = lane(); n < N; n += warp_size) {
      const A v = decay * state.load(r, channel * N + n) + u * A(b.load(r, first + n));
      state.store(r, channel * N + n, v);
      sum += v * A(c.load(r, first + n));
    }
    sum = warp_sum(sum);
    if (lane() == 0) y.store(r, channel, T(d.load(h) * value + sum));
  });
}

}  // namespace

}  // namespace cuda::scan

namespace backend {

template <class T>
void ssd_step(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<Acc<T>> state, Tensor2<T> y) {
  using A = Acc<T>;
  const cuda::scan::ChunkGrid s(shape);
  const auto run = dev.launch("ssd", 5 * s.states() + 4 * s.tokens() * double(s.num_heads), 2.0 * sizeof(A) * s.states());
  if (!run) return;
  const Index channels = s.batch * s.num_heads * s.head_dim;
  cuda::launch(dev, "ssd", {std::min(cuda::ceil_div(channels, cuda::usual_warps), cuda::most_blocks), cuda::usual_threads},
               cuda::scan::step_kernel<T>, s, A(shape.dt_low), A(shape.dt_high), in.x, in.b, in.c, in.dt_raw, w.dt_bias, w.a_log, w.d, state, y);
}

GYR_SCALARS(GYR_SSD_STEP)

}  // namespace backend

}  // namespace gyr
