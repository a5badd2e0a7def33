// SPDX-License-Identifier: BSD-3-Clause
// Overlap of a sample with its neighbours, for models with layers R: how much of a text do its neighbours contain?
//   overlap = targets that occur in the neighbours which their row sees / targets whose row sees the neighbours of a chunk
// Row t predicts token t + 1 and sees the neighbours of chunk floor((t + 1 - m) / m). The first m - 1 rows see none. With separate documents,
// a row sees those of a chunk whose last token is in its document.
#pragma once

#include <optional>

#include "modules/model/model_config.hpp"
#include "src/data/dataset.hpp"

namespace gyr {

// Empty if no row with a target sees the neighbours of a chunk.
std::optional<double> neighbour_overlap(const Sample&, const RetrievalConfig&);

}  // namespace gyr
