// SPDX-License-Identifier: BSD-3-Clause
// Builds the database of a project: the ranks cut blocks of documents, and the first rank merges the blocks.
#pragma once

#include "kernels/comm/communicator.hpp"
#include "src/retro/database.hpp"

namespace gyr::retro {

struct DatabaseCounts {
  std::int64_t documents = 0, chunks = 0;
  std::int64_t left_out = 0;          // pieces without a target token of the loss mask, or without a token to compare
  std::int64_t blocks = 0, kept = 0;  // block files; those of them that an earlier call has made
};

// Makes the block files and the merged file that do not exist. Collective. Exit::data for a damaged block, Exit::io.
DatabaseCounts build_database(const std::filesystem::path& project, const ProjectSettings&, const Corpora&, Communicator& world);

}  // namespace gyr::retro
