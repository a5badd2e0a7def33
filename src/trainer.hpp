// SPDX-License-Identifier: BSD-3-Clause
// A training run: model, data and optimizer brought together, step after step, with what people watch and what is saved.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "src/data/dataset.hpp"
#include "src/plan.hpp"
#include "src/run_config.hpp"

namespace gyr {

struct TrainOptions {
  bool resume = false;     // from the newest whole checkpoint of the output folder, where there is one
  bool take_over = false;  // the output folder, though a run on another machine may still write to it
  int life = 0;            // which start of the run this is
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  // of the job's time
};

// Collective over `world`. Returns when all steps are done and saved; Exit::again where it was to stop before (StopSignals, the file
// STOP, train.walltime), with everything saved.
template <class T>
void train(const RunConfig&, const std::string& effective_deck, const TrainOptions&, MPI_Comm world);

// Mean loss over the labelled tokens of `batches` global batches of a dataset, from sample 0 on. Exit::data where there is none. Nothing
// where `stop`, asked by all ranks after every batch but the last and the same on all, says so.
template <class T>
std::optional<double> validation_loss(Engine<T>&, const Dataset&, Index batches, Index batch, const std::function<bool()>& stop = {});

// Sequences [first, first + batch) of a dataset as a micro-batch: labels are the next tokens, where these are to be predicted.
MicroBatch read_micro_batch(const Dataset&, Index first, Index batch, Index length);

// Rate of large matrix products on this rank, flop/s: the peak against which a CPU's utilisation is measured.
template <class T>
double product_rate();

}  // namespace gyr
