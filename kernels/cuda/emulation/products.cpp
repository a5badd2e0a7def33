// SPDX-License-Identifier: BSD-3-Clause
// Emulation of cuBLASLt on the emulated device; linked in its place. Matrices are column-major, the library's default.
// Calls are checked against the library's documentation: matching extents, large enough leading dimensions, pointers
// aligned as passed to the heuristic, and a workspace of the size that the algorithm needs. The workspace is filled
// with NaN. Sums use the compute type, in the order of k.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/streams.hpp"

using namespace gyr::cuda;
using gyr::bf16;
using gyr::Index;

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  Index rows, columns, stride;  // stride: elements between columns (leading dimension)
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // minimum alignment of a, b, c and d in bytes
};

namespace {

constexpr std::uint64_t least_workspace_alignment = 16;

using Layout = cublasLtMatrixLayoutOpaque_t;
using Description = cublasLtMatmulDescOpaque_t;

struct Extents {
  Index m, n, k;
  bool fit;
};
Extents extents(const Description& p, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = p.a == CUBLAS_OP_T, tb = p.b == CUBLAS_OP_T;
  const Index m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns, n = tb ? b.rows : b.columns;
  return {m, n, k, (tb ? b.columns : b.rows) == k && d.rows == m && d.columns == n};
}

bool types_fit(const Description& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  if (a.type != b.type || c.type != d.type) return false;
  if (p.compute == CUBLAS_COMPUTE_64F) return p.scale == CUDA_R_64F && a.type == CUDA_R_64F && d.type == CUDA_R_64F;
  if (p.compute != CUBLAS_COMPUTE_32F || p.scale != CUDA_R_32F) return false;
  if (a.type == CUDA_R_32F) return d.type == CUDA_R_32F;
  return a.type == CUDA_R_16BF && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F);
}

bool fits(const Description& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* l : {&a, &b, &c, &d})
    if (l->rows <= 0 || l->columns <= 0 || l->stride < l->rows) return false;
  return extents(p, a, b, d).fit && c.rows == d.rows && c.columns == d.columns && types_fit(p, a, b, c, d);
}

std::size_t bytes_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
bool aligned(const void* p, std::uint64_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

// Records an access of the running task to a matrix, column by column.
void touch(const void* p, const Layout& l, Touch how) {
  const auto stored = bytes_of(l.type);
  for (Index c = 0; c < l.columns; ++c)
    gyr::cuda::touch(static_cast<const char*>(p) + std::size_t(c * l.stride) * stored, std::size_t(l.rows) * stored, how);
}

template <class A>
A number(const char* p, cudaDataType type, Index at) {
  switch (type) {
    case CUDA_R_64F: return A(reinterpret_cast<const double*>(p)[at]);
    case CUDA_R_32F: return A(reinterpret_cast<const float*>(p)[at]);
    default: return A(float(reinterpret_cast<const bf16*>(p)[at]));
  }
}
template <class A>
void put(char* p, cudaDataType type, Index at, A x) {
  switch (type) {
    case CUDA_R_64F: reinterpret_cast<double*>(p)[at] = double(x); return;
    case CUDA_R_32F: reinterpret_cast<float*>(p)[at] = float(x); return;
    default: reinterpret_cast<bf16*>(p)[at] = bf16(float(x));
  }
}

// op(matrix) as a contiguous column-major array.
template <class A>
std::vector<A> operand(const void* p, const Layout& l, cublasOperation_t op) {
  const char* const from = resolved(static_cast<const char*>(p));
  std::vector<A> all;
  all.reserve(std::size_t(l.rows * l.columns));
  const bool transposed = op == CUBLAS_OP_T;
  for (Index c = 0; c < (transposed ? l.rows : l.columns); ++c)
    for (Index r = 0; r < (transposed ? l.columns : l.rows); ++r)
      all.push_back(number<A>(from, l.type, transposed ? c + r * l.stride : r + c * l.stride));
  return all;
}

template <class A>
struct MatmulCall {
  Description p;
  Layout a, b, c, d;
  A alpha, beta;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  std::size_t workspace_bytes;

  void run() const {
    const Extents e = extents(p, a, b, d);
    ::touch(a_data, a, Touch::read), ::touch(b_data, b, Touch::read);
    if (beta != A(0)) ::touch(c_data, c, Touch::read);
    ::touch(d_data, d, Touch::write);
    if (workspace_bytes > 0) {
      gyr::cuda::touch(workspace, workspace_bytes, Touch::write);
      std::memset(resolved(workspace), 0xff, workspace_bytes);
    }
    const std::vector<A> left = operand<A>(a_data, a, p.a), right = operand<A>(b_data, b, p.b);
    std::vector<A> column(static_cast<std::size_t>(e.m));
    for (Index j = 0; j < e.n; ++j) {
      std::fill(column.begin(), column.end(), A(0));
      for (Index k = 0; k < e.k; ++k)
        for (Index i = 0; i < e.m; ++i) column[std::size_t(i)] += left[std::size_t(k * e.m + i)] * right[std::size_t(j * e.k + k)];
      for (Index i = 0; i < e.m; ++i) {
        const A before = beta != A(0) ? beta * number<A>(resolved(static_cast<const char*>(c_data)), c.type, i + j * c.stride) : A(0);
        put<A>(resolved(static_cast<char*>(d_data)), d.type, i + j * d.stride, alpha * column[std::size_t(i)] + before);
      }
    }
  }
};

template <class V>
cublasStatus_t take(V& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS error"; }
size_t cublasLtGetVersion() { return 0; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
  *d = new Description{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(d->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(d->b, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride) {
  *l = new Layout{type, Index(rows), Index(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return take(p->workspace, value, bytes);
  return take(p->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}

// The returned algorithm stores the alignments and the workspace size that it requires.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t p, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  if (wanted < 1 || !fits(*p, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  cublasLtMatmulHeuristicResult_t& r = results[0];
  r = {};
  for (int i = 0; i < 4; ++i) r.algo.data[i] = preference->alignment[i];
  r.workspaceSize = r.algo.data[4] = preference->workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

template <class A>
static cublasStatus_t issued(const MatmulCall<A>& call, cudaStream_t stream) {
  enqueue(stream, "cublasLtMatmul", [call] { call.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t p, const void* alpha, const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c, cublasLtMatrixLayout_t lc, void* d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (!fits(*p, *la, *lb, *lc, *ld) || !algo) return CUBLAS_STATUS_INVALID_VALUE;
  const void* const data[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!aligned(data[i], algo->data[i])) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes < algo->data[4] || !aligned(workspace, least_workspace_alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  if (p->compute == CUBLAS_COMPUTE_64F)
    return issued(MatmulCall<double>{*p, *la, *lb, *lc, *ld, *static_cast<const double*>(alpha), *static_cast<const double*>(beta), a, b, c, d,
                                     workspace, algo->data[4]},
                  stream);
  return issued(MatmulCall<float>{*p, *la, *lb, *lc, *ld, *static_cast<const float*>(alpha), *static_cast<const float*>(beta), a, b, c, d, workspace,
                                  algo->data[4]},
                stream);
}
