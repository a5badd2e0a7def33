// SPDX-License-Identifier: BSD-3-Clause
// Attention of bf16 by cuDNN's fused kernels, on GPUs of capability 9.0, where GYR_CUDA_ATTENTION=cudnn asks for it and cuDNN covers the case; `own`,
// and what is not said, is ours.
#pragma once

#include "kernels/cuda/cudnn/description.hpp"
#include "kernels/ops/attention.hpp"

namespace gyr::backend {

// What cuDNN is told of it. None where ours is asked for, and where cuDNN does not cover the case: packed documents, caps, biases, dropout; a mask
// that is no band about the diagonal on which the first query meets the first key; single queries, windows of more queries than keys; heads that are
// wider than 256 or no multiple of 8 numbers; rows that do not begin on 16 bytes. This is the one place that says so.
std::optional<cuda::FusedAttention> fused_attention(const AttentionShape&, const Mask&, const ScoreRule&, const Matrix<const bf16>& q,
                                                    const Matrix<const bf16>& k, const Matrix<const bf16>& v);

// The attention of what queries have met nothing before. False, and nothing is done, on GPUs where there is no plan for it.
class FusedForwardCall {
 public:
  FusedForwardCall(Arena& scratch, const cuda::FusedAttention&);
  bool run(Device&, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v, const AttentionState<float>&) const;

 private:
  cuda::FusedAttention described_;
  Tensor2<float> stats_;  // (B H, Tq)
  Tensor1<char> workspace_;
};

// Its gradients, in parts of whole sequences, or of some key heads of one, whose workspace is no more than `most`. cuDNN has
//   delta = <do, o>  from an o,  we have delta: it is told  o = do delta / |do|^2,  row by row.
class FusedBackwardCall {
 public:
  static constexpr Index usual_most = Index(256) << 20;

  // None where the workspace of one key head of one sequence would be more than that.
  static std::optional<FusedBackwardCall> made(Arena& scratch, const cuda::FusedAttention&, Index most = usual_most);
  bool run(Device&, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v, const Tensor2<const bf16>& dout,
           const Tensor2<const float>& lse, const Tensor2<const float>& delta, const Matrix<float>& dq, const Matrix<float>& dk,
           const Matrix<float>& dv) const;

 private:
  FusedBackwardCall(Arena& scratch, const cuda::FusedAttention& all, const cuda::FusedAttention& part);

  cuda::FusedAttention all_, part_;
  Tensor2<float> stats_;            // (B H, Tq)
  Tensor2<bf16> o_, dq_, dk_, dv_;  // as q, k and v, without gaps
  Tensor1<char> workspace_;
};

}  // namespace gyr::backend
