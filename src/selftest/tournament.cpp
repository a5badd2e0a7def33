// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/tournament.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace gyr::selftest {

namespace {

int even(int ranks) { return ranks + ranks % 2; }

}  // namespace

int rounds_of(int ranks) { return ranks < 2 ? 0 : even(ranks) - 1; }

int partner_of(int rank, int round, int ranks) {
  const int n = even(ranks), last = n - 1;
  // The rank that meets the last one: 2 a = round modulo n - 1, and n / 2 is the inverse of 2.
  const int met = int(std::int64_t(round) * (n / 2) % last);
  const int partner = rank == last ? met : rank == met ? last : ((round - rank) % last + last) % last;
  return partner < ranks ? partner : -1;
}

std::vector<int> chosen_rounds(int ranks, int most, std::uint64_t seed) {
  std::vector<int> rounds(std::size_t(rounds_of(ranks)));
  std::iota(rounds.begin(), rounds.end(), 0);
  if (int(rounds.size()) <= most) return rounds;
  std::mt19937_64 random(seed);
  for (std::size_t i = rounds.size() - 1; i > 0; --i) std::swap(rounds[i], rounds[random() % (i + 1)]);
  rounds.resize(std::size_t(most));
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

}  // namespace gyr::selftest
