// SPDX-License-Identifier: BSD-3-Clause
// Draws of tokens from logits: on the device, from logits sharded by vocabulary, and on the host, from one row.
#pragma once

#include <span>

#include "kernels/comm/communicator.hpp"
#include "kernels/ops/sampling/token_draw.hpp"
#include "modules/objectives/head.hpp"
#include "src/engine/generate/request.hpp"

namespace gyr {

inline constexpr Token no_token = -1;         // drawn from logits that are not all finite
inline constexpr Token uncertain_token = -2;  // a device draw that sample_token must repeat (token_draw.hpp)

// A drawn token with GeneratedText::log_probs and GeneratedText::kept.
struct DrawnToken {
  Token token = no_token;
  double log_prob = 0, kept = 1;
};

// Draws a token from one row of logits with a uniform random number in [0, 1). Of equal logits the lower token id counts
// as more likely: at temperature 0, and at the limits of top_k and top_p.
DrawnToken sample_token(std::span<const double> logits, const Sampling&, double uniform);

// Draws on the device. The host receives a few values per draw, and the tensor-parallel ranks exchange bins of tokens
// instead of logits. Tokens are those of sample_token. The objects live in scratch memory until the end of the scope.
class DeviceDraws {
 public:
  // Uploads a uniform random number per draw. `logits`: type of the logits.
  DeviceDraws(Device&, DType logits, std::span<const double> uniforms);
  // Enqueues all draws: one from each row of this rank's columns of logits, or all from the only row.
  void enqueue(Device&, Communicator& tensor, const Head&, const AnyTensor2& logits, const Sampling&, Index vocab_size) const;
  // Waits for the device and returns the drawn tokens.
  std::vector<DrawnToken> tokens(Device&, const Sampling&, Index vocab_size) const;
  const void* address() const { return values_.data(); }

 private:
  template <class A>
  void enqueue(Device&, Communicator& tensor, const Head&, Tensor2<const A> logits, const Sampling&, Index vocab_size) const;
  Tensor1<TokenDraw> draws() const { return Tensor1<TokenDraw>(reinterpret_cast<TokenDraw*>(values_.data()), count_); }
  AnyTensor ids() const { return {values_.data() + count_ * values_per_draw, dtype_, count_}; }

  static constexpr Index values_per_draw = sizeof(TokenDraw) / sizeof(double);
  Index count_;
  DType dtype_;
  Tensor1<double> values_;  // states of the draws, followed by the drawn token ids, each negated
};

}  // namespace gyr
