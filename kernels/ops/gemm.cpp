// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/gemm.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/gpu_plan.hpp"
#include "kernels/ops/int8_matrix.hpp"

namespace gyr {

namespace {

// Few rows: our own kernel reads B (N,K) once as it is stored. A library would first copy B, or compute a full tile of
// rows.
template <class T>
bool is_few_rows(MatrixOp op_a, MatrixOp op_b, const GemmExtents& e) {
  return !std::is_same_v<T, double> && e.m <= few_rows && op_a == MatrixOp::none && op_b == MatrixOp::transpose;
}

}  // namespace

template <class T, class S>
void gemm(Device& dev, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha, double beta,
          const char* kernel) {
  const GemmExtents e = extents_of(op_a, a, op_b, b, c);
  const double bytes = double(sizeof(T)) * (a.rows * a.columns + b.rows * b.columns) + double(sizeof(S)) * c.rows * c.columns;
  const auto run = dev.launch(kernel, 2.0 * e.m * e.n * e.k, bytes);
  if (dev.dry_run() && !dev.plans_foreign_gpu())
    dev.gemm_counts[{kernel, op_a == MatrixOp::transpose, op_b == MatrixOp::transpose, beta != 0, e.m, e.n, e.k, a.stride, b.stride, c.stride,
                     dtype_of<T>(), dtype_of<S>()}] += dev.times();
  const Workspace workspace(dev.scratch, kernel);
  if constexpr (!std::is_same_v<T, double>)
    if (is_few_rows<T>(op_a, op_b, e)) {
      if (!dev.plans_foreign_gpu()) backend::few_rows_gemm<T, S>(dev, a, b, c, alpha, beta);
      return;
    }
  if (dev.plans_foreign_gpu()) dev.scratch.push(gpu_gemm_workspace(e, dtype_of<T>()));
  else backend::gemm<T, S>(dev, op_a, a, op_b, b, c, e, alpha, beta);
}

GYR_ALL_GEMM(GYR_GEMM)

}  // namespace gyr
