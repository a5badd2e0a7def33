// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/updates/muon.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class S, class T>
bool same_shape(const Matrix<S>& a, const Matrix<T>& b) {
  return a.rows == b.rows && a.columns == b.columns;
}

template <class A>
void check_values(const Tensor1<const A>& values) {
  ensure(values.extent(0) == update_values, "muon: the step has {} values, expected {}", values.extent(0), update_values);
}

}  // namespace

UpdateValues Muon::values(const StepOfWeight& s) const { return {1 - s.lr * s.weight_decay, s.lr, s.gradient_scale}; }

template <class A>
void muon_momentum(Device& dev, const Muon& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> b) {
  const Index n = b.extent(0);
  ensure(Index(g.extent(0)) == n, "muon: {} gradients do not fit a momentum of {}", g.extent(0), n);
  check_values(values);
  if (const auto run = dev.launch("muon_momentum", 4.0 * n, 3.0 * sizeof(A) * n)) backend::muon_momentum<A>(dev, rule, values, g, b);
}

template <class A>
void muon_direction(Device& dev, const Muon& rule, Tensor1<const A> values, Matrix<const A> g, Matrix<const A> b, Matrix<A> u) {
  ensure(same_shape(g, u) && same_shape(b, u), "muon: gradient ({}, {}) and momentum ({}, {}) do not fit a block ({}, {})", g.rows, g.columns, b.rows,
         b.columns, u.rows, u.columns);
  check_values(values);
  const double n = double(u.rows) * double(u.columns);
  if (const auto run = dev.launch("muon_direction", 4 * n, 3.0 * sizeof(A) * n)) backend::muon_direction<A>(dev, rule, values, g, b, u);
}

template <class A>
void divide_by_norm(Device& dev, Tensor1<const double> sum, Tensor1<A> x) {
  ensure(sum.extent(0) == 1, "divide_by_norm: {} sums, expected 1", sum.extent(0));
  const double n = double(x.extent(0));
  if (const auto run = dev.launch("divide_by_norm", n, 2.0 * sizeof(A) * n)) backend::divide_by_norm<A>(dev, sum, x);
}

template <class T>
void muon_step(Device& dev, const Muon& rule, Tensor1<const Acc<T>> values, Matrix<const Acc<T>> o, Matrix<Acc<T>> master, Matrix<T> w) {
  const bool no_master = master.data == nullptr;
  ensure(same_shape(o, w) && (no_master || same_shape(master, w)), "muon: a block ({}, {}) does not fit weights ({}, {})", o.rows, o.columns, w.rows,
         w.columns);
  ensure(!no_master || std::is_same_v<T, Acc<T>>, "muon: bf16 weights need fp32 master weights");
  check_values(values);
  const double n = double(w.rows) * double(w.columns);
  if (const auto run = dev.launch("muon_step", 3 * n, (3.0 * sizeof(Acc<T>) + (no_master ? 0 : sizeof(T))) * n))
    backend::muon_step<T>(dev, rule, values, o, master, w);
}

GYR_ALL_MUON

}  // namespace gyr
