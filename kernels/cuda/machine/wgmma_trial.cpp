// SPDX-License-Identifier: BSD-3-Clause
// Self-test of the wgmma kernels: runs attention and grouped GEMMs with and without wgmma and compares the results.
#include "kernels/cuda/machine/wgmma_trial.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/runtime.hpp"
#include "kernels/device/random.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/attention.hpp"
#include "kernels/ops/grouped_gemm.hpp"
#include "kernels/ops/host_values.hpp"

namespace gyr::cuda {

namespace {

enum class Standing { untried, with, without, held };

// State of the self-test in this process.
Standing& standing() {
  static Standing standing = Standing::untried;
  return standing;
}

struct Result {
  const char* what;
  std::vector<float> values;
};
using Results = std::vector<Result>;

class Trial {
 public:
  Trial() : dev_(false, scratch_bytes) {}

  // Attention on one sequence with two documents, which cuDNN does not support. Tiles are full and partial, and there
  // are enough of them to reuse every stage in shared memory. Keys are processed in two blocks.
  void attend(Index width, Results& results) {
    constexpr Index tokens = 392, heads = 2, first_document = 50, first_keys = 200;
    const Workspace workspace(dev_.scratch, "trial");
    std::vector<std::int32_t> positions;
    for (Index t = 0; t < tokens; ++t) positions.push_back(std::int32_t(t < first_document ? t : t - first_document));
    AttentionShape shape{1, tokens, tokens, heads, 1, width, width}, block = shape;
    const Mask mask{.documents = {copied(positions), positions}};
    Mask of_block = mask;
    const ScoreRule rule(1 / std::sqrt(double(width)));
    const auto q = drawn<bf16>(tokens, heads * width), dout = drawn<bf16>(tokens, heads * width);
    const auto k = drawn<bf16>(tokens, width), v = drawn<bf16>(tokens, width);
    const AttentionState<float> state{zeros<float>(tokens, heads * width), zeros<float>(tokens, heads), zeros<float>(tokens, heads)};
    const auto out = zeros<bf16>(tokens, heads * width);
    const auto lse = zeros<float>(tokens, heads), delta = zeros<float>(tokens, heads);
    const auto dq = zeros<float>(tokens, heads * width), dk = zeros<float>(tokens, width), dv = zeros<float>(tokens, width);
    block.keys = first_keys;
    attention<bf16>(dev_, block, of_block, rule, q, rows(k, 0, first_keys), rows(v, 0, first_keys), Carry::fresh, state);
    block.keys = tokens - first_keys, of_block.first_key = first_keys;
    attention<bf16>(dev_, block, of_block, rule, q, rows(k, first_keys, block.keys), rows(v, first_keys, block.keys), Carry::continued, state);
    attention_finish<bf16>(dev_, shape, state, out, lse);
    attention_delta<bf16>(dev_, shape, dout, out, delta);
    attention_backward<bf16>(dev_, shape, mask, rule, q, k, v, dout, lse, delta, dq, dk, dv);
    add("attention", out, results), add("attention log-sum-exp", lse, results);
    add("attention gradient of queries", dq, results), add("attention gradient of keys", dk, results);
    add("attention gradient of values", dv, results);
  }

