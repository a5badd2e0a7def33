// SPDX-License-Identifier: BSD-3-Clause
#include "modules/shared_attention.hpp"

#include "modules/balanced_attention.hpp"
#include "modules/head_exchange.hpp"
#include "modules/ring_attention.hpp"

namespace gyr {

template <class T>
std::unique_ptr<SharedAttention<T>> shared_attention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window) {
  switch (a.sequences.mode) {
    case ContextMode::ring: return std::make_unique<RingAttention<T>>(a, heads, scores, window);
    case ContextMode::heads: return std::make_unique<HeadExchange<T>>(a, heads, scores, window);
    case ContextMode::balanced: return std::make_unique<BalancedAttention<T>>(a, heads, scores, window);
  }
  return nullptr;
}

template std::unique_ptr<SharedAttention<double>> shared_attention<double>(Pass&, const AttentionShape&, const ScoreRule&, Index);
template std::unique_ptr<SharedAttention<float>> shared_attention<float>(Pass&, const AttentionShape&, const ScoreRule&, Index);
template std::unique_ptr<SharedAttention<bf16>> shared_attention<bf16>(Pass&, const AttentionShape&, const ScoreRule&, Index);

}  // namespace gyr
