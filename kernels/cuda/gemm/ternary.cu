// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of ternary linear layers. kernels/ops/ternary/ternary.hpp has the formulas. One warp works on a row, with adjacent elements in
// adjacent lanes.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/ternary/ternary.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T>
GYR_KERNEL row_sums_kernel(Global<const T> w, Global<double> of_rows) {
  each_row(w.rows(), [&](Index r) {
    double t = 0;
    each_column<1>(w.columns(), [&](Index c) {
      const Acc<T> x = Acc<T>(w.load(r, c));
      t += double(x < 0 ? -x : x);
    });
    t = warp_sum(t);
    if (lane() == 0) of_rows.store(r, t);
  });
}

// One block per section, whose sum has a fixed order.
GYR_KERNEL section_sums_kernel(RowSections sections, Global<const double> of_rows, Global<double> sums) {
  const Shared<double> storage;
  const int s = int(block_index());
  double t = 0;
  if (sections.adds[s])
    for (Index r = sections.begin[s] + thread_index(); r < sections.begin[s + 1]; r += block_threads()) t += of_rows.load(r);
  t = block_sum(t, storage);
  if (thread_index() == 0) sums.store(s, t);
}

template <class A>
GYR_KERNEL weight_scales_kernel(RowSections sections, Global<const double> sums, Global<A> scales) {
  const int s = thread_index();
  if (s < sections.count) scales.store(s, ternary::weight_scale<A>(sums.load(s), sections.elements[s]));
}

template <class T>
GYR_KERNEL quantize_weight_kernel(Global<const T> w, RowSections sections, Global<const Acc<T>> scales, bool codes, Global<T> to) {
  using A = Acc<T>;
  each_row(w.rows(), [&](Index r) {
    const A scale = scales.load(sections.of(r)), step = codes ? A(1) : A(1) / scale;
    each_column<1>(w.columns(), [&](Index c) { to.store(r, c, T(ternary::weight_code(A(w.load(r, c)), scale) * step)); });
  });
}

template <class T>
GYR_KERNEL row_magnitudes_kernel(Global<const T> x, Global<Acc<T>> largest) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    A most = 0;
    each_column<1>(x.columns(), [&](Index c) {
      const A value = A(x.load(r, c)), size = value < 0 ? -value : value;
      most = size > most ? size : most;
    });
    most = warp_largest(most);
    if (lane() == 0) largest.store(r, most);
  });
}

template <class T>
GYR_KERNEL quantize_rows_kernel(Global<const T> x, Global<const Acc<T>> largest, bool codes, Global<T> to) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    const A scale = ternary::row_scale(largest.load(r)), step = codes ? A(1) : A(1) / scale;
    each_column<1>(x.columns(), [&](Index c) { to.store(r, c, T(ternary::row_code(A(x.load(r, c)), scale) * step)); });
  });
}

template <class T>
GYR_KERNEL scale_products_kernel(Global<const Acc<T>> products, Global<const Acc<T>> largest, RowSections sections, Global<const Acc<T>> scales,
                                 Acc<T> alpha, Acc<T> beta, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    const A of_row = ternary::row_scale(largest.load(r));
    each_column<1>(y.columns(), [&](Index c) {
      const A value = alpha / (of_row * scales.load(sections.of(c))) * products.load(r, c);
      y.store(r, c, T(beta == 0 ? value : value + beta * A(y.load(r, c))));
    });
  });
}

}  // namespace

template <class T>
void magnitude_sums(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<double> of_rows, Tensor1<double> sums) {
  const Global<const T> from(w);
  launch(dev, "magnitude_sums", grid_of_rows(from), row_sums_kernel<T>, from, of_rows);
  launch(dev, "magnitude_sums", {sections.count, usual_threads, usual_warps * int(sizeof(double))}, section_sums_kernel, sections,
         Tensor1<const double>(of_rows), sums);
}

template <class A>
void weight_scales(Device& dev, const RowSections& sections, Tensor1<const double> sums, Tensor1<A> scales) {
  launch(dev, "weight_scales", {1, warp_size}, weight_scales_kernel<A>, sections, sums, scales);
}

template <class T>
void quantize_weight(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<const Acc<T>> scales, Ternary form, Tensor2<T> to) {
  const Global<const T> from(w);
  launch(dev, "quantize_weight", grid_of_rows(from), quantize_weight_kernel<T>, from, sections, scales, form == Ternary::codes, to);
}

template <class T>
void row_magnitudes(Device& dev, Matrix<const T> x, Tensor1<Acc<T>> largest) {
  const Global<const T> from(x);
  launch(dev, "row_magnitudes", grid_of_rows(from), row_magnitudes_kernel<T>, from, largest);
}

template <class T>
void quantize_rows(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> largest, Ternary form, Tensor2<T> to) {
  const Global<const T> from(x);
  launch(dev, "quantize_rows", grid_of_rows(from), quantize_rows_kernel<T>, from, largest, form == Ternary::codes, to);
}

template <class T>
void scale_products(Device& dev, Tensor2<const Acc<T>> products, Tensor1<const Acc<T>> largest, const RowSections& sections,
                    Tensor1<const Acc<T>> scales, double alpha, double beta, Matrix<T> y) {
  const Global<T> to(y);
  launch(dev, "scale_products", grid_of_rows(to), scale_products_kernel<T>, products, largest, sections, scales, Acc<T>(alpha), Acc<T>(beta), to);
}

GYR_SCALARS(GYR_BACKEND_TERNARY)
GYR_TERNARY_SCALES(double)
GYR_TERNARY_SCALES(float)

}  // namespace gyr::backend