  void multiply_by_experts(Results& results) {
    const std::vector<std::int32_t> counts{300, 5, 45};
    constexpr Index rows = 350, inputs = 328, outputs = 264, even = 64;
    const Workspace workspace(dev_.scratch, "trial");
    const RowGroups groups{copied(counts), even, rows};
    const auto x = drawn<bf16>(rows, inputs), dy = drawn<bf16>(rows, outputs);
    GroupMatrices<const bf16> w{{}, outputs, inputs};
    GroupMatrices<float> dw{{}, outputs, inputs};
    const auto gradients = zeros<float>(Index(counts.size()) * outputs, inputs);
    for (Index g = 0; g < Index(counts.size()); ++g) {
      w.data.push_back(drawn<bf16>(outputs, inputs).data());
      dw.data.push_back(gyr::rows(gradients, g * outputs, outputs).data());
    }
    const auto y = zeros<bf16>(rows, outputs), dx = zeros<bf16>(rows, inputs);
    grouped_linear<bf16>(dev_, groups, x, w, y);
    grouped_linear_backward_input<bf16>(dev_, groups, dy, w, dx);
    grouped_linear_backward_weight<bf16>(dev_, groups, Matrix<const bf16>(dy), x, dw);
    add("grouped GEMM of experts", y, results), add("input gradient of the experts' grouped GEMM", dx, results),
        add("weight gradient of the experts' grouped GEMM", gradients, results);
  }

 private:
  static constexpr Index scratch_bytes = 8 << 20;

  Tensor1<const std::int32_t> copied(const std::vector<std::int32_t>& values) {
    const auto x = dev_.scratch.tensor<std::int32_t>(Index(values.size()));
    copy_to_device(values.data(), x);
    return x;
  }

  template <class T>
  Tensor2<T> zeros(Index rows, Index columns) {
    const auto x = dev_.scratch.tensor<T>(rows, columns);
    fill(dev_, flat(x), 0);
    return x;
  }
  template <class T>
  Tensor2<T> drawn(Index rows, Index columns) {
    const auto x = dev_.scratch.tensor<T>(rows, columns);
    HostValues<T> values(flat(x));
    for (Index i = 0; i < Index(x.span()); ++i) values(i) = T(float(random_.normal(drawn_++)));
    values.put();
    return x;
  }
  template <class T>
  void add(const char* what, const Tensor2<T>& x, Results& results) {
    HostValues<T> values(flat(x));
    dev_.fence();
    values.take();
    Result& result = results.emplace_back(Result{what, {}});
    for (Index i = 0; i < Index(x.span()); ++i) result.values.push_back(float(values(i)));
  }

  Device dev_;
  gyr::Stream random_{1, "trial"};
  Index drawn_ = 0;
};

Results results_of(Standing way) {
  standing() = way;
  Results results;
  Trial trial;
  for (const Index width : {40, 128}) trial.attend(width, results);
  trial.multiply_by_experts(results);
  return results;
}

// Largest absolute difference relative to the largest magnitude in b. It is infinite if any value is not finite.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(double(a[i]) - double(b[i]))), largest = std::max(largest, std::abs(double(b[i])));
  }
  return most / largest;
}

constexpr const char* advice = "set GYR_CUDA_WARPGROUPS=off to run without wgmma";

Results results_with(const std::string& gpu) {
  try {
    return results_of(Standing::with);
  } catch (const Error& e) {
    fail(e.code, "{}, in the self-test of the wgmma kernels on {}; {}", e.what(), gpu, advice);
  }
}

void try_out() {
  constexpr double rounding = 0.02;       // tolerance of bf16 results, whose rounding depends on tile sizes
  const std::string gpu = device_text();  // queried now, because CUDA calls fail after a kernel has failed
  const Results with = results_with(gpu), without = results_of(Standing::without);
  for (std::size_t i = 0; i < with.size(); ++i) {
    const double d = difference(with[i].values, without[i].values);
    require(d <= rounding, Exit::device,
            "wgmma kernels compute wrong results on this GPU ({}): {} differs from the result without wgmma by {:.2g} of the largest value; {}", gpu,
            with[i].what, d, advice);
  }
}

}  // namespace

bool wgmma_passes_self_test() {
  if (standing() != Standing::untried) return standing() != Standing::without;
  try {
    if (environment_allows("GYR_CUDA_TRIAL")) try_out();
  } catch (...) {
    standing() = Standing::untried;  // a later call repeats the test and fails again
    throw;
  }
  standing() = Standing::held;
  return true;
}

}  // namespace gyr::cuda
