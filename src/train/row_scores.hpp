// SPDX-License-Identifier: BSD-3-Clause
// Log-probabilities of the labels of samples, or values of their rows, computed by a forward pass of an engine.
#pragma once

#include "src/train/feed.hpp"

namespace gyr {

// Returns ln p of the label of each row, samples x seq_length values: those of the rows that this rank has, and 0 elsewhere; the sum
// over the ranks of the engine has all rows. Rows without a label are 0. Collective over the engine's grid, whose data ranks share the
// samples equally.
std::vector<double> row_log_probs(Engine&, const SampleSource&, const Span& samples);

// Likewise the values of all rows, by a model that gives values (Objective::gives_values).
std::vector<double> row_values(Engine&, const SampleSource&, const Span& samples);

// Micro-batches of a data-parallel rank for this number of samples.
int micros_of(const Engine&, Grid&, Index samples);

}  // namespace gyr
