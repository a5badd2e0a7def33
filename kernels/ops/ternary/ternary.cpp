// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/ternary/ternary.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class T>
void magnitude_sums(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<double> sums) {
  ensure(sections.rows() == w.rows && Index(sums.extent(0)) == sections.count, "ternary: {} rows and {} sums for sections of {} rows and {} sections",
         w.rows, sums.extent(0), sections.rows(), sections.count);
  Scope scope(dev.scratch);
  const auto of_rows = dev.scratch.tensor<double>(w.rows);
  if (const auto run = dev.launch("magnitude_sums", double(w.rows) * double(w.columns), double(sizeof(T)) * double(w.rows) * double(w.columns)))
    backend::magnitude_sums<T>(dev, w, sections, of_rows, sums);
}

template <class A>
void weight_scales(Device& dev, const RowSections& sections, Tensor1<const double> sums, Tensor1<A> scales) {
  ensure(Index(sums.extent(0)) == sections.count && Index(scales.extent(0)) == sections.count, "ternary: {} sums and {} scales for {} sections",
         sums.extent(0), scales.extent(0), sections.count);
  if (const auto run = dev.launch("weight_scales", 0, double(sizeof(double) + sizeof(A)) * sections.count))
    backend::weight_scales<A>(dev, sections, sums, scales);
}

template <class T>
void quantize_weight(Device& dev, Matrix<const T> w, const RowSections& sections, Tensor1<const Acc<T>> scales, Ternary form, Tensor2<T> to) {
  ensure(sections.rows() == w.rows && Index(to.extent(0)) == w.rows && Index(to.extent(1)) == w.columns && Index(scales.extent(0)) == sections.count,
         "ternary: w ({},{}), its copy ({},{}), sections of {} rows and {} scales do not fit", w.rows, w.columns, to.extent(0), to.extent(1),
         sections.rows(), scales.extent(0));
  const double elements = double(w.rows) * double(w.columns);
  if (const auto run = dev.launch("quantize_weight", 2 * elements, 2.0 * sizeof(T) * elements))
    backend::quantize_weight<T>(dev, w, sections, scales, form, to);
}

template <class T>
void row_magnitudes(Device& dev, Matrix<const T> x, Tensor1<Acc<T>> largest) {
  ensure(Index(largest.extent(0)) == x.rows, "ternary: {} magnitudes for {} rows", largest.extent(0), x.rows);
  const double elements = double(x.rows) * double(x.columns);
  if (const auto run = dev.launch("row_magnitudes", elements, sizeof(T) * elements)) backend::row_magnitudes<T>(dev, x, largest);
}

template <class T>
void quantize_rows(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> largest, Ternary form, Tensor2<T> to) {
  ensure(Index(largest.extent(0)) == x.rows && Index(to.extent(0)) == x.rows && Index(to.extent(1)) == x.columns,
         "ternary: x ({},{}), its copy ({},{}) and {} magnitudes do not fit", x.rows, x.columns, to.extent(0), to.extent(1), largest.extent(0));
  const double elements = double(x.rows) * double(x.columns);
  if (const auto run = dev.launch("quantize_rows", 2 * elements, 2.0 * sizeof(T) * elements)) backend::quantize_rows<T>(dev, x, largest, form, to);
}

template <class T>
void scale_products(Device& dev, Tensor2<const Acc<T>> products, Tensor1<const Acc<T>> largest, const RowSections& sections,
                    Tensor1<const Acc<T>> scales, double alpha, double beta, Matrix<T> y) {
  ensure(Index(products.extent(0)) == y.rows && Index(products.extent(1)) == y.columns && Index(largest.extent(0)) == y.rows &&
             sections.rows() == y.columns && Index(scales.extent(0)) == sections.count,
         "ternary: products ({},{}), y ({},{}), {} magnitudes, sections of {} columns and {} scales do not fit", products.extent(0),
         products.extent(1), y.rows, y.columns, largest.extent(0), sections.rows(), scales.extent(0));
  const double elements = double(y.rows) * double(y.columns);
  if (const auto run = dev.launch("scale_products", 2 * elements, (sizeof(Acc<T>) + (beta == 0 ? 1.0 : 2.0) * sizeof(T)) * elements))
    backend::scale_products<T>(dev, products, largest, sections, scales, alpha, beta, y);
}

GYR_SCALARS(GYR_TERNARY)
GYR_TERNARY_SCALES(double)
GYR_TERNARY_SCALES(float)

}  // namespace gyr
