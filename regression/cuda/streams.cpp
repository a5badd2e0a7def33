// SPDX-License-Identifier: BSD-3-Clause
// Tests of the emulated streams: work on several streams runs in launch order whether tasks begin early, late or at
// random, and missing waits are found.
#include "kernels/cuda/emulation/streams.hpp"

#include <cublasLt.h>

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::streams_suite {

using namespace gyr::cuda;

namespace {

class With {
 public:
  With(When when, bool checked) : before_(Machine::instance()) { Machine::instance().when = when, Machine::instance().checked = checked; }
  ~With() { Machine::instance() = before_; }

 private:
  Machine before_;
};

GYR_KERNEL add_kernel(float v, Global<const float> x, Global<float> y) {
  const int t = thread_index();
  if (t < x.columns()) y.store(t, x.load(t) + v);
}

// Device tensors that a test reads after all work has finished.
struct StepValues {
  Arena arena{Memory::activations, 1 << 16};
  Tensor1<float> a = arena.tensor<float>(64), b = arena.tensor<float>(64), c = arena.tensor<float>(64);
  StepValues() {
    const std::vector<float> zeros(64, 0.0f);
    for (const auto& x : {a, b, c}) copy_to_device(zeros.data(), x);
  }
};

enum class Forgotten { nothing, that_it_is_written, that_it_is_read };

// b = a + 1 on the first stream; c = b + 10 on the second stream, which waits for it; then b = a + 100 on the first
// stream, which waits for the second.
float read_back(Forgotten forgotten) {
  StepValues n;
  Device first(false, 1 << 12), second(false, 1 << 12);
  cudaEvent_t written, read;
  cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaEventCreateWithFlags(&read, cudaEventDisableTiming);
  launch(first, "writes", {1, 64}, add_kernel, 1.0f, n.a, n.b);
  cudaEventRecord(written, stream_of(first));
  if (forgotten != Forgotten::that_it_is_written) cudaStreamWaitEvent(stream_of(second), written, 0);
  launch(second, "reads", {1, 64}, add_kernel, 10.0f, n.b, n.c);
  cudaEventRecord(read, stream_of(second));
  if (forgotten != Forgotten::that_it_is_read) cudaStreamWaitEvent(stream_of(first), read, 0);
  launch(first, "writes again", {1, 64}, add_kernel, 100.0f, n.a, n.b);
  first.fence(), second.fence();
  cudaEventDestroy(written), cudaEventDestroy(read);
  std::vector<float> c(64);
  copy_to_host(n.c, c.data());
  return c[63];
}

std::string complaint(Forgotten forgotten) {
  try {
    read_back(forgotten);
  } catch (const Violation& v) {
    cudaDeviceSynchronize();
    return v.what();
  }
  return "";
}

}  // namespace

TEST(streams, streams_wait_for_events_under_any_schedule) {
  for (const When when : {When::early, When::late, When::any}) {
    const With with(when, true);
    EXPECT_EQ(complaint(Forgotten::nothing), "");
    EXPECT_EQ(read_back(Forgotten::nothing), 11);
  }
}

TEST(streams, missing_stream_wait_is_reported) {
  for (const When when : {When::early, When::late, When::any}) {
    const With with(when, true);
    for (const Forgotten f : {Forgotten::that_it_is_written, Forgotten::that_it_is_read})
      EXPECT_NE(complaint(f).find("without synchronisation"), std::string::npos) << complaint(f);
  }
}

// An unchecked machine shows the mistake as well, by wrong values.
TEST(streams, missing_stream_wait_gives_wrong_values_unchecked) {
  const With with(When::late, false);
  EXPECT_EQ(read_back(Forgotten::that_it_is_read), 110);
}

// The default stream, on which host and device exchange data, synchronises with all other streams.
TEST(streams, host_copies_are_ordered_with_streams) {
  for (const When when : {When::early, When::late, When::any}) {
    const With with(when, true);
    StepValues n;
    Device dev(false, 1 << 12);
    launch(dev, "add", {1, 64}, add_kernel, 1.0f, n.a, n.b);
    std::vector<float> host(64);
    copy_to_host(n.b, host.data());
    EXPECT_EQ(host[5], 1);
    host.assign(64, 7);
    copy_to_device(host.data(), n.a);
    launch(dev, "add", {1, 64}, add_kernel, 1.0f, n.a, n.b);
    copy_to_host(n.b, host.data());
    EXPECT_EQ(host[5], 8);
  }
}

// Requires a process that was started with GYR_EMULATION=apart.
TEST(streams, device_memory_is_inaccessible_from_host) {
  if (!Machine::instance().separate) GTEST_SKIP() << "needs GYR_EMULATION=apart";
  StepValues n;
  EXPECT_DEATH({ std::fprintf(stderr, "%f", double(n.a(0))); }, "");
  float here = 0;
  Device dev(false, 1 << 12);
  EXPECT_THROW(launch(dev, "reads the host's", {1, 64}, add_kernel, 1.0f, Tensor1<float>(&here, 1), n.b), Violation);
}

namespace {

// Arguments of a column-major GEMM C (m,n) = A (m,k) B (k,n) by cuBLASLt.
struct Asked {
  Index m = 5, n = 7, k = 3, ld_a = 5;
  std::uint32_t alignment = 16;  // alignment passed to the heuristic
  Index off = 0;                 // offset of A in elements
  Index workspace_known = 256, workspace = 256;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

cublasStatus_t status_of(const Asked& x) {
  Arena arena(Memory::scratch, 1 << 16);
  Device dev(false, 1 << 12);
  const auto a = arena.tensor<float>(64), b = arena.tensor<float>(64), c = arena.tensor<float>(64), scratch_tensor = arena.tensor<float>(64);
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t gemm;
  cublasLtMatrixLayout_t la, lb, lc;
  cublasLtMatmulPreference_t preference;
  cublasLtCreate(&library), cublasLtMatmulDescCreate(&gemm, x.compute, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, std::uint64_t(x.m), std::uint64_t(x.k), x.ld_a);
  cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, std::uint64_t(x.k), std::uint64_t(x.n), x.k);
  cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, std::uint64_t(x.m), std::uint64_t(x.n), x.m);
  cublasLtMatmulPreferenceCreate(&preference);
  const std::uint64_t workspace = std::uint64_t(x.workspace_known);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, which, &x.alignment, sizeof x.alignment);
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library, gemm, la, lb, lc, lc, preference, 1, &best, &found);
  const float one = 1, zero = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmul(library, gemm, &one, a.data() + x.off, la, b.data(), lb, &zero, c.data(), lc, c.data(), lc, &best.algo,
                            scratch_tensor.data(), std::size_t(x.workspace), stream_of(dev));
  dev.fence();
  cublasLtMatmulPreferenceDestroy(preference), cublasLtMatrixLayoutDestroy(la), cublasLtMatrixLayoutDestroy(lb), cublasLtMatrixLayoutDestroy(lc);
  cublasLtMatmulDescDestroy(gemm), cublasLtDestroy(library);
  return status;
}

}  // namespace

TEST(streams, cublaslt_emulation_rejects_invalid_arguments) {
  EXPECT_EQ(status_of({}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status_of({.ld_a = 4}), CUBLAS_STATUS_INVALID_VALUE);  // a leading dimension below m: columns would overlap
  EXPECT_EQ(status_of({.off = 1}), CUBLAS_STATUS_INVALID_VALUE);   // A is less aligned than passed to the heuristic
  EXPECT_EQ(status_of({.alignment = 4, .off = 1}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status_of({.workspace = 128}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status_of({.compute = CUBLAS_COMPUTE_64F}), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace gyr::testing::streams_suite
