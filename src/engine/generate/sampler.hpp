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
// instead of logits. Tokens are those of sample_token, or with Sampling::rollouts Gumbel-max draws. The objects live in
// scratch memory until the end of the scope.
class DeviceDraws {
 public:
  // Uploads the random number of each draw. `logits`: type of the logits. `ranks`: number of tensor-parallel ranks.
  DeviceDraws(Device&, DType logits, int ranks, std::span<const DrawPlace>);
  // Enqueues all draws: one from each row of this rank's columns of logits, or all from the only row.
  void enqueue(Device&, Communicator& tensor, const Head&, const AnyTensor2& logits, const Sampling&, Index vocab_size) const;
  // Waits for the device and returns the drawn tokens.
  std::vector<DrawnToken> tokens(Device&, const Sampling&, Index vocab_size) const;
  const void* address() const { return values_.data(); }

 private:
  template <class A>
  void enqueue(Device&, Communicator& tensor, const Head&, Tensor2<const A> logits, const Sampling&, Index vocab_size) const;
  Tensor1<TokenDraw> draws() const { return Tensor1<TokenDraw>(reinterpret_cast<TokenDraw*>(values_.data()), count_); }
  // Results: the drawn token ids, each negated, or with Gumbel draws the best ones of each rank (ranks, draws, 3).
  double* results() const { return values_.data() + count_ * values_per_draw; }
  static bool takes_gumbel(const Sampling& s) { return s.rollouts && s.temperature > 0 && s.top_k == 0 && s.top_p == 1; }
  template <class A>
  void search(Device&, Communicator& tensor, const Head&, Tensor2<const A> logits, Tensor1<const A> top, const Sampling&, Index vocab_size) const;
  DrawnToken best_of_ranks(const double* results, Index d, double all) const;

  static constexpr Index values_per_draw = sizeof(TokenDraw) / sizeof(double);
  Index count_;
  DType dtype_;
  int ranks_;
  Tensor1<double> values_;  // states of the draws, followed by the results
};

}  // namespace gyr
