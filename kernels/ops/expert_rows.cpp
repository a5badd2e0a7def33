// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/expert_rows.hpp"

#include <limits>

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

Index slots(const ExpertRows& rows) { return rows.place.span(); }

// True if a matrix has the columns of gate and up, or of up alone.
template <class T>
bool has_projections_of(const Tensor2<const T>& x, Index width) {
  return Index(x.extent(1)) == 2 * width || Index(x.extent(1)) == width;
}

}  // namespace

void group_rows(Device& dev, Tensor2<const std::int32_t> chosen, const ExpertRows& rows) {
  ensure(chosen.extent(0) == rows.place.extent(0) && chosen.extent(1) == rows.place.extent(1) && Index(rows.slot.extent(0)) == slots(rows) &&
             slots(rows) <= std::numeric_limits<std::int32_t>::max(),
         "group_rows: ({},{}) choices do not fit {} places and {} slots", chosen.extent(0), chosen.extent(1), slots(rows), rows.slot.extent(0));
  if (const auto run = dev.launch("group_rows", 0, 3.0 * sizeof(std::int32_t) * slots(rows))) backend::group_rows(dev, chosen, rows);
}

template <class T>
void gather_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Tensor2<T> y) {
  ensure(x.extent(0) == rows.place.extent(0) && Index(y.extent(0)) == slots(rows) && x.extent(1) == y.extent(1),
         "gather_rows: x ({},{}) does not fit y ({},{})", x.extent(0), x.extent(1), y.extent(0), y.extent(1));
  if (const auto run = dev.launch("gather_rows", 0, double(sizeof(T)) * double(x.extent(0) + y.extent(0)) * double(y.extent(1))))
    backend::gather_rows<T>(dev, rows, x, y);
}

template <class T>
void combine_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Add add, Tensor2<T> y) {
  ensure(y.extent(0) == rows.place.extent(0) && Index(x.extent(0)) == slots(rows) && x.extent(1) == y.extent(1),
         "combine_rows: x ({},{}) does not fit y ({},{})", x.extent(0), x.extent(1), y.extent(0), y.extent(1));
  const double columns = double(y.extent(1)), added = add == Add::yes ? 2 : 1;
  if (const auto run =
          dev.launch("combine_rows", double(slots(rows)) * columns, sizeof(T) * columns * (double(slots(rows)) + added * double(y.extent(0)))))
    backend::combine_rows<T>(dev, rows, x, add, y);
}

template <class T>
void weighted_glu(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y) {
  const Index height = y.extent(0), width = y.extent(1);
  ensure(height == slots(rows) && Index(gate_up.extent(0)) == height && has_projections_of(gate_up, width) && Index(w.span()) == height,
         "weighted_glu: gate_up ({},{}) and {} weights do not fit y ({},{})", gate_up.extent(0), gate_up.extent(1), w.span(), height, width);
  if (const auto run = dev.launch("weighted_glu", 7.0 * height * width, double(sizeof(T)) * double(gate_up.span() + y.span())))
    backend::weighted_glu<T>(dev, a, rows, gate_up, w, y);
}

template <class T>
void weighted_glu_backward(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw) {
  const Index height = dy.extent(0), width = dy.extent(1);
  for (const auto& pair : {gate_up, Tensor2<const T>(dgate_up)})
    ensure(height == slots(rows) && Index(pair.extent(0)) == height && has_projections_of(pair, width) && pair.extent(1) == gate_up.extent(1),
           "weighted_glu_backward: gate_up ({},{}) does not fit dy ({},{})", pair.extent(0), pair.extent(1), height, width);
  ensure(Index(w.span()) == height && Index(dw.span()) == height, "weighted_glu_backward: {} weights and {} weight gradients for {} rows", w.span(),
         dw.span(), height);
  if (const auto run = dev.launch("weighted_glu_backward", 16.0 * height * width, double(sizeof(T)) * double(2 * gate_up.span() + dy.span())))
    backend::weighted_glu_backward<T>(dev, a, rows, dy, gate_up, w, dgate_up, dw);
}

template <class T>
void add_weighted_bias(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor2<T> y) {
  const Index height = y.extent(0), width = y.extent(1);
  ensure(Index(slot.extent(0)) == height && Index(bias.extent(0)) == width, "add_weighted_bias: {} bias values do not fit y ({},{}) and {} slots",
         bias.extent(0), height, width, slot.extent(0));
  if (const auto run = dev.launch("add_weighted_bias", 2.0 * height * width, 2.0 * sizeof(T) * height * width))
    backend::add_weighted_bias<T>(dev, slot, w, bias, y);
}

template <class T>
void weighted_bias_backward(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms) {
  const Index height = dy.extent(0), width = dy.extent(1);
  ensure(Index(slot.extent(0)) == height && Index(bias.extent(0)) == width && terms.span() == dy.span() && (dw.span() == 0 || dw.span() == w.span()),
         "weighted_bias_backward: {} bias values do not fit dy ({},{}) and {} slots", bias.extent(0), height, width, slot.extent(0));
  if (const auto run = dev.launch("weighted_bias_backward", 3.0 * height * width, 2.0 * sizeof(T) * height * width))
    backend::weighted_bias_backward<T>(dev, slot, dy, w, bias, dw, terms);
}

GYR_SCALARS(GYR_EXPERT_ROWS)

}  // namespace gyr
