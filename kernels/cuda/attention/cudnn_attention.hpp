// SPDX-License-Identifier: BSD-3-Clause
// Attention in bf16 by cuDNN's fused kernels. It is used on GPUs of compute capability 9.0 if GYR_CUDA_ATTENTION=cudnn
// and cuDNN supports the case. Otherwise Gyrfalcon's own kernels are used (GYR_CUDA_ATTENTION=own, the default).
#pragma once

#include "kernels/cuda/cudnn/description.hpp"
#include "kernels/ops/attention.hpp"

namespace gyr::backend {

// Description of the attention for cuDNN. Returns none if Gyrfalcon's own kernels are selected or cuDNN does not
// support the case. Unsupported are packed documents, soft caps, biases, dropout, fewer than two queries, and 2^24 or
// more queries or keys. Heads must be at most 256 wide, in multiples of 8, with 16-byte aligned rows. Unless all
// queries see all keys, the first query and the first key must have the same position, and windows need at least as
// many keys as queries.
std::optional<cuda::FusedAttention> fused_attention(const AttentionShape&, const Mask&, const ScoreRule&, const Matrix<const bf16>& q,
                                                    const Matrix<const bf16>& k, const Matrix<const bf16>& v);

// Forward attention that starts a new online-softmax state (Carry::fresh). run() does nothing and returns false if
// cuDNN has no plan for it on this GPU.
class FusedForwardCall {
 public:
  FusedForwardCall(Arena& scratch, const cuda::FusedAttention&);
  bool run(Device&, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v, const AttentionState<float>&) const;

 private:
  cuda::FusedAttention described_;
  Tensor2<float> stats_;  // log-sum-exp of each head and query, shape (B H, Tq)
  Tensor1<char> workspace_;
};

// Gradients of attention, in parts of full sequences, or of some key heads of one sequence, whose workspace is at most
// `most` bytes. cuDNN computes delta = <dO, o> from o, but the caller has only delta. Therefore cuDNN receives o = dO
// delta / |dO|^2 for each row, which has the same delta.
class FusedBackwardCall {
 public:
  static constexpr Index usual_most = Index(256) << 20;

  // Returns none if the workspace of one key head of one sequence would exceed `most` bytes.
  static std::optional<FusedBackwardCall> made(Arena& scratch, const cuda::FusedAttention&, Index most = usual_most);
  bool run(Device&, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v, const Tensor2<const bf16>& dout,
           const Tensor2<const float>& lse, const Tensor2<const float>& delta, const Matrix<float>& dq, const Matrix<float>& dk,
           const Matrix<float>& dv) const;

 private:
  FusedBackwardCall(Arena& scratch, const cuda::FusedAttention& all, const cuda::FusedAttention& part);

  cuda::FusedAttention all_, part_;
  Tensor2<float> stats_;            // log-sum-exp of each head and query, shape (B H, Tq)
  Tensor2<bf16> o_, dq_, dk_, dv_;  // output and gradients of q, k and v, with contiguous rows
  Tensor1<char> workspace_;
};

}  // namespace gyr::backend
