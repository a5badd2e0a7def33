// SPDX-License-Identifier: BSD-3-Clause
// Upper limits of settings, far beyond any model. They keep products of settings within 64 bits.
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

inline constexpr Index widest = Index(1) << 22;             // maximum number of channels, heads or states
inline constexpr Index most_experts = Index(1) << 14;       // maximum number of experts in a layer
inline constexpr Index most_layers = Index(1) << 14;        // maximum number of layers of a model
inline constexpr Index most_tokens = (Index(1) << 31) - 1;  // maximum vocabulary size: token ids have 32 bits
inline constexpr Index longest = Index(1) << 24;            // maximum number of tokens in a sequence

}  // namespace gyr
