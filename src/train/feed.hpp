// SPDX-License-Identifier: BSD-3-Clause
// Loads samples from the token files and makes micro-batches of them for each rank.
#pragma once

#include <optional>

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/data/prompts.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// Training samples of a run, and validation samples if the run validates. Policy training has prompts instead.
struct RunData {
  std::optional<Dataset> training, validation = {};
  std::optional<Prompts> prompts = {};
};
// Collective over the grid. Exit::config, Exit::data or Exit::missing if deck and files do not fit together.
RunData open_data(const RunConfig&, Grid&);
// Checks the token files and the tokenizer of a run that exist, as open_data and the training steps do. Exit::data if they do
// not fit the model, such as a token id that is not below model.vocab_size. Reads the first 16 M tokens of each file.
void check_token_files(const RunConfig&);
// Lines of the log about the data of a run: its size and epochs, notes of the datasets, and warnings.
std::vector<std::string> lines_about(const RunConfig&, const RunData&);
// Number of samples in one pass over all corpora of a dataset.
Index samples_per_epoch(const Dataset&);
// Passes over the training data in all steps of a run.
double epochs_of(const RunConfig&, const Dataset& training);
// The same, if the token files can be opened.
std::optional<double> epochs_of(const RunConfig&);
// Message with which open_data would end, such as that of a missing file or an empty validation split; empty if there is none.
std::string refusal_of_data(const RunConfig&);
// Remark on a vocabulary that is far larger than that of the tokenizer of the data; empty if there is none.
std::string doubtful_vocabulary(const RunConfig&);
// Warning about a corpus of conversations whose documents are joined or broken at the ends of windows; empty if there is none.
std::string doubtful_order(const RunConfig&);
// Warning about a run that reads its training data more than a hundred times; empty if it does not.
std::string doubtful_epochs(const RunConfig&, const Dataset& training);
// Size of the training data, steps of one epoch, and epochs of the run, as one line of the log.
std::string epoch_text(const RunConfig&, const Dataset& training);
// Table of the samples and epochs of each corpus in each stage of the data; errors of open_data.
std::string reading_table(const RunConfig&);
// The same for plans; empty if the run reads one corpus throughout, or if its token files cannot be opened.
std::string planned_reading(const RunConfig&);
// Tokenizer that finds the beginnings of words for the run's objective; null if the objective does not need them, or
// the deck names no tokenizer.
std::shared_ptr<const Tokenizer> words_of(const RunConfig&);
// Number of samples that all steps of a run consume, including its batch size ramp-up.
Index samples_of(const RunConfig&);

// Returns sample `number` of a run, as Dataset::sample does.
using SampleSource = std::function<Sample(Index)>;
// Sequences [first, first + batch) as a micro-batch, labelled as the model's objective needs it.
MicroBatch micro_batch_of(const SampleSource&, const ModelConfig&, Index first, Index batch, Index seq_length);
// The micro-batches of this rank's data coordinate of a global batch that begins at sample `first`.
MicroBatches feed(SampleSource, Index first, const EngineConfig&, Grid&);
MicroBatches feed(const Dataset&, Index first, const EngineConfig&, Grid&);

}  // namespace gyr
