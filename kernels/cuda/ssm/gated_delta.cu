// SPDX-License-Identifier: BSD-3-Clause
// Gated delta rule on a GPU: one block per sequence and group of heads, which goes through the chunks in order. A block is
// a team of kernels/ops/delta/gated_delta.hpp, which has the formulas. Its GEMMs use tiles in shared memory, without
// tensor cores.
#include "kernels/ops/delta/gated_delta.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/cuda/machine/launch.hpp"

namespace gyr::backend {

using namespace gyr::cuda;

namespace {

constexpr int threads = 256, tile = 64, depth = 16, part = 4, side = tile / part;  // each thread has part x part elements of a tile
constexpr int operand_stride = tile + 1, operand_elements = depth * operand_stride;

// One block as a team. Every row is computed by one warp.
struct BlockTeam {
  template <class F>
  GYR_DEVICE void rows(Index count, double, const F& f) const {
    for (Index r = warp(); r < count; r += block_warps()) f(r);
    sync_block();
  }
  template <class F>
  GYR_DEVICE void once(double, const F& f) const {
    if (thread_index() == 0) f();
    sync_block();
  }
  template <class F>
  GYR_DEVICE void strips(Index count, double, const F& f) const {
    for (Index c = thread_index(); c < count; c += block_threads()) f(c, Index(1));
    sync_block();
  }
  template <class F>
  GYR_DEVICE void each(Index count, const F& f) const {
    for (Index c = lane(); c < count; c += warp_size) f(c);
  }
  template <class S, class F>
  GYR_DEVICE S sum(Index count, const F& f) const {
    S total = 0;
    for (Index c = lane(); c < count; c += warp_size) total += f(c);
    return warp_sum(total);
  }
  GYR_DEVICE bool leads() const { return lane() == 0; }
  template <class F>
  GYR_DEVICE void repeat(Index count, const F& f) const {
    for (Index i = 0; i < count; ++i) f(i);
  }

  // c = alpha op(a) op(b) + beta c, tile by tile.
  template <class A>
  GYR_DEVICE void gemm(MatrixOp op_a, const Matrix<A>& a, MatrixOp op_b, const Matrix<A>& b, const Matrix<A>& c, double alpha, double beta) const {
    const bool a_across = op_a == MatrixOp::transpose, b_across = op_b == MatrixOp::none;
    const Index inner = a_across ? a.rows : a.columns;
    for (Index row = 0; row < c.rows; row += tile)
      for (Index column = 0; column < c.columns; column += tile) {
        A sum[part][part] = {};
        for (Index first = 0; first < inner; first += depth) {
          load(a, a_across, row, c.rows, first, inner, 0);
          load(b, b_across, column, c.columns, first, inner, operand_elements);
          sync_block();
          add_products(sum);
          sync_block();
        }
        store(sum, c, row, column, A(alpha), A(beta));
      }
    sync_block();
  }

