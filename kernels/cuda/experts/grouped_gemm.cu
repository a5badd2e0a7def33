// SPDX-License-Identifier: BSD-3-Clause
// Grouped GEMMs in bf16 for rows that are grouped by expert. A block computes one output tile. For GEMMs with weights,
// the grid has as many blocks as the rows could fill tiles under any distribution over the groups. Each block finds its
// tile from the row counts, and blocks beyond the last tile exit. Each tile of a weight gradient belongs to one block,
// which sums over all rows of the group: the same bits in every run.
#include "kernels/cuda/experts/grouped_gemm.hpp"

#include "kernels/cuda/experts/grouped_gemm_sm90.hpp"
#include "kernels/cuda/experts/row_groups.hpp"

namespace gyr {

using namespace cuda;
using namespace cuda::groups;

namespace {

// Average rows per group from which one cuBLASLt GEMM per group is assumed to be faster, although the host waits for
// the row counts and launches the GEMMs one by one. ESTIMATE, not measured: (512, 2048) by (1536, 2048)', 3.2 GFLOP,
// takes cuBLASLt 5 us on an H100, about as long as its launch on the host. With more rows the host runs ahead of the
// GPU.
constexpr Index many_rows = 512;
constexpr Index few_rows_of_a_group = 16;  // average rows per group up to which blocks use 16-row tiles

// y (rows,N) = x w', or with by_columns: dx (rows,K) = dy w.
template <class Tile, bool by_columns, bool packs>
GYR_KERNEL_OF(Tile::threads, Tile::blocks)
rows_kernel(Global<const std::int32_t> count, Matrices<const bf16> w, Global<const bf16> in, Global<bf16> out) {
  if constexpr (Tile::exists) {
    const int across = int(ceil_div(out.columns(), Tile::columns));
    const Rows rows = tile_of<Tile::rows>(count, w, int(block_index()) / across);
    if (rows.first == rows.end) return;
    const Operand<true, Tile::rows, Tile::depth> left{in, rows.first, rows.end, 0, in.columns()};
    const Operand<!by_columns, Tile::columns, Tile::depth> right{w[rows.group], Index(block_index()) % across * Tile::columns, out.columns(), 0,
                                                                 in.columns()};
    multiply<packs>(Tile(), left, right, [&](Index r, Index c, const Pack<float, 2>& v) {
      if (r >= rows.end || c >= out.columns()) return;
      if constexpr (packs) out.template store_pack<2>(r, c, __builtin_bit_cast(Pack<bf16, 2>, pair(v.at[0], v.at[1])));
      else {
        out.store(r, c, bf16(v.at[0]));
        if (c + 1 < out.columns()) out.store(r, c + 1, bf16(v.at[1]));
      }
    });
  }
}

// dw (N,K) += dy' x over the rows of a group.
template <class Tile, bool packs>
GYR_KERNEL_OF(Tile::threads, Tile::blocks)
weights_kernel(Global<const std::int32_t> count, Matrices<float> dw, Global<const bf16> dy, Global<const bf16> x) {
  if constexpr (Tile::exists) {
    const Index across = ceil_div(x.columns(), Tile::columns), tiles = across * ceil_div(dy.columns(), Tile::rows);
    const int group = int(block_index() / tiles);
    const Index tile = block_index() % tiles, rows = count.load(dw.first + group);
    if (rows == 0 || !dw.at[group]) return;
    const Index first = rows_before(count, dw.first + group);
    const Operand<false, Tile::rows, Tile::depth> left{dy, tile / across * Tile::rows, dy.columns(), first, first + rows};
    const Operand<false, Tile::columns, Tile::depth> right{x, tile % across * Tile::columns, x.columns(), first, first + rows};
    const Global<float> out = dw[group];
    multiply<packs>(Tile(), left, right, [&](Index r, Index c, const Pack<float, 2>& v) {
      if (r >= out.rows() || c >= out.columns()) return;
      if constexpr (packs) {
        const auto before = out.template load_pack<2>(r, c);
        out.template store_pack<2>(r, c, {{before.at[0] + v.at[0], before.at[1] + v.at[1]}});
      } else {
        for (int i = 0; i < 2 && c + i < out.columns(); ++i) out.store(r, c + i, out.load(r, c + i) + v.at[i]);
      }
    });
  }
}

// Calls body(matrices, packs) for as many groups at a time as one launch takes. packs is std::true_type if these
// tensors and the matrices allow packs of 8 elements.
template <class T, class Body, class... X>
void with_matrices(const GroupMatrices<T>& all, const Body& body, const Global<X>&... tensors) {
  each_launch(all, [&](const Matrices<T>& some) {
    bool packs = (tensors.template packs<8>() && ...);
    for (int i = 0; i < some.number; ++i) packs = packs && Global<T>(all[some.first + i]).template packs<8>();
    if (packs) body(some, std::true_type());
    else body(some, std::false_type());
  });
}

template <class Tile, bool by_columns, bool packs>
void launch_rows(Device& dev, const RowGroups& groups, const Global<const bf16>& in, const Matrices<const bf16>& w, const Global<bf16>& out) {
  const Index blocks = most_tiles(Tile::rows, out.rows(), w.number) * ceil_div(out.columns(), Tile::columns);
  launch(dev, "grouped_gemm", {blocks, Tile::threads, Tile::template shared_bytes<true, !by_columns>}, rows_kernel<Tile, by_columns, packs>,
         groups.count, w, in, out);
}

template <bool by_columns>
void rows_by_kernel(Device& dev, const RowGroups& groups, Tensor2<const bf16> in, const GroupMatrices<const bf16>& w, Tensor2<bf16> out) {
  const Global<const bf16> from(in);
  const Global<bf16> to(out);
  with_matrices(
      w,
      [&](const Matrices<const bf16>& some, auto packs) {
        if (groups.even <= few_rows_of_a_group) return launch_rows<FewRows, by_columns, packs>(dev, groups, from, some, to);
        if constexpr (packs)
          if (uses_wgmma()) return launch_rows<WarpgroupTile, by_columns, packs>(dev, groups, from, some, to);
        launch_rows<LargeTile, by_columns, packs>(dev, groups, from, some, to);
      },
      from, to);
}

template <class Tile, bool packs>
void launch_weights(Device& dev, const RowGroups& groups, const Global<const bf16>& dy, const Global<const bf16>& x, const Matrices<float>& dw) {
  const Index blocks = dw.number * ceil_div(dw.rows, Tile::rows) * ceil_div(dw.columns, Tile::columns);
  launch(dev, "grouped_gemm", {blocks, Tile::threads, Tile::template shared_bytes<false, false>}, weights_kernel<Tile, packs>, groups.count, dw, dy,
         x);
}

Device::Launch announced(Device& dev, const RowGroups& groups, Index rows, Index n, Index k, std::size_t bytes_of_a_weight) {
  const double used = double(used_rows(groups, rows)), size = double(n) * double(k), matrices = std::min(used, double(groups.groups()));
  return dev.launch("grouped_gemm", 2 * used * size, double(sizeof(bf16)) * used * double(n + k) + double(bytes_of_a_weight) * matrices * size);
}

}  // namespace

bool has_grouped_kernels(DType type, Index even) { return type == DType::bf16 && even < many_rows; }

namespace backend {

bool grouped_linear(Device& dev, const RowGroups& groups, Tensor2<const bf16> x, const GroupMatrices<const bf16>& w, Tensor2<bf16> y) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, x.extent(0), w.rows, w.columns, sizeof(bf16))) rows_by_kernel<false>(dev, groups, x, w, y);
  return true;
}

