// SPDX-License-Identifier: BSD-3-Clause
// Time steps, and inputs scaled by them:  dt = clamp(softplus(dt_raw + dt_bias), low, high),   u = dt x
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::scan {

template <class T>
void time_steps(Device& dev, const SsdShape& shape, Matrix<const T> dt_raw, Tensor1<const Acc<T>> dt_bias, Tensor2<Acc<T>> dt) {
  using A = Acc<T>;
  const Index heads = shape.num_heads;
  const A low = A(shape.dt_low), high = A(shape.dt_high);
  const auto run = dev.launch("ssd", 4.0 * dt_raw.rows * heads, 0);
  if (!run) return;
  for_rows(
      dev, "ssd_dt", dt_raw.rows, KOKKOS_LAMBDA(const Index r) {
        for (Index h = 0; h < heads; ++h) {
          const A v = softplus(A(dt_raw(r, h)) + dt_bias(h));
          dt(r, h) = v < low ? low : (v > high ? high : v);
        }
      });
}

template <class T, class P>
void step_inputs(Device& dev, const Group<T, P>& k, Matrix<P> u) {
  using A = Acc<T>;
  const auto run = dev.launch("ssd", 1.0 * k.tokens * k.channels(), double(sizeof(T) + sizeof(P)) * k.tokens * k.channels());
  if (!run) return;
  for_rows(
      dev, "ssd_step_inputs", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < k.heads; ++r) {
          const A dt = k.dt(k.chunk.first + l, k.first_head + r);
          const T* const from = k.x.row(l) + r * k.head_dim;
          P* const to = u.row(l) + r * k.head_dim;
#pragma GCC ivdep
          for (Index p = 0; p < k.head_dim; ++p) to[p] = P(dt * A(from[p]));
        }
      });
}

namespace {

// dx = dt dU + D dY,  and per token and head (R, q):  ddt = x . dU,  dd = x . dY
template <class T, class P>
void inputs_backward(Device& dev, const Group<T, P>& k, Tensor1<const Acc<T>> skip, Matrix<const P> dy, Matrix<const Acc<T>> du, Matrix<T> dx,
                     Tensor2<Acc<T>> ddt, Tensor2<Acc<T>> dd) {
  using A = Acc<T>;
  const Index R = k.heads, width = k.head_dim;
  for_rows(
      dev, "ssd_input_backward", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < R; ++r) {
          const A dt = k.dt(k.chunk.first + l, k.first_head + r), d = skip(k.first_head + r);
          const T* const xs = k.x.row(l) + r * width;
          const P* const dys = dy.row(l) + r * width;
          const A* const dus = du.row(l) + r * width;
          T* const dxs = dx.row(l) + r * width;
          A ddt_sum = 0, dd_sum = 0;
#pragma GCC ivdep
          for (Index p = 0; p < width; ++p) {
            const A v = A(xs[p]), out = A(dys[p]);
            dxs[p] = T(dt * dus[p] + d * out);
            ddt_sum += v * dus[p];
            dd_sum += v * out;
          }
          ddt(r, l) = ddt_sum;
          dd(r, l) = dd_sum;
        }
      });
}

// Completes da_k of one head in g.within, except for its last term, the sum of F:
//   da_k = sum_{l>=k,s<k} E(l,s) + sum_{l>=k} I_l + J + sum_{s<k} F_s
template <class P>
KOKKOS_INLINE_FUNCTION void add_later(const GroupGradient<P>& g, Index r, Index tokens, Index head_dim) {
  double later = 0;  // sum of I from token l to the end of the chunk, plus J
  for (Index p = 0; p < head_dim; ++p) later += g.through(r * head_dim + p);
  for (Index l = tokens - 1; l >= 0; --l) g.within(r, l) += later += g.inflow(r, l);
}

// ddt_l = x_l . dU_l + A da_l,  through clamp and softplus to dt_raw and dt_bias;  da_log = A sum_l da_l dt_l
template <class T, class P>
void steps_backward(Device& dev, const SsdShape& shape, const Group<T, P>& k, Matrix<const T> dt_raw, const SsdWeights<Acc<T>>& w,
                    const GroupGradient<P>& g, Tensor2<Acc<T>> ddt, Tensor2<Acc<T>> dd, Matrix<T> d_raw, const SsdWeightGradient<Acc<T>>& dw) {
  using A = Acc<T>;
  const A low = A(shape.dt_low), high = A(shape.dt_high);
  for_rows(
      dev, "ssd_dt_backward", k.heads, KOKKOS_LAMBDA(const Index r) {
        const Index h = k.first_head + r;
        const double rate = -std::exp(double(w.a_log(h)));
        add_later(g, r, k.tokens, k.head_dim);
        double earlier = 0;
        double d_rate = 0, d_bias = 0, d_skip = 0;  // double, because these are long sums of both signs
        for (Index l = 0; l < k.tokens; ++l) {
          const Index row = k.chunk.first + l;
          const double dal = g.within(r, l) + earlier;
          const A v = A(dt_raw(row, h)) + w.dt_bias(h), free_dt = softplus(v);
          earlier += g.outflow(r, l);
          const bool clamped = free_dt < low || free_dt > high;
          const A dv = clamped ? A(0) : A(ddt(r, l) + rate * dal) * softplus_slope(v);
          d_raw(row, h) = T(dv);
          d_rate += dal * double(k.dt(row, h));
          d_bias += dv;
          d_skip += dd(r, l);
        }
        if (dw.a_log.data()) dw.a_log(h) += A(d_rate * rate);
        if (dw.dt_bias.data()) dw.dt_bias(h) += A(d_bias);
        if (dw.d.data()) dw.d(h) += A(d_skip);
      });
}

}  // namespace

template <class T, class P>
void step_inputs_backward(Device& dev, const SsdShape& shape, const Group<T, P>& k, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w,
                          Matrix<const P> dy, const GroupGradient<P>& g, const SsdInputGradient<T>& d_in, const SsdWeightGradient<Acc<T>>& dw) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const auto ddt = dev.scratch.tensor<A>(k.heads, k.tokens), dd = dev.scratch.tensor<A>(k.heads, k.tokens);
  const double elements = double(k.tokens) * k.channels();
  const auto run = dev.launch("ssd_backward", 7.0 * elements, elements * (2 * sizeof(T) + sizeof(P) + sizeof(A)));
  if (!run) return;
  inputs_backward<T, P>(dev, k, w.d, dy, g.du, k.part(d_in.x), ddt, dd);
  steps_backward<T, P>(dev, shape, k, in.dt_raw, w, g, ddt, dd, d_in.dt_raw, dw);
}

#define GYR_SSD(T, P)                                                                                                                   \
  template void step_inputs<T, P>(Device&, const Group<T, P>&, Matrix<P>);                                                              \
  template void step_inputs_backward<T, P>(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, \
                                           Matrix<const P>, const GroupGradient<P>&, const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);
GYR_SSD(double, double)
GYR_SSD(float, float)
GYR_SSD(bf16, float)
GYR_SSD(bf16, bf16)
#undef GYR_SSD
template void time_steps<double>(Device&, const SsdShape&, Matrix<const double>, Tensor1<const double>, Tensor2<double>);
template void time_steps<float>(Device&, const SsdShape&, Matrix<const float>, Tensor1<const float>, Tensor2<float>);
template void time_steps<bf16>(Device&, const SsdShape&, Matrix<const bf16>, Tensor1<const float>, Tensor2<float>);

}  // namespace gyr::scan
