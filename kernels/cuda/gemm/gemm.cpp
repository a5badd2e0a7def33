// SPDX-License-Identifier: BSD-3-Clause
// GEMMs by cuBLASLt. It stores matrices in column-major order, so it sees a row-major matrix as its transpose: C' (N,M)
// = op(B)' op(A)'.
#include "kernels/ops/gemm.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <map>

#include "kernels/base/instances.hpp"
#include "kernels/cuda/gemm/gemm.hpp"
#include "kernels/cuda/machine/runtime.hpp"
#include "kernels/ops/gpu_plan.hpp"

namespace gyr {

namespace {

constexpr std::uint32_t most_alignment = 256;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(Exit::device, "cuBLASLt error ({}): {}", what, cublasLtGetStatusString(status));
}

template <class T>
cudaDataType type_of() {
  return std::is_same_v<T, double> ? CUDA_R_64F : std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
}

// Largest power of two that divides the address, up to the largest alignment that algorithms use.
std::uint32_t alignment_of(const void* p) {
  std::uint32_t bytes = most_alignment;
  while (reinterpret_cast<std::uintptr_t>(p) % bytes != 0) bytes /= 2;
  return bytes;
}

// Key of the cuBLASLt algorithm cache.
struct Choice {
  GemmShape shape;
  std::uint32_t alignment_a, alignment_b, alignment_c;
  Index workspace;
  auto operator<=>(const Choice&) const = default;
};

class Layout {
 public:
  // rows, columns and stride of the row-major matrix; cuBLASLt sees its transpose
  Layout(cudaDataType type, Index rows, Index columns, Index stride) {
    check(cublasLtMatrixLayoutCreate(&layout_, type, std::uint64_t(columns), std::uint64_t(rows), stride), "matrix layout");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Preference {
 public:
  Preference() { check(cublasLtMatmulPreferenceCreate(&preference_), "matmul preference"); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  template <class V>
  void set(cublasLtMatmulPreferenceAttributes_t what, V value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference_, what, &value, sizeof value), "matmul preference");
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// A GEMM of one shape: its cuBLASLt descriptors and the selected algorithm.
class PlannedGemm {
 public:
  template <class T, class S>
  PlannedGemm(cublasLtHandle_t library, MatrixOp op_a, const Matrix<const T>& a, MatrixOp op_b, const Matrix<const T>& b, const Matrix<S>& c,
              const Choice& choice)
      : a_(type_of<T>(), a.rows, a.columns, a.stride), b_(type_of<T>(), b.rows, b.columns, b.stride), c_(type_of<S>(), c.rows, c.columns, c.stride) {
    using A = Acc<T>;
    check(cublasLtMatmulDescCreate(&description_, std::is_same_v<A, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, type_of<A>()),
          "matmul descriptor");
    const auto transpose = [&](cublasLtMatmulDescAttributes_t which, MatrixOp op) {
      const cublasOperation_t how = op == MatrixOp::none ? CUBLAS_OP_N : CUBLAS_OP_T;
      check(cublasLtMatmulDescSetAttribute(description_, which, &how, sizeof how), "transpose attribute");
    };
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    choose(library, choice);
  }
  ~PlannedGemm() { cublasLtMatmulDescDestroy(description_); }
  PlannedGemm(const PlannedGemm&) = delete;

  template <class A>
  void run(cublasLtHandle_t library, A alpha, const void* a, const void* b, A beta, void* c, void* workspace, Index bytes,
           cudaStream_t stream) const {
    check(cublasLtMatmul(library, description_, &alpha, b, b_.get(), a, a_.get(), &beta, c, c_.get(), c, c_.get(), &algorithm_, workspace,
                         std::size_t(bytes), stream),
          "matmul");
  }

 private:
  void choose(cublasLtHandle_t library, const Choice& choice) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(choice.workspace));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, choice.alignment_b);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, choice.alignment_a);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, choice.alignment_c);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, choice.alignment_c);
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(library, description_, b_.get(), a_.get(), c_.get(), c_.get(), preference.get(), 1, &best, &found),
          "algorithm selection");
    const GemmShape& s = choice.shape;
    if (found == 0)
      fail(Exit::device, "cuBLASLt has no algorithm for a {} GEMM with (m, n, k) = ({},{},{}) and row strides {}, {} and {}", name_of(s.in), s.m, s.n,
           s.k, s.stride_a, s.stride_b, s.stride_c);
    algorithm_ = best.algo;
  }

  Layout a_, b_, c_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace

// The cuBLASLt handle, and the GEMMs prepared so far by shape.
class GemmCache {
 public:
  GemmCache() { check(cublasLtCreate(&library_), "initialisation"); }
  ~GemmCache() {
    gemms_.clear();
    cublasLtDestroy(library_);
  }
  cublasLtHandle_t library() const { return library_; }
  template <class Make>
  const PlannedGemm& planned_gemm(const Choice& choice, const Make& make) {
    auto& planned_gemm = gemms_[choice];
    if (!planned_gemm) planned_gemm = make();
    return *planned_gemm;
  }

 private:
  cublasLtHandle_t library_ = nullptr;
  std::map<Choice, std::unique_ptr<const PlannedGemm>> gemms_;
};

template <class T, class S>
void backend::gemm(Device& dev, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, const GemmExtents& e, double alpha,
                   double beta) {
  const Index bytes = gpu_gemm_workspace(e, dtype_of<T>());
  void* const workspace = dev.scratch.push(bytes);
  if (dev.dry_run() || e.m == 0 || e.n == 0) return;
  if (e.k == 0) return cuda::scale<S>(dev, beta, c);
  if (!dev.gemm_cache) dev.gemm_cache = std::make_shared<GemmCache>();
  GemmCache& cache = *dev.gemm_cache;
  const Choice choice{{"", op_a == MatrixOp::transpose, op_b == MatrixOp::transpose, beta != 0, e.m, e.n, e.k, a.stride, b.stride, c.stride,
                       dtype_of<T>(), dtype_of<S>()},
                      alignment_of(a.data),
                      alignment_of(b.data),
                      alignment_of(c.data),
                      bytes};
  const PlannedGemm& planned_gemm =
      cache.planned_gemm(choice, [&] { return std::make_unique<const PlannedGemm>(cache.library(), op_a, a, op_b, b, c, choice); });
  planned_gemm.run(cache.library(), Acc<T>(alpha), a.data, b.data, Acc<T>(beta), c.data, workspace, bytes, cuda::stream_of(dev));
}

bool available(GemmLibrary library) { return library == GemmLibrary::automatic; }
std::vector<NamedLibrary> gemm_libraries() { return {{GemmLibrary::automatic, "cublaslt"}}; }
GemmLibrary library_of(const Device&, const GemmShape&) { return GemmLibrary::automatic; }
std::string blas_version() {
  const std::size_t version = cublasLtGetVersion();
  return version == 0 ? "cuBLASLt, emulated" : fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
void set_blas_threads(int) {}
int blas_threads() { return 1; }

namespace backend {

GYR_ALL_GEMM(GYR_BACKEND_GEMM)
}  // namespace backend

}  // namespace gyr
