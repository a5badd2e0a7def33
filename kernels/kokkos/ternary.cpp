// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of ternary linear layers. kernels/ops/ternary/ternary.hpp has the formulas.
#include "kernels/ops/ternary/ternary.hpp"

#include <cmath>

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

namespace {

template <class A>
KOKKOS_INLINE_FUNCTION A magnitude(A x) {
  return x < 0 ? -x : x;
}

}  // namespace

template <class T>
void magnitude_sums(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<double> of_rows, Tensor1<double> sums) {
  for_rows(
      dev, "magnitude_sums", w.rows, KOKKOS_LAMBDA(const Index r) {
        const T* const row = &w(r, 0);
        double t = 0;
        for (Index k = 0; k < w.columns; ++k) t += double(magnitude(Acc<T>(row[k])));
        of_rows(r) = t;
      });
  for_rows(
      dev, "magnitude_sums", sections.count, KOKKOS_LAMBDA(const Index s) {
        double t = 0;
        if (sections.adds[s])
          for (Index r = sections.begin[s]; r < sections.begin[s + 1]; ++r) t += of_rows(r);
        sums(s) = t;
      });
}

template <class A>
void weight_scales(Device& dev, const RowSections& sections, Tensor1<const double> sums, Tensor1<A> scales) {
  for_rows(
      dev, "weight_scales", sections.count, KOKKOS_LAMBDA(const Index s) { scales(s) = ternary::weight_scale<A>(sums(s), sections.elements[s]); });
}

template <class T>
void quantize_weight(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<const Acc<T>> scales, Ternary form, Tensor2<T> to) {
  using A = Acc<T>;
  const bool codes = form == Ternary::codes;
  for_rows(
      dev, "quantize_weight", w.rows, KOKKOS_LAMBDA(const Index r) {
        const A scale = scales(sections.of(r)), step = codes ? A(1) : A(1) / scale;
        const T* const from = &w(r, 0);
        T* const row = &to(r, 0);
        for (Index k = 0; k < w.columns; ++k) row[k] = T(ternary::weight_code(A(from[k]), scale) * step);
      });
}

template <class T>
void row_magnitudes(Device& dev, Matrix<const T> x, Tensor1<Acc<T>> largest) {
  using A = Acc<T>;
  for_rows(
      dev, "row_magnitudes", x.rows, KOKKOS_LAMBDA(const Index r) {
        const T* const row = &x(r, 0);
        A most = 0;
        for (Index k = 0; k < x.columns; ++k) {
          const A size = magnitude(A(row[k]));
          most = size > most ? size : most;
        }
        largest(r) = most;
      });
}

template <class T>
void quantize_rows(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> largest, Ternary form, Tensor2<T> to) {
  using A = Acc<T>;
  const bool codes = form == Ternary::codes;
  for_rows(
      dev, "quantize_rows", x.rows, KOKKOS_LAMBDA(const Index r) {
        const A scale = ternary::row_scale(largest(r)), step = codes ? A(1) : A(1) / scale;
        const T* const from = &x(r, 0);
        T* const row = &to(r, 0);
        for (Index k = 0; k < x.columns; ++k) row[k] = T(ternary::row_code(A(from[k]), scale) * step);
      });
}

template <class T>
void scale_products(Device& dev, Tensor2<const Acc<T>> products, Tensor1<const Acc<T>> largest, const RowSections& sections,
                    Tensor1<const Acc<T>> scales, double alpha, double beta, Matrix<T> y) {
  using A = Acc<T>;
  for_rows(
      dev, "scale_products", y.rows, KOKKOS_LAMBDA(const Index r) {
        const A* const from = &products(r, 0);
        T* const row = &y(r, 0);
        for (int s = 0; s < sections.count; ++s) {
          const A factor = A(alpha) / (ternary::row_scale(largest(r)) * scales(s));
          if (beta == 0)
            for (Index c = sections.begin[s]; c < sections.begin[s + 1]; ++c) row[c] = T(factor * from[c]);
          else
            for (Index c = sections.begin[s]; c < sections.begin[s + 1]; ++c) row[c] = T(factor * from[c] + A(beta) * A(row[c]));
        }
      });
}

GYR_SCALARS(GYR_BACKEND_TERNARY)
GYR_TERNARY_SCALES(double)
GYR_TERNARY_SCALES(float)

}  // namespace gyr::backend
