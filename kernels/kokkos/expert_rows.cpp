// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels that group rows by expert, and that combine the experts' outputs (kernels/ops/expert_rows.hpp).
#include "kernels/ops/expert_rows.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/activation_math.hpp"

namespace gyr::backend {

// Counting sort by a single thread. Its time is negligible compared to the GEMMs of the rows.
void group_rows(Device& dev, Tensor2<const std::int32_t> chosen, const ExpertRows& rows) {
  const Index slots = chosen.span(), experts = rows.count.extent(0);
  for_rows(
      dev, "group_rows", 1, KOKKOS_LAMBDA(const Index) {
        const std::int32_t* const expert = chosen.data();
        std::int32_t *const place = rows.place.data(), *const slot = rows.slot.data(), *const count = rows.count.data();
        for (Index e = 0; e < experts; ++e) count[e] = 0;
        for (Index s = 0; s < slots; ++s) place[s] = count[expert[s]]++;  // index of this slot (one choice of a row) among the slots of its expert
        std::int32_t first = 0;
        for (Index e = 0; e < experts; ++e) {
          const std::int32_t n = count[e];
          count[e] = first, first += n;
        }
        for (Index s = 0; s < slots; ++s) {
          place[s] += count[expert[s]];
          slot[place[s]] = std::int32_t(s);
        }
        for (Index e = 0; e < experts; ++e) count[e] = (e + 1 < experts ? count[e + 1] : first) - count[e];
      });
}

template <class T>
void gather_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Tensor2<T> y) {
  const Index columns = y.extent(1), choices = rows.place.extent(1);
  for_teams(
      "gather_rows", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const T* const from = x.data() + rows.slot(p) / choices * columns;
        T* const to = y.data() + p * columns;
        each(team, columns, [=](Index c) { to[c] = from[c]; });
      });
}

template <class T>
void combine_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Add add, Tensor2<T> y) {
  using A = Acc<T>;
  const Index columns = y.extent(1), choices = rows.place.extent(1);
  const bool adds = add == Add::yes;
  for_teams(
      "combine_rows", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index r) {
        const std::int32_t* const place = rows.place.data() + r * choices;
        const T* const from = x.data();
        T* const to = y.data() + r * columns;
        each(team, columns, [=](Index c) {
          A sum = adds ? A(to[c]) : A(0);
          for (Index k = 0; k < choices; ++k) sum += A(from[place[k] * columns + c]);
          to[c] = T(sum);
        });
      });
}

namespace {

template <Activation a, class T>
void weighted_glu(Device& dev, const ExpertRows& rows, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y) {
  using A = Acc<T>;
  const Index width = y.extent(1);
  for_teams(
      "weighted_glu", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const T *const gate = gate_up.data() + 2 * p * width, *const up = gate + width;
        const A weight = w.data()[rows.slot(p)];
        T* const to = y.data() + p * width;
        each(team, width, [=](Index f) { to[f] = T(weight * up_factor<a>(A(up[f])) * activation_at<a>(A(gate[f]))); });
      });
}

template <Activation a, class T>
void weighted_glu_backward(Device& dev, const ExpertRows& rows, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw) {
  using A = Acc<T>;
  const Index width = dy.extent(1);
  for_teams(
      "weighted_glu_backward", dev, dy.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const T *const gate = gate_up.data() + 2 * p * width, *const up = gate + width, *const dout = dy.data() + p * width;
        T *const dgate = dgate_up.data() + 2 * p * width, *const dup = dgate + width;
        const A weight = w.data()[rows.slot(p)];
        const A along = sum<A>(team, width, [=](Index f, A& s) { s += A(dout[f]) * up_factor<a>(A(up[f])) * activation_at<a>(A(gate[f])); });
        each(team, width, [=](Index f) {
          const A s = A(gate[f]), d = weight * A(dout[f]), linear = A(up[f]);
          dup[f] = T(d * up_factor_slope<a>(linear) * activation_at<a>(s));
          dgate[f] = T(d * up_factor<a>(linear) * activation_slope<a>(s));
        });
        once(team, [=] { dw.data()[rows.slot(p)] = along; });
      });
}

template <Activation a, class T>
void weighted_activation(Device& dev, const ExpertRows& rows, Tensor2<const T> up, Tensor2<const Acc<T>> w, Tensor2<T> y) {
  using A = Acc<T>;
  const Index width = y.extent(1);
  for_teams(
      "weighted_glu", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const T* const from = up.data() + p * width;
        const A weight = w.data()[rows.slot(p)];
        T* const to = y.data() + p * width;
        each(team, width, [=](Index f) { to[f] = T(weight * activation_at<a>(A(from[f]))); });
      });
}

template <Activation a, class T>
void weighted_activation_backward(Device& dev, const ExpertRows& rows, Tensor2<const T> dy, Tensor2<const T> up, Tensor2<const Acc<T>> w,
                                  Tensor2<T> dup, Tensor2<Acc<T>> dw) {
  using A = Acc<T>;
  const Index width = dy.extent(1);
  for_teams(
      "weighted_glu_backward", dev, dy.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const T *const from = up.data() + p * width, *const dout = dy.data() + p * width;
        T* const to = dup.data() + p * width;
        const A weight = w.data()[rows.slot(p)];
        const A along = sum<A>(team, width, [=](Index f, A& s) { s += A(dout[f]) * activation_at<a>(A(from[f])); });
        each(team, width, [=](Index f) { to[f] = T(weight * A(dout[f]) * activation_slope<a>(A(from[f]))); });
        once(team, [=] { dw.data()[rows.slot(p)] = along; });
      });
}

}  // namespace

template <class T>
void weighted_glu(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y) {
  with_activation(a, [&](auto which) {
    if (gate_up.extent(1) == y.extent(1)) weighted_activation<which(), T>(dev, rows, gate_up, w, y);
    else weighted_glu<which(), T>(dev, rows, gate_up, w, y);
  });
}
template <class T>
void weighted_glu_backward(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw) {
  with_activation(a, [&](auto which) {
    if (gate_up.extent(1) == dy.extent(1)) weighted_activation_backward<which(), T>(dev, rows, dy, gate_up, w, dgate_up, dw);
    else weighted_glu_backward<which(), T>(dev, rows, dy, gate_up, w, dgate_up, dw);
  });
}

template <class T>
void add_weighted_bias(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor2<T> y) {
  using A = Acc<T>;
  const Index width = y.extent(1);
  for_teams(
      "add_weighted_bias", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const A weight = w.data()[slot(p)];
        const A* const b = bias.data();
        T* const to = y.data() + p * width;
        each(team, width, [=](Index c) { to[c] = T(A(to[c]) + weight * b[c]); });
      });
}

template <class T>
void weighted_bias_backward(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms) {
  using A = Acc<T>;
  const Index width = dy.extent(1);
  for_teams(
      "weighted_bias_backward", dev, dy.extent(0), KOKKOS_LAMBDA(const Team& team, Index p) {
        const A weight = w.data()[slot(p)];
        const A* const b = bias.data();
        const T* const from = dy.data() + p * width;
        T* const to = terms.data() + p * width;
        const A along = sum<A>(team, width, [=](Index c, A& s) { s += A(from[c]) * b[c]; });
        each(team, width, [=](Index c) { to[c] = T(weight * A(from[c])); });
        once(team, [=] {
          if (dw.span() > 0) dw.data()[slot(p)] += along;
        });
      });
}

GYR_SCALARS(GYR_EXPERT_ROWS)

}  // namespace gyr::backend
