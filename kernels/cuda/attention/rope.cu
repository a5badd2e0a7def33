// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the rotary position embedding. kernels/ops/rope.hpp has the formula.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/rope.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A>
GYR_KERNEL rope_table_kernel(RopeFrequencies frequencies, A amplitude, Global<A> cosine, Global<A> sine) {
  each_pack<1>(cosine, [&](Index p, Index j) {
    const A angle = A(p) * frequencies.at<A>(j);
    cosine.store(p, j, amplitude * std::cos(angle));
    sine.store(p, j, amplitude * std::sin(angle));
  });
}

template <class A>
GYR_KERNEL rope_table_of_rows_kernel(RopeFrequencies frequencies, A amplitude, RotarySections sections, Global<const std::int32_t> positions,
                                     Global<const std::int32_t> lengths, Global<A> cosine, Global<A> sine) {
  each_pack<1>(cosine, [&](Index r, Index j) {
    const RopeFrequencies scaled = lengths ? frequencies.of_length(lengths.load(r)) : frequencies;
    const A angle = A(positions.load(r * sections.count + sections.of(j))) * scaled.template at<A>(sections.frequency(j));
    cosine.store(r, j, amplitude * std::cos(angle));
    sine.store(r, j, amplitude * std::sin(angle));
  });
}

// Both halves of a head are read before either is written, so x may be y's memory.
template <class S, class T, int N>
GYR_KERNEL rope_kernel(Index num_heads, Acc<T> factor, Acc<T> sense, Global<const Acc<T>> cosine, Global<const Acc<T>> sine,
                       Global<const std::int32_t> positions, Global<const S> x, Global<T> y) {
  using A = Acc<T>;
  const int half = int(cosine.columns()), width = int(x.columns() / num_heads), still = width - 2 * half;
  each_row(x.rows(), [&](Index r) {
    const Index p = positions.load(r);
    each_column<N>(num_heads * half, [&](Index i) {
      const int head = int(i) / half, j = int(i) - head * half, c = head * width + j;
      const auto u1 = x.template load_values<N>(r, c), u2 = x.template load_values<N>(r, c + half);
      const auto cj = cosine.template load_pack<N>(p, j), sj = sine.template load_pack<N>(p, j);
      Pack<T, N> v1, v2;
      for (int k = 0; k < N; ++k) {
        const A along = factor * cj.at[k], across = sense * sj.at[k];
        v1.at[k] = T(u1.at[k] * along - u2.at[k] * across);
        v2.at[k] = T(u2.at[k] * along + u1.at[k] * across);
      }
      y.template store_pack<N>(r, c, v1);
      y.template store_pack<N>(r, c + half, v2);
    });
    each_column<N>(num_heads * still, [&](Index i) {
      const int head = int(i) / still, c = head * width + 2 * half + int(i) - head * still;
      const auto u = x.template load_values<N>(r, c);
      Pack<T, N> v;
      for (int k = 0; k < N; ++k) v.at[k] = T(factor * u.at[k]);
      y.template store_pack<N>(r, c, v);
    });
  });
}

}  // namespace

template <class A>
void rope_table(Device& dev, const RopeFrequencies& frequencies, const Rotation<A>& table) {
  const Global<A> cosine(table.cosine), sine(table.sine);
  launch(dev, "rope_table", grid_of<1>(cosine), rope_table_kernel<A>, frequencies, A(frequencies.amplitude()), cosine, sine);
}

template <class A>
void rope_table_of_rows(Device& dev, const RopeFrequencies& frequencies, const RotaryPositions& positions, Tensor1<const std::int32_t> lengths,
                        const Rotation<A>& table) {
  const Global<A> cosine(table.cosine), sine(table.sine);
  launch(dev, "rope_table_of_rows", grid_of<1>(cosine), rope_table_of_rows_kernel<A>, frequencies, A(frequencies.amplitude()), positions.sections,
         positions.values, lengths, cosine, sine);
}

template <class S, class T>
void rope(Device& dev, Rotate direction, Index num_heads, double scale, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
          Matrix<const S> x, Matrix<T> y) {
  using A = Acc<T>;
  const Global<const A> cosine(Tensor2<const A>(table.cosine)), sine(Tensor2<const A>(table.sine));
  const Global<const S> from(x);
  const Global<T> to(y);
  const A sense = A(direction == Rotate::forward ? scale : -scale);
  const Global<const S> head(columns(x, 0, x.columns / num_heads));  // one head: its width limits the pack width, so that no pack crosses heads
  with_packs<T>(
      [&](auto n) { launch(dev, "rope", grid_of_rows(from), rope_kernel<S, T, n>, num_heads, A(scale), sense, cosine, sine, positions, from, to); },
      cosine, sine, from, to, head);
}

GYR_ALL_BACKEND_ROPE

}  // namespace gyr::backend
