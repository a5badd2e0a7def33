// SPDX-License-Identifier: BSD-3-Clause
// Upper limits on settings of a run. They are far beyond any machine, but low enough that counts of elements, bytes and
// tokens of a complete run fit into 63 bits. Limits on a model are in modules/model/model_config.hpp.
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

inline constexpr Index most_sequences = Index(1) << 24;  // maximum sequences of a global batch or micro-batch; also the maximum of train.eval_batches
inline constexpr Index most_steps = Index(1) << 40;      // maximum of keys that count optimizer steps
// maximum ranks of a run, ranks of one model replica, and size of one grid axis
inline constexpr Index most_ranks = Index(1) << 20, most_model_ranks = Index(1) << 14, most_axis = Index(1) << 10;

}  // namespace gyr
