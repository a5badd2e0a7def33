// SPDX-License-Identifier: BSD-3-Clause
// How large what is asked of a run may be: far beyond any machine, and low enough that counts of elements, bytes and tokens of a whole run fit
// 63 bits. Those of a model are in modules/model/model_config.hpp.
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

inline constexpr Index most_sequences = Index(1) << 24;  // of a batch
inline constexpr Index most_steps = Index(1) << 40;
inline constexpr Index most_ranks = Index(1) << 20, most_model_ranks = Index(1) << 14, most_axis = Index(1) << 10;

}  // namespace gyr
