// SPDX-License-Identifier: BSD-3-Clause
// Random clusters for planner tests.
#pragma once

#include <random>
#include <vector>

#include "src/planner/machine/cluster.hpp"

namespace gyr::testing {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  double real(double least, double most) { return std::uniform_real_distribution(least, most)(random_); }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[std::size_t(between(0, int(all.size()) - 1))];
  }

 private:
  std::mt19937 random_;
};

inline Cluster random_cluster(Dice& dice) {
  Cluster c;
  c.name = "drawn # at: random";
  c.nodes = dice.between(0, 9), c.island_nodes = dice.between(0, 4), c.per_node = dice.between(1, 8);
  c.device = {dice.real(1e9, 1e11), dice.real(1e9, 1e12), dice.real(1e9, 1e12), dice.real(1e9, 1e12),
              dice.real(1e9, 1e12), dice.real(0, 700),    dice.coin(),          dice.coin() ? dice.real(0, 1e9) : 0,
              dice.coin()};
  c.storage = dice.coin() ? dice.real(1e8, 1e10) : 0;
  if (dice.coin()) c.failures = {dice.real(1, 1e6), dice.real(0, 1000)};
  if (dice.coin()) c.errors = {dice.real(0, 1), dice.real(0, 1), "published: drawn", "drawn # measured"};
  for (Link* link : {&c.node, &c.network, &c.islands}) *link = {dice.real(0, 1e-4), dice.real(1e8, 1e11), dice.real(0.1, 1)};
  c.links_overlap = dice.coin();
  c.host = {dice.real(1e10, 1e12), dice.real(1e6, 1e11), dice.coin()};
  c.fit = {dice.real(0.1, 1), dice.real(0.1, 1), dice.real(0.1, 1), dice.real(0.1, 1), dice.real(0, 1)};
  return c;
}

}  // namespace gyr::testing