bool grouped_linear_backward_input(Device& dev, const RowGroups& groups, Tensor2<const bf16> dy, const GroupMatrices<const bf16>& w,
                                   Tensor2<bf16> dx) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, dy.extent(0), w.rows, w.columns, sizeof(bf16))) rows_by_kernel<true>(dev, groups, dy, w, dx);
  return true;
}

bool grouped_linear_backward_weight(Device& dev, const RowGroups& groups, Matrix<const bf16> dy, Tensor2<const bf16> x,
                                    const GroupMatrices<float>& dw) {
  if (!has_grouped_kernels(DType::bf16, groups.even)) return false;
  if (const auto run = announced(dev, groups, x.extent(0), dw.rows, dw.columns, 2 * sizeof(float))) {
    const Global<const bf16> of_outputs(dy), of_inputs(x);
    with_matrices(
        dw,
        [&](const Matrices<float>& some, auto packs) {
          if constexpr (packs)
            if (uses_wgmma()) return launch_weights<WarpgroupTile, packs>(dev, groups, of_outputs, of_inputs, some);
          launch_weights<LargeTile, packs>(dev, groups, of_outputs, of_inputs, some);
        },
        of_outputs, of_inputs);
  }
  return true;
}

}  // namespace backend

}  // namespace gyr
