// SPDX-License-Identifier: BSD-3-Clause
// Merges the results that the ranks have found in their parts of an index.
#pragma once

#include "kernels/comm/communicator.hpp"
#include "src/retro/bm25.hpp"

namespace gyr::retro {

// The best `most` of the candidates of all ranks for each query, in order, on rank `owner`; nothing on other ranks. Collective.
std::vector<std::vector<Candidate>> merged(Communicator& world, int owner, const std::vector<std::vector<Candidate>>& mine, std::int64_t most);

}  // namespace gyr::retro
