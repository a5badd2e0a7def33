// SPDX-License-Identifier: BSD-3-Clause
// GEMM on the host, with CBLAS or oneDNN.
#include "kernels/ops/gemm.hpp"

#include <cblas.h>

#include <algorithm>

#include "kernels/base/given_threads.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/few_rows.hpp"
#include "kernels/kokkos/onednn.hpp"
#include "kernels/kokkos/threads.hpp"
#include "kernels/ops/int8_matrix.hpp"

namespace gyr {

namespace {

CBLAS_TRANSPOSE cblas(MatrixOp op) { return op == MatrixOp::none ? CblasNoTrans : CblasTrans; }

void blas_gemm(MatrixOp op_a, Matrix<const float> a, MatrixOp op_b, Matrix<const float> b, Matrix<float> c, GemmExtents e, double alpha,
               double beta) {
  cblas_sgemm(CblasRowMajor, cblas(op_a), cblas(op_b), e.m, e.n, e.k, float(alpha), a.data, a.stride, b.data, b.stride, float(beta), c.data,
              c.stride);
}
void blas_gemm(MatrixOp op_a, Matrix<const double> a, MatrixOp op_b, Matrix<const double> b, Matrix<double> c, GemmExtents e, double alpha,
               double beta) {
  cblas_dgemm(CblasRowMajor, cblas(op_a), cblas(op_b), e.m, e.n, e.k, alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
}

// GEMV: y = alpha op(B)' x + beta y
void blas_gemv(Matrix<const float> b, MatrixOp op, const float* x, Index step, float* y, double alpha, double beta) {
  cblas_sgemv(CblasRowMajor, cblas(op), b.rows, b.columns, float(alpha), b.data, b.stride, x, step, float(beta), y, 1);
}
void blas_gemv(Matrix<const double> b, MatrixOp op, const double* x, Index step, double* y, double alpha, double beta) {
  cblas_dgemv(CblasRowMajor, cblas(op), b.rows, b.columns, alpha, b.data, b.stride, x, step, beta, y, 1);
}

// With a single row, as in generation, reading B takes all the time. The library's GEMM would copy B first, so GEMV is
// called.
template <class A>
void gemm_or_gemv(MatrixOp op_a, Matrix<const A> a, MatrixOp op_b, Matrix<const A> b, Matrix<A> c, GemmExtents e, double alpha, double beta) {
  if (e.m != 1) return blas_gemm(op_a, a, op_b, b, c, e, alpha, beta);
  if (beta == 0) std::fill_n(c.data, e.n, A(0));  // some libraries read C even if beta is 0
  blas_gemv(b, op_b == MatrixOp::none ? MatrixOp::transpose : MatrixOp::none, a.data, op_a == MatrixOp::none ? 1 : a.stride, c.data, alpha, beta);
}

// Partition of C into parts for threads. It depends on the extents only, so that results do not depend on the number of
// threads. The library copies the operands of every part, so parts are square and no smaller than necessary.
struct ThreadGrid {
  Index rows, columns;
  explicit ThreadGrid(const GemmExtents& e) : rows(e.m), columns(e.n) {
    constexpr Index least_work = Index(1) << 20, unit = 32, wide = 1024, some = 8, many = 64;
    const auto halved = [](Index edge) { return ceil_div(ceil_div(edge, 2), unit) * unit; };
    for (Index n = 1; rows * columns * e.k >= 2 * least_work && (n < some || (n < many && std::max(rows, columns) > wide)); n = parts(e))
      (rows > columns ? rows : columns) = halved(std::max(rows, columns));
  }
  Index parts(const GemmExtents& e) const { return ceil_div(e.m, rows) * ceil_div(e.n, columns); }
};

// If kernels are threaded, each thread computes parts of C and calls the library, which uses only that thread.
template <class A>
void matmul(Device& dev, MatrixOp op_a, Matrix<const A> a, MatrixOp op_b, Matrix<const A> b, Matrix<A> c, GemmExtents e, double alpha, double beta) {
  if (!threaded || dev.is_lane) return gemm_or_gemv<A>(op_a, a, op_b, b, c, e, alpha, beta);
  const ThreadGrid thread_grid(e);
  const Index across = ceil_div(e.n, thread_grid.columns);
  for_rows(dev, "product", thread_grid.parts(e), [=](const Index i) {
    const Index row = i / across * thread_grid.rows, column = i % across * thread_grid.columns;
    const Index height = std::min(thread_grid.rows, e.m - row), width = std::min(thread_grid.columns, e.n - column);
    const auto a_part = op_a == MatrixOp::none ? a.block(row, height, 0, a.columns) : a.block(0, a.rows, row, height);
    const auto b_part = op_b == MatrixOp::none ? b.block(0, b.rows, column, width) : b.block(column, width, 0, b.columns);
    gemm_or_gemv<A>(op_a, a_part, op_b, b_part, c.block(row, height, column, width), {height, width, e.k}, alpha, beta);
  });
}

// If the processor has no bf16 instructions, bf16 is only a storage type. Operands are converted to fp32 once, the GEMM
// runs in fp32, and the result is rounded once.
Matrix<const float> widened(Device& dev, Matrix<const bf16> x) {
  auto wide = dev.scratch.tensor<float>(x.rows, x.columns);
  if (!dev.dry_run())
    for_rows(
        dev, "widened", x.rows, KOKKOS_LAMBDA(const Index r) {
          for (Index c = 0; c < x.columns; ++c) wide(r, c) = float(x(r, c));
        });
  return Matrix<float>(wide);
}

// True if oneDNN computes the GEMM. Unless a library is requested, this depends on the processor and the extents only,
// so that all runs on the same processor give the same bits. If oneDNN multiplies bf16, its fp32 GEMMs are also the
// faster ones, except for small ones.
bool by_onednn(GemmLibrary library, DType type, const GemmExtents& e) {
  constexpr Index small = Index(1) << 20;
  if (!has_onednn() || e.m == 0 || e.n == 0 || e.k == 0 || type == DType::f64) return false;
  if (library != GemmLibrary::automatic) return library == GemmLibrary::onednn;
  return multiplies_bf16() && (type == DType::bf16 || (e.m > 1 && e.m * e.n * e.k >= small));
}

template <class S>
void widened_gemm(Device& dev, MatrixOp op_a, Matrix<const bf16> a, MatrixOp op_b, Matrix<const bf16> b, Matrix<S> c, GemmExtents e, double alpha,
                  double beta) {
  const auto wide_a = widened(dev, a), wide_b = widened(dev, b);
  if constexpr (std::is_same_v<S, float>) {
    if (!dev.dry_run()) matmul<float>(dev, op_a, wide_a, op_b, wide_b, c, e, alpha, beta);
  } else {
    auto wide_c = dev.scratch.tensor<float>(c.rows, c.columns);
    if (dev.dry_run()) return;
    matmul<float>(dev, op_a, wide_a, op_b, wide_b, Matrix<float>(wide_c), e, alpha, 0);
    for_rows(
        dev, "narrowed", c.rows, KOKKOS_LAMBDA(const Index r) {
          for (Index n = 0; n < c.columns; ++n) c(r, n) = bf16(wide_c(r, n) + (beta == 0 ? 0.0f : float(beta) * float(c(r, n))));
        });
  }
}

}  // namespace

template <class T, class S>
void backend::gemm(Device& dev, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, const GemmExtents& e, double alpha,
                   double beta) {
  if constexpr (!std::is_same_v<T, double>)
    if (by_onednn(dev.library, dtype_of<T>(), e)) return onednn_gemm<T, S>(dev, op_a, a, op_b, b, c, alpha, beta);
  if constexpr (std::is_same_v<T, bf16>) widened_gemm<S>(dev, op_a, a, op_b, b, c, e, alpha, beta);
  else if (!dev.dry_run()) matmul<T>(dev, op_a, a, op_b, b, c, e, alpha, beta);
}

template <class T, class S>
void backend::few_rows_gemm(Device& dev, Matrix<const T> x, Matrix<const T> w, Matrix<S> y, double alpha, double beta) {
  few_rows_gemm_of(dev, x, few::Stored<T>(w), y, alpha, beta);
}

bool available(GemmLibrary library) { return library != GemmLibrary::onednn || has_onednn(); }
std::vector<NamedLibrary> gemm_libraries() {
  std::vector<NamedLibrary> libraries = {{GemmLibrary::cblas, "cblas"}};
  if (has_onednn()) libraries.push_back({GemmLibrary::onednn, "onednn"});
  return libraries;
}

GemmLibrary library_of(const Device& dev, const GemmShape& s) {
  return by_onednn(dev.library, s.in, {s.m, s.n, s.k}) ? GemmLibrary::onednn : GemmLibrary::cblas;
}

std::string blas_version() {
#ifdef OPENBLAS_VERSION
  const std::string blas = openblas_get_config();
#else
  const std::string blas = "CBLAS";
#endif
  return onednn_version().empty() ? blas : blas + "; " + onednn_version();
}

void set_blas_threads(int threads) {
  threads = given_threads("OPENBLAS_NUM_THREADS", given_threads("OMP_NUM_THREADS", threads));
  set_onednn_threads(threads);
#ifdef OPENBLAS_VERSION
  openblas_set_num_threads(threaded ? 1 : threads);
#endif
}

int blas_threads() {
#ifdef OPENBLAS_VERSION
  return openblas_get_num_threads();
#else
  return 1;
#endif
}

namespace backend {
GYR_ALL_GEMM(GYR_BACKEND_GEMM)
GYR_FEW_ROWS(float, float)
GYR_FEW_ROWS(bf16, bf16)
GYR_FEW_ROWS(bf16, float)
}  // namespace backend

}  // namespace gyr
