// SPDX-License-Identifier: BSD-3-Clause
// The way of samples from the token files to the ranks, and the loss on those that are held out.
#pragma once

#include <functional>
#include <optional>

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/engine.hpp"

namespace gyr {

// The samples of a run: all that it takes, or those that it validates on.
Dataset training_set(const RunConfig&);
Dataset validation_set(const RunConfig&);
// Samples that all steps of a run take, its batch ramp included.
Index samples_of(const RunConfig&);

// Sequences [first, first + batch) of a dataset as a micro-batch: labels are the next tokens, where these are to be predicted.
MicroBatch read_micro_batch(const Dataset&, Index first, Index batch, Index seq_length);
// The micro-batches of this rank's data coordinate of a global batch that begins at sample `first`.
MicroBatches feed(const Dataset&, Index first, const EngineConfig&, Grid&);

// Mean loss over the labelled tokens of `batches` global batches of a dataset, from sample 0 on. Exit::data where there is none. Nothing
// where `stop`, asked by all ranks after every batch but the last and the same on all, says so.
template <class T>
std::optional<double> validation_loss(Engine<T>&, const Dataset&, Index batches, Index batch, const std::function<bool()>& stop = {});

}  // namespace gyr
