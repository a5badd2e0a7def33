// SPDX-License-Identifier: BSD-3-Clause
// How large what is asked for may be: far beyond any model and machine, and low enough that counts of elements, bytes and tokens of a whole
// run fit 63 bits. Each number alone is bounded where it is declared; here is what they must not make together.
#pragma once

#include "src/deck/deck.hpp"

namespace gyr {

struct RunConfig;
struct ModelConfig;

inline constexpr Index widest = Index(1) << 22;  // channels, heads, states
inline constexpr Index most_layers = Index(1) << 14;
inline constexpr Index most_tokens = (Index(1) << 31) - 1;  // of a vocabulary: token ids have 32 bits
inline constexpr Index longest = Index(1) << 24;            // tokens of a sequence
inline constexpr Index most_sequences = Index(1) << 24;     // of a batch
inline constexpr Index most_steps = Index(1) << 40;
inline constexpr Index most_ranks = Index(1) << 20, most_model_ranks = Index(1) << 14, most_axis = Index(1) << 10;

// Exit::config naming the keys, where each was given and what they make. The first as soon as the model is read, because the sizes of its
// weights are taken for granted from then on.
void check_bounds(const ModelConfig&, const Section& model);
void check_bounds(const RunConfig&, const Deck&);

}  // namespace gyr
