// SPDX-License-Identifier: BSD-3-Clause
// GEMMs, computed by libraries (CBLAS and oneDNN on hosts, cuBLASLt on GPUs). Operands of type T are accumulated in
// Acc<T> and stored as S.
//   M, N, K extents of C = alpha op(A) op(B) + beta C
#pragma once

#include <string>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

enum class MatrixOp { none, transpose };

struct GemmExtents {
  Index m, n, k;
};
template <class T, class S>
GemmExtents extents_of(MatrixOp op_a, const Matrix<const T>& a, MatrixOp op_b, const Matrix<const T>& b, const Matrix<S>& c) {
  const Index m = op_a == MatrixOp::none ? a.rows : a.columns, k = op_a == MatrixOp::none ? a.columns : a.rows;
  const Index n = op_b == MatrixOp::none ? b.columns : b.rows, k_b = op_b == MatrixOp::none ? b.rows : b.columns;
  ensure(k == k_b && m == c.rows && n == c.columns, "gemm: op(A) ({},{}), op(B) ({},{}) and C ({},{}) do not fit", m, k, k_b, n, c.rows, c.columns);
  return {m, n, k};
}

// Largest number of rows of A that counts as few.
inline constexpr Index few_rows = 8;

// C (M,N) = alpha op(A) (M,K) op(B) (K,N) + beta C, with S = T or Acc<T>. beta = 0 does not read C.
// Few rows of float or bf16 with B transposed, as in generation, use a kernel that reads B once; a row of C depends only on the same row of A.
// By default, other GEMMs on a host use oneDNN if the build has it and the processor supports bf16 GEMMs, except for
// double and small float GEMMs.
// Otherwise they use CBLAS, and bf16 operands are converted to float in scratch memory. Counted under `kernel`: 2 M N K flops.
template <class T, class S = T>
void gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha = 1, double beta = 0,
          const char* kernel = "gemm");

// True if this build can use the library for GEMMs.
bool available(GemmLibrary);
// Libraries that this build can use, with their names. The names of host libraries are values of train.products.
struct NamedLibrary {
  GemmLibrary library;
  std::string name;
};
std::vector<NamedLibrary> gemm_libraries();
// Library that computes a GEMM of this shape on a device.
GemmLibrary library_of(const Device&, const GemmShape&);
// Names and versions of the GEMM libraries.
std::string blas_version();
// Sets the number of threads of the GEMM libraries in this process: OPENBLAS_NUM_THREADS, else OMP_NUM_THREADS, else
// `threads`. OpenBLAS gets one thread if kernels are threaded.
void set_blas_threads(int threads);

// The three GEMMs of a linear layer with weight w (N,K): y = x w', dx = dy w, dw = dy' x.
template <class T, class S = T>
void linear(Device& dev, Matrix<const T> x /*(R,K)*/, Matrix<const T> w /*(N,K)*/, Matrix<std::type_identity_t<S>> y /*(R,N)*/, double alpha = 1,
            double beta = 0) {
  gemm<T, S>(dev, MatrixOp::none, x, MatrixOp::transpose, w, y, alpha, beta);
}
template <class T, class S = T>
void linear_backward_input(Device& dev, Matrix<const T> dy /*(R,N)*/, Matrix<const T> w /*(N,K)*/, Matrix<std::type_identity_t<S>> dx /*(R,K)*/,
                           double alpha = 1, double beta = 0) {
  gemm<T, S>(dev, MatrixOp::none, dy, MatrixOp::none, w, dx, alpha, beta);
}
template <class T>
void linear_backward_weight(Device& dev, Matrix<const T> dy /*(R,N)*/, Matrix<const T> x /*(R,K)*/, Matrix<Acc<T>> dw /*(N,K) +=*/,
                            double alpha = 1) {
  gemm<T, Acc<T>>(dev, MatrixOp::transpose, dy, MatrixOp::none, x, dw, alpha, 1);
}

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

// gemm and few_rows_gemm are also called in a dry run, where they only allocate scratch.
template <class T, class S>
void gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, const GemmExtents&, double alpha, double beta);
// y = alpha x w' + beta y for at most few_rows rows of x.
template <class T, class S>
void few_rows_gemm(Device&, Matrix<const T> x, Matrix<const T> w, Matrix<S> y, double alpha, double beta);

}  // namespace backend

}  // namespace gyr
