// SPDX-License-Identifier: BSD-3-Clause
// Rounds in which ranks exchange messages in pairs: a round-robin tournament by the circle method. Rank n - 1 stays, the
// others turn by one place per round. In round r, ranks a and b < n - 1 meet if a + b = r modulo n - 1.
#pragma once

#include <cstdint>
#include <vector>

namespace gyr::selftest {

// Number of rounds after which every rank has met every other rank; with an odd number of ranks, one rests in each round.
int rounds_of(int ranks);
// Partner of the rank in a round; -1: it rests.
int partner_of(int rank, int round, int ranks);
// All rounds in order, or `most` of them drawn by the seed if there are more.
std::vector<int> chosen_rounds(int ranks, int most, std::uint64_t seed);

}  // namespace gyr::selftest
