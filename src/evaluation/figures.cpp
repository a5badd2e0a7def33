// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/figures.hpp"

namespace gyr {

void Figures::add(const ObjectiveScores& scores) {
  const std::vector<Figure> more = objective_.figures(scores);
  for (std::size_t i = 0; i < more.size(); ++i) here_[i].sum += more[i].sum, here_[i].count += more[i].count;
}

void Figures::sum_over_ranks(Grid& grid, Device& dev) {
  if (empty()) return;
  std::vector<double> values;
  for (Figure& f : here_) values.insert(values.end(), {f.sum, f.count}), f.sum = f.count = 0;
  grid.world().start_all_reduce(dev, Tensor1<double>(values.data(), Index(values.size()))).host_wait();
  for (std::size_t i = 0; i < all_.size(); ++i) all_[i].sum += values[2 * i], all_[i].count += values[2 * i + 1];
}

std::vector<std::pair<std::string, double>> Figures::means() const {
  std::vector<std::pair<std::string, double>> means;
  for (const Figure& f : all_)
    if (f.count > 0) means.emplace_back(f.name, f.sum / f.count);
  return means;
}

}  // namespace gyr
