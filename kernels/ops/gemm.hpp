// SPDX-License-Identifier: BSD-3-Clause
// Matrix products, by libraries (CBLAS and oneDNN on hosts, cuBLASLt on GPUs). Products of T are accumulated in Acc<T> and stored as S.
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
  ensure(k == k_b && m == c.rows && n == c.columns, "gemm of ({},{}) and ({},{}) into ({},{})", m, k, k_b, n, c.rows, c.columns);
  return {m, n, k};
}

// So many rows of A at most are few.
inline constexpr Index few_rows = 8;

// C (M,N) = alpha op(A) (M,K) op(B) (K,N) + beta C, with S = T or Acc<T>. beta = 0 does not read C.
// Few rows of float or bf16 and B transposed, as in generation, read B once, and no row of C depends on another of A. More go to oneDNN where the
// build has it and the processor multiplies bf16, small float products and double excepted; else T = bf16 widens its operands on the device's
// scratch. Counted under `kernel`: 2 M N K flops.
template <class T, class S = T>
void gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha = 1, double beta = 0,
          const char* kernel = "gemm");

// Whether products can be left to this library in this build.
bool available(GemmLibrary);
// Those that can, and their names; those of hosts are values of train.products.
struct NamedLibrary {
  GemmLibrary library;
  std::string name;
};
std::vector<NamedLibrary> gemm_libraries();
// Who multiplies such a product on a device.
GemmLibrary library_of(const Device&, const GemmShape&);
// The libraries behind gemm and their versions.
std::string blas_version();
// How many threads they may use in this process: what OPENBLAS_NUM_THREADS, or else OMP_NUM_THREADS says, or else so many.
void set_blas_threads(int threads);

// The three products of a linear layer with weight w (N,K): y = x w', dx = dy w, dw = dy' x.
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

}  // namespace gyr
