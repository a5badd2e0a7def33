// SPDX-License-Identifier: BSD-3-Clause
// The way of samples from the token files to the ranks.
#pragma once

#include <optional>

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// The samples of a run: all that it takes, and those that it validates on, if it does.
struct RunData {
  Dataset training;
  std::optional<Dataset> validation;
};
// Collective over the grid. Exit::config, Exit::data, Exit::missing where deck and files do not fit.
RunData open_data(const RunConfig&, Grid&);
// What tells a run's objective where words begin; null where it does not ask, or the deck names no tokenizer.
std::shared_ptr<const Tokenizer> words_of(const RunConfig&);
// Samples that all steps of a run take, its batch ramp included.
Index samples_of(const RunConfig&);

// Sample `number` of a run, as of a dataset.
using SampleSource = std::function<Sample(Index)>;
// Sequences [first, first + batch) as a micro-batch, labelled as the model's objective needs it.
MicroBatch micro_batch_of(const SampleSource&, const ModelConfig&, Index first, Index batch, Index seq_length);
// The micro-batches of this rank's data coordinate of a global batch that begins at sample `first`.
MicroBatches feed(SampleSource, Index first, const EngineConfig&, Grid&);
MicroBatches feed(const Dataset&, Index first, const EngineConfig&, Grid&);

}  // namespace gyr
