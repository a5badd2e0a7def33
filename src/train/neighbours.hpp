// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the samples of a run whose model has layers R.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/retro/chunk_search.hpp"
#include "src/retro/queries.hpp"

namespace gyr {

struct EncoderInput;

// Settings of the queries of the training or validation samples of a run by an index of the project. Exit::config if neighbours do not fit the run.
retro::QuerySettings query_settings_of(const RunConfig&, const retro::ProjectSettings&, const retro::IndexMark&, Split);

// Gives each sample of the dataset the neighbours of its chunks (Sample::neighbours), if the model has layers R. Exit::config
// if the deck names no project, or one that was made for another run. Exit::missing naming the command that makes what is
// absent.
void add_neighbours(const RunConfig&, Split, Dataset&);

// The neighbours of the samples of a micro-batch as its encoder input (chunk.hpp).
EncoderInput neighbours_of(const std::vector<Sample>&, const RetrievalConfig&);

}  // namespace gyr
