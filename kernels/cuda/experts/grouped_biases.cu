// SPDX-License-Identifier: BSD-3-Clause
// Biases of rows that are grouped by expert. Forward: a block processes a tile of rows of one group, with one warp per
// row. Gradient of the biases: a block processes 32 columns of one group, whose rows are distributed over its warps.
#include "kernels/ops/grouped_biases.hpp"

#include "kernels/cuda/experts/row_groups.hpp"
#include "kernels/cuda/rowwise/rows.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace cuda::groups;

namespace {

constexpr int tile_rows = 16;

// Calls f(p, bias of the row's group) for every row p of this warp.
template <class F>
GYR_DEVICE void each_row_with_bias(const Global<const std::int32_t>& count, const Matrices<const float>& biases, const F& f) {
  const Rows rows = tile_of<tile_rows>(count, biases, int(block_index()));
  for (Index p = rows.first + warp(); p < rows.end; p += block_warps()) f(p, biases[rows.group]);
}

GYR_KERNEL add_bias_kernel(Global<const std::int32_t> count, Matrices<const float> biases, Global<bf16> y) {
  each_row_with_bias(count, biases, [&](Index p, const Global<const float>& bias) {
    each_column<1>(y.columns(), [&](Index c) { y.store(p, c, bf16(float(y.load(p, c)) + bias.load(c, 0))); });
  });
}

GYR_KERNEL add_weighted_bias_kernel(Global<const std::int32_t> count, Matrices<const float> biases, Global<const std::int32_t> slot,
                                    Global<const float> w, Global<bf16> y) {
  each_row_with_bias(count, biases, [&](Index p, const Global<const float>& bias) {
    const float weight = w.load(slot.load(p));
    each_column<1>(y.columns(), [&](Index c) { y.store(p, c, bf16(float(y.load(p, c)) + weight * bias.load(c, 0))); });
  });
}

GYR_KERNEL weighted_bias_backward_kernel(Global<const std::int32_t> count, Matrices<const float> biases, Global<const std::int32_t> slot,
                                         Global<const bf16> dy, Global<const float> w, Global<float> dw, Global<bf16> terms) {
  each_row_with_bias(count, biases, [&](Index p, const Global<const float>& bias) {
    const float weight = w.load(slot.load(p));
    float along = 0;
    each_column<1>(dy.columns(), [&](Index c) {
      const float d = float(dy.load(p, c));
      along += d * bias.load(c, 0);
      terms.store(p, c, bf16(weight * d));
    });
    along = warp_sum(along);
    if (dw && lane() == 0) dw.store(slot.load(p), dw.load(slot.load(p)) + along);
  });
}

GYR_KERNEL bias_backward_kernel(Global<const std::int32_t> count, Matrices<float> db, Global<const bf16> dy) {
  const Index across = ceil_div(dy.columns(), warp_size), c = block_index() % across * warp_size + lane();
  const int group = int(block_index() / across);
  const Index rows = count.load(db.first + group), first = rows_before(count, db.first + group);
  if (rows == 0 || !db.at[group]) return;
  const Shared<float> storage;
  float sum = 0;
  if (c < dy.columns())
    for (Index p = first + warp(); p < first + rows; p += block_warps()) sum += float(dy.load(p, c));
  storage.store(thread_index(), sum);
  sync_block();
  if (warp() > 0 || c >= dy.columns()) return;
  for (int w = 1; w < block_warps(); ++w) sum += storage.load(w * warp_size + lane());
  db[group].store(c, 0, db[group].load(c, 0) + sum);
}

// Launches kernel(counts, biases, arguments...) over row tiles of all groups.
template <class... P, class... A>
void launch_rows(Device& dev, const RowGroups& groups, const GroupMatrices<const float>& biases, Index rows,
                 void (*kernel)(Global<const std::int32_t>, Matrices<const float>, P...), const A&... arguments) {
  each_launch(biases, [&](const Matrices<const float>& some) {
    launch(dev, "grouped_bias", {most_tiles(tile_rows, rows, some.number), usual_threads}, kernel, groups.count, some, arguments...);
  });
}

// Records the cost of a launch: `flops` operations and `passes` bf16 memory accesses per element.
Device::Launch announced(Device& dev, const RowGroups& groups, Index rows, Index columns, double flops, double passes) {
  const double elements = double(used_rows(groups, rows)) * double(columns);
  return dev.launch("grouped_bias", flops * elements, passes * sizeof(bf16) * elements);
}

}  // namespace

bool grouped_add_bias(Device& dev, const RowGroups& groups, const GroupMatrices<const float>& bias, Tensor2<bf16> y) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, y.extent(0), y.extent(1), 1, 2)) launch_rows(dev, groups, bias, y.extent(0), add_bias_kernel, y);
  return true;
}

bool grouped_add_weighted_bias(Device& dev, const RowGroups& groups, Tensor1<const std::int32_t> slot, Tensor2<const float> w,
                               const GroupMatrices<const float>& bias, Tensor2<bf16> y) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, y.extent(0), y.extent(1), 2, 2))
    launch_rows(dev, groups, bias, y.extent(0), add_weighted_bias_kernel, slot, flat(w), y);
  return true;
}

bool grouped_weighted_bias_backward(Device& dev, const RowGroups& groups, Tensor1<const std::int32_t> slot, Tensor2<const bf16> dy,
                                    Tensor2<const float> w, const GroupMatrices<const float>& bias, Tensor2<float> dw, Tensor2<bf16> terms) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, dy.extent(0), dy.extent(1), 3, 2))
    launch_rows(dev, groups, bias, dy.extent(0), weighted_bias_backward_kernel, slot, dy, flat(w), flat(dw), terms);
  return true;
}

bool grouped_bias_backward(Device& dev, const RowGroups& groups, Matrix<const bf16> dy, const GroupMatrices<float>& db) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, dy.rows, dy.columns, 1, 1))
    each_launch(db, [&](const Matrices<float>& some) {
      launch(dev, "grouped_bias", {some.number * ceil_div(dy.columns, warp_size), usual_threads, usual_threads * int(sizeof(float))},
             bias_backward_kernel, groups.count, some, dy);
    });
  return true;
}

}  // namespace gyr::backend
