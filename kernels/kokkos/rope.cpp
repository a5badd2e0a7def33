// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the rotary position embedding. kernels/ops/rope.hpp has the formula.
#include <cmath>

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/rope.hpp"

namespace gyr::backend {

template <class A>
void rope_table(Device& dev, const RopeFrequencies& frequencies, const Rotation<A>& table) {
  const A amplitude = A(frequencies.amplitude());
  const auto cosine = table.cosine, sine = table.sine;
  const Index P = cosine.extent(0), half = cosine.extent(1);
  for_rows(
      dev, "rope_table", P, KOKKOS_LAMBDA(const Index p) {
        for (Index j = 0; j < half; ++j) {
          const A angle = A(p) * frequencies.at<A>(j);
          cosine(p, j) = amplitude * std::cos(angle);
          sine(p, j) = amplitude * std::sin(angle);
        }
      });
}

template <class A>
void rope_table_of_rows(Device& dev, const RopeFrequencies& frequencies, const RotaryPositions& positions, Tensor1<const std::int32_t> lengths,
                        const Rotation<A>& table) {
  const A amplitude = A(frequencies.amplitude());
  const auto cosine = table.cosine, sine = table.sine;
  const auto values = positions.values;
  const RotarySections sections = positions.sections;
  const Index half = cosine.extent(1), read = lengths.extent(0);
  for_rows(
      dev, "rope_table_of_rows", cosine.extent(0), KOKKOS_LAMBDA(const Index r) {
        const RopeFrequencies scaled = read > 0 ? frequencies.of_length(lengths(r)) : frequencies;
        for (Index j = 0; j < half; ++j) {
          const A angle = A(values(r * sections.count + sections.of(j))) * scaled.at<A>(sections.frequency(j));
          cosine(r, j) = amplitude * std::cos(angle);
          sine(r, j) = amplitude * std::sin(angle);
        }
      });
}

template <class S, class T>
void rope(Device& dev, Rotate direction, Index num_heads, double scale, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
          Matrix<const S> x, Matrix<T> y) {
  using A = Acc<T>;
  const auto cosine = table.cosine, sine = table.sine;
  const Index R = x.rows, half = cosine.extent(1), width = x.columns / num_heads;
  const A factor = A(scale), sense = A(direction == Rotate::forward ? scale : -scale);
  for_rows(
      dev, "rope", R, KOKKOS_LAMBDA(const Index r) {
        const A *const c = cosine.data() + positions(r) * half, *const s = sine.data() + positions(r) * half;
        for (Index h = 0; h < num_heads; ++h) {
          const S* const u = x.row(r) + width * h;
          T* const v = y.row(r) + width * h;
#pragma GCC ivdep  // both halves are read before either is written, so u may be v
          for (Index j = 0; j < half; ++j) {
            const A u1 = A(u[j]), u2 = A(u[j + half]), cj = factor * c[j], sj = sense * s[j];
            v[j] = T(u1 * cj - u2 * sj);
            v[j + half] = T(u2 * cj + u1 * sj);
          }
          for (Index j = 2 * half; j < width; ++j) v[j] = T(factor * A(u[j]));
        }
      });
}

GYR_ALL_BACKEND_ROPE

}  // namespace gyr::backend
