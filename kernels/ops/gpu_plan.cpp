// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/gpu_plan.hpp"

#include <algorithm>

#include "kernels/base/scalar.hpp"

namespace gyr {

// On a GPU, each GEMM reads and writes the weight gradient, 8 bytes per element. On an H200 this takes as long as a GEMM
// of about 800 rows. Results have up to 2^28 elements, 1 GiB in float.
Index gemm_row_layout(const Device& dev, Index columns) {
  constexpr Index least = 256, most = 4096, elements = Index(1) << 28;
  if (!dev.gpu) return least;
  return std::clamp(elements / std::max<Index>(1, columns) / least * least, least, most);
}

Index gpu_gemm_workspace(const GemmExtents& e, DType operands) {
  constexpr Index most = Index(32) << 20, copies = 4;  // 32 MiB for split-K, as cuBLAS recommends for Hopper
  return std::min(most, copies * e.m * e.n * size_of(accumulator_of(operands)));
}

namespace {

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

constexpr Index span = 64;  // tokens per tile of the tensor-core kernels (kernels/cuda/ssm/ssd.hpp)

// Allocations of the scan's kernels, by the class of kernels/cuda/ssm/ssd.hpp that makes them.
class ScanScratch {
 public:
  ScanScratch(Arena& scratch, const SsdShape& s, DType operands)
      : scratch_(scratch), s_(s), bf16_(operands == DType::bf16), wide_(size_of(accumulator_of(operands))), q_(std::min(s.chunk_size, s.seq_length)),
        all_(s.batch * s.chunks()), heads_(all_ * s.num_heads), state_(s.num_heads * s.head_dim * s.state_size), tiles_(ceil_div(q_, span)) {}

  void decays() { push(2, heads_ * q_ * wide_); }
  void decay_of_chunks() { push(1, heads_ * wide_); }
  void tensor_cores(bool backward) {
    if (!bf16_ || !fits()) return;
    const Index groups = all_ * s_.num_groups;
    push(1, all_ * state_ * (backward ? 4 : 2));
    push(1, groups * tiles_ * tiles_ * span * span * 4);
    push(3, heads_ * q_ * 4);
    if (backward) push(2, groups * tiles_ * span * tiles_ * span * 2);
  }
  void gradients_of_tokens() {
    const Index parts = ceil_div(s_.state_size, Index(wide_ == 8 ? 32 : 64));
    push(2, heads_ * ceil_div(q_, bf16_ ? span : q_) * q_ * 8);
    push(2, heads_ * parts * q_ * wide_);
    push(2, heads_ * q_ * wide_);
    push(1, heads_ * (bf16_ ? 4 * state_blocks() : 1) * wide_);
    push(1, all_ * 3 * s_.num_heads * wide_);
    tensor_cores(true);
  }
  void gradients_of_states() {
    if (!bf16_ || !walks()) push(1, all_ * state_ * wide_);
  }

 private:
  void push(int count, Index bytes) {
    for (int i = 0; i < count; ++i) scratch_.push(bytes);
  }
  bool fits() const { return s_.head_dim % 8 == 0 && s_.state_size % 8 == 0 && s_.head_dim <= 128 && s_.state_size <= 256 && q_ <= 2048; }
  Index state_blocks() const { return ceil_div(s_.head_dim, Index(64)) * ceil_div(s_.state_size, Index(128)); }
  bool walks() const { return fits() && (s_.batch * s_.num_heads * state_blocks() >= 128 || s_.chunks() <= 4); }

  Arena& scratch_;
  const SsdShape& s_;
  bool bf16_;
  Index wide_, q_, all_, heads_, state_, tiles_;  // wide_: bytes of an accumulator; all_: chunks of all sequences; heads_: heads of all chunks
};

}  // namespace

void allocate_gpu_scan(Arena& scratch, const SsdShape& shape, DType operands, ScanCall call) {
  ScanScratch s(scratch, shape, operands);
  s.decays();
  if (call == ScanCall::scan) s.decay_of_chunks();
  if (call == ScanCall::scan || call == ScanCall::outputs) s.tensor_cores(false);
  if (call == ScanCall::backward || call == ScanCall::chunk_states_backward) s.gradients_of_tokens();
  if (call == ScanCall::backward) s.decay_of_chunks(), s.gradients_of_states();
}

void allocate_gpu_attention_backward(Arena& scratch, const AttentionShape& s, DType operands) {
  constexpr Index blocks = 512, keys = 128;  // as in KeyGradientParts::enough
  if (operands != DType::bf16 || std::max(s.head_dim, s.v_head_dim) > 128 || s.head_dim % 8 != 0 || s.v_head_dim % 8 != 0) return;
  const Index group = s.num_heads / s.num_kv_heads;
  Index count = 1;
  while (count < group && (group % count != 0 || count * s.batch * s.num_kv_heads * ceil_div(s.keys, keys) < blocks)) ++count;
  if (count == 1) return;
  for (const Index width : {s.head_dim, s.v_head_dim}) scratch.push(count * s.batch * s.keys * s.num_kv_heads * width * Index(sizeof(float)));
}

}  // namespace gyr
