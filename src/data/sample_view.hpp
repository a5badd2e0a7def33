// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "modules/objectives/objective.hpp"
#include "src/data/dataset.hpp"

namespace gyr {

// View of sample `number` for the model's objective. Valid while the sample exists.
inline SampleView view_of(const Sample& s, Index number, const ModelConfig& m) {
  return {s.tokens, s.learned, s.begins, number, m.vocab_size, s.positions, s.classes, m.decoder_start_token_id, s.texts, s.source, s.values};
}

}  // namespace gyr
