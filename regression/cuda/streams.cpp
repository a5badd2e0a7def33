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
struct Numbers {
  Arena arena{Memory::activations, 1 << 16};
  Tensor1<float> a = arena.tensor<float>(64), b = arena.tensor<float>(64), c = arena.tensor<float>(64);
  Numbers() {
    const std::vector<float> zeros(64, 0.0f);
    for (const auto& x : {a, b, c}) copy_to_device(zeros.data(), x);
  }
};

enum class Forgotten { nothing, that_it_is_written, that_it_is_read };

// b = a + 1 on the first stream; c = b + 10 on the second stream, which waits for it; then b = a + 100 on the first
// stream, which waits for the second.
float told(Forgotten forgotten) {
  Numbers n;
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
    told(forgotten);
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
    EXPECT_EQ(told(Forgotten::nothing), 11);
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
  EXPECT_EQ(told(Forgotten::that_it_is_read), 110);
}

// The default stream, on which host and device exchange data, synchronises with all other streams.
TEST(streams, host_copies_are_ordered_with_streams) {
  for (const When when : {When::early, When::late, When::any}) {
    const With with(when, true);
    Numbers n;
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
  if (!Machine::instance().apart) GTEST_SKIP() << "needs GYR_EMULATION=apart";
  Numbers n;
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

cublasStatus_t answer(const Asked& x) {
  Arena arena(Memory::scratch, 1 << 16);
  Device dev(false, 1 << 12);
  const auto a = arena.tensor<float>(64), b = arena.tensor<float>(64), c = arena.tensor<float>(64), room = arena.tensor<float>(64);
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t la, lb, lc;
  cublasLtMatmulPreference_t preference;
  cublasLtCreate(&library), cublasLtMatmulDescCreate(&product, x.compute, CUDA_R_32F);
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
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library, product, la, lb, lc, lc, preference, 1, &best, &found);
  const float one = 1, zero = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmul(library, product, &one, a.data() + x.off, la, b.data(), lb, &zero, c.data(), lc, c.data(), lc, &best.algo, room.data(),
                            std::size_t(x.workspace), stream_of(dev));
  dev.fence();
  cublasLtMatmulPreferenceDestroy(preference), cublasLtMatrixLayoutDestroy(la), cublasLtMatrixLayoutDestroy(lb), cublasLtMatrixLayoutDestroy(lc);
  cublasLtMatmulDescDestroy(product), cublasLtDestroy(library);
  return status;
}

}  // namespace

TEST(streams, cublaslt_emulation_rejects_invalid_arguments) {
  EXPECT_EQ(answer({}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(answer({.ld_a = 4}), CUBLAS_STATUS_INVALID_VALUE);  // a leading dimension below m: columns would overlap
  EXPECT_EQ(answer({.off = 1}), CUBLAS_STATUS_INVALID_VALUE);   // A is less aligned than passed to the heuristic
  EXPECT_EQ(answer({.alignment = 4, .off = 1}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(answer({.workspace = 128}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(answer({.compute = CUBLAS_COMPUTE_64F}), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace gyr::testing::streams_suite