 private:
  // Tile of an operand with elements (i, k): across: k is its row. Adjacent threads load adjacent elements.
  template <class A>
  static GYR_DEVICE void load(const Matrix<A>& x, bool across, Index begin, Index end, Index first, Index inner, int at) {
    const Shared<A> operands;
    for (int n = thread_index(); n < tile * depth; n += threads) {
      const int i = across ? n % tile : n / depth, k = across ? n / tile : n % depth;
      const bool inside = begin + i < end && first + k < inner;
      operands.store(at + k * operand_stride + i, !inside ? A(0) : across ? x(first + k, begin + i) : x(begin + i, first + k));
    }
  }
  template <class A>
  static GYR_DEVICE void add_products(A (&sum)[part][part]) {
    const Shared<A> operands;
    const int x = thread_index() % side, y = thread_index() / side;
    for (int k = 0; k < depth; ++k) {
      A left[part], right[part];
      GYR_UNROLL
      for (int i = 0; i < part; ++i) {
        left[i] = operands.load(k * operand_stride + y + side * i);
        right[i] = operands.load(operand_elements + k * operand_stride + x + side * i);
      }
      GYR_UNROLL
      for (int i = 0; i < part; ++i) {
        GYR_UNROLL
        for (int j = 0; j < part; ++j) sum[i][j] += left[i] * right[j];
      }
    }
  }
  template <class A>
  static GYR_DEVICE void store(const A (&sum)[part][part], const Matrix<A>& c, Index row, Index column, A alpha, A beta) {
    const int x = thread_index() % side, y = thread_index() / side;
    GYR_UNROLL
    for (int i = 0; i < part; ++i) {
      GYR_UNROLL
      for (int j = 0; j < part; ++j) {
        const Index r = row + y + side * i, k = column + x + side * j;
        if (r < c.rows && k < c.columns) c(r, k) = alpha * sum[i][j] + (beta == A(0) ? A(0) : beta * c(r, k));
      }
    }
  }
};

template <class T>
GYR_DEVICE Matrix<T> on_device(const Matrix<T>& x) {
  return {resolved(x.data), x.rows, x.columns, x.stride};
}

// The task with the addresses at which a kernel finds its tensors. The emulation keeps device memory apart.
template <class T>
GYR_DEVICE delta::Task<T> on_device(delta::Task<T> t) {
  t.q = on_device(t.q), t.k = on_device(t.k), t.v = on_device(t.v), t.b = on_device(t.b), t.a = on_device(t.a);
  t.dq = on_device(t.dq), t.dk = on_device(t.dk), t.dv = on_device(t.dv), t.db = on_device(t.db), t.da = on_device(t.da);
  t.dt_bias = resolved(t.dt_bias), t.a_log = resolved(t.a_log), t.positions = resolved(t.positions);
  t.initial = resolved(t.initial), t.y = resolved(t.y), t.states = resolved(t.states), t.last = resolved(t.last), t.dy = resolved(t.dy);
  t.dstate = resolved(t.dstate), t.partial = resolved(t.partial), t.d_dt_bias = resolved(t.d_dt_bias), t.d_a_log = resolved(t.d_a_log);
  return t;
}

template <class T>
GYR_KERNEL_OF(threads, 1)
gated_delta_kernel(delta::Task<T> t, Matrix<Acc<T>> memory, Matrix<double> wide) {
  const Index b = block_index() / t.s.num_groups, g = block_index() % t.s.num_groups;
  delta::group_forward(BlockTeam(), on_device(t), b, g, on_device(memory).row(block_index()), on_device(wide).row(block_index()));
}

template <class T>
GYR_KERNEL_OF(threads, 1)
gated_delta_backward_kernel(delta::Task<T> t, Matrix<Acc<T>> memory, Matrix<double> wide) {
  const Index b = block_index() / t.s.num_groups, g = block_index() % t.s.num_groups;
  delta::group_backward(BlockTeam(), on_device(t), b, g, on_device(memory).row(block_index()), on_device(wide).row(block_index()));
}

template <class T>
GYR_KERNEL weight_gradients_kernel(delta::Task<T> t) {
  const delta::Task<T> here = on_device(t);
  for (Index h = thread_index(); h < t.s.num_heads; h += block_threads()) delta::add_weight_gradients(here, h);
}

template <class A>
Grid grid_of_groups(const DeltaShape& s) {
  return {s.batch * s.num_groups, threads, 2 * operand_elements * int(sizeof(A))};
}

// Bytes of inputs, outputs and states.
template <class T>
double bytes_of(const DeltaShape& s, double passes) {
  const double tokens = double(s.rows()) * double(2 * s.num_groups * s.key_dim + 2 * s.num_heads * s.value_dim) * sizeof(T);
  return passes * (tokens + double(s.batch) * double(s.chunks()) * double(s.state_elements()) * sizeof(Acc<T>));
}

}  // namespace

template <class T>
void gated_delta(Device& dev, const delta::Task<T>& t) {
  const delta::GroupScratch<Acc<T>> scratch(dev.scratch, t.s, false);
  const auto run = dev.launch("gated_delta", delta::flops_of(t.s, false), bytes_of<T>(t.s, 1));
  if (!run) return;
  launch(dev, "gated_delta", grid_of_groups<Acc<T>>(t.s), gated_delta_kernel<T>, t, Matrix<Acc<T>>(scratch.memory), Matrix<double>(scratch.wide));
}

template <class T>
void gated_delta_backward(Device& dev, const delta::Task<T>& t) {
  const delta::GroupScratch<Acc<T>> scratch(dev.scratch, t.s, true);
  const auto run = dev.launch("gated_delta_backward", delta::flops_of(t.s, true), bytes_of<T>(t.s, 2));
  if (!run) return;
  launch(dev, "gated_delta_backward", grid_of_groups<Acc<T>>(t.s), gated_delta_backward_kernel<T>, t, Matrix<Acc<T>>(scratch.memory),
         Matrix<double>(scratch.wide));
  if (t.has_inputs) launch(dev, "gated_delta_backward", {1, threads}, weight_gradients_kernel<T>, t);
}

GYR_SCALARS(GYR_GATED_DELTA)

}  // namespace gyr::backend
