// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/context_attention.hpp"

#include "modules/context/balanced_attention.hpp"
#include "modules/context/head_exchange.hpp"
#include "modules/context/ring_attention.hpp"

namespace gyr {

template <class T>
std::unique_ptr<ContextAttention<T>> context_attention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window) {
  switch (a.sequences.mode) {
    case ContextMode::ring: return std::make_unique<RingAttention<T>>(a, heads, scores, window);
    case ContextMode::heads: return std::make_unique<HeadExchange<T>>(a, heads, scores, window);
    case ContextMode::balanced: return std::make_unique<BalancedAttention<T>>(a, heads, scores, window);
  }
  return nullptr;
}

template std::unique_ptr<ContextAttention<double>> context_attention<double>(Pass&, const AttentionShape&, const ScoreRule&, Index);
template std::unique_ptr<ContextAttention<float>> context_attention<float>(Pass&, const AttentionShape&, const ScoreRule&, Index);
template std::unique_ptr<ContextAttention<bf16>> context_attention<bf16>(Pass&, const AttentionShape&, const ScoreRule&, Index);

}  // namespace gyr
