// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of Muon. kernels/ops/updates/muon.hpp has the formulas.
#include "kernels/ops/updates/muon.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

namespace {

// Calls f(element in its step, row, column range) for stretches of rows of a matrix, each in one team.
template <class A, class F>
void for_stretches(const char* name, Device& dev, const Muon& rule, const Tensor1<const A>& values, Index rows, Index columns, const F& f) {
  const Index each_row = ceil_div(columns, strip);
  const MuonElement<A> stays(rule);
  const A* const now = values.data();
  for_teams(
      name, dev, rows * each_row, KOKKOS_LAMBDA(const Team& team, Index s) {
        MuonElement<A> element = stays;
        element.set(now);
        const Index first = s % each_row * strip;
        f(team, element, s / each_row, first, least(strip, columns - first));
      });
}

}  // namespace

template <class A>
void muon_momentum(Device& dev, const Muon& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> b) {
  for_stretches<A>(
      "muon_momentum", dev, rule, values, 1, b.extent(0),
      KOKKOS_LAMBDA(const Team& team, const MuonElement<A>& in_step, Index, Index first, Index count) {
        const A* const from = g.data() + first;
        A* const to = b.data() + first;
        each(team, count, [=, element = in_step](Index i) { to[i] = element.advance(from[i], to[i]); });
      });
}

template <class A>
void muon_direction(Device& dev, const Muon& rule, Tensor1<const A> values, Matrix<const A> g, Matrix<const A> b, Matrix<A> u) {
  for_stretches<A>(
      "muon_direction", dev, rule, values, u.rows, u.columns,
      KOKKOS_LAMBDA(const Team& team, const MuonElement<A>& in_step, Index r, Index first, Index count) {
        const A *const gradient = g.row(r) + first, *const momentum = b.row(r) + first;
        A* const to = u.row(r) + first;
        each(team, count, [=, element = in_step](Index i) { to[i] = element.direction(gradient[i], momentum[i]); });
      });
}

template <class A>
void divide_by_norm(Device& dev, Tensor1<const double> sum, Tensor1<A> x) {
  const double* const squares = sum.data();
  A* const to = x.data();
  for_flat(
      "divide_by_norm", dev, x.extent(0), KOKKOS_LAMBDA(Index i) {
        const double norm = std::sqrt(squares[0]);
        to[i] = A(double(to[i]) / (norm > 1e-7 ? norm : 1e-7));
      });
}

template <class T>
void muon_step(Device& dev, const Muon& rule, Tensor1<const Acc<T>> values, Matrix<const Acc<T>> o, Matrix<Acc<T>> master, Matrix<T> w) {
  using A = Acc<T>;
  for_stretches<A>(
      "muon_step", dev, rule, values, w.rows, w.columns,
      KOKKOS_LAMBDA(const Team& team, const MuonElement<A>& in_step, Index r, Index first, Index count) {
        const A* const from = o.row(r) + first;
        T* const to = w.row(r) + first;
        if constexpr (std::is_same_v<T, A>) {
          if (!master.data) {
            each(team, count, [=, element = in_step](Index i) { to[i] = element.updated(to[i], from[i]); });
            return;
          }
        }
        A* const exact = master.row(r) + first;
        each(team, count, [=, element = in_step](Index i) {
          exact[i] = element.updated(exact[i], from[i]);
          to[i] = T(exact[i]);
        });
      });
}

GYR_ALL_MUON

}  // namespace gyr::backend
