// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/bad_numbers.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/sum.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

// Replicas hold the same numbers once gradients are reduced. Where only some of them see a bad one, names their ranks.
std::string only_some_replicas(Grid& grid, bool bad) {
  const Layout& layout = grid.layout();
  const double mine = bad;
  const std::vector<double> seen = grid.world().gather({&mine, 1});
  std::vector<bool> replicas(layout.size(token_axes), false);
  std::string ranks;
  for (int position = 0; position < layout.ranks(); ++position) {
    if (seen[position] == 0) continue;
    replicas[layout.coordinate(position, token_axes)] = true;
    ranks += fmt::format("{} {}", ranks.empty() ? "" : ",", layout.rank_at(position));
  }
  if (std::count(replicas.begin(), replicas.end(), true) == std::ptrdiff_t(replicas.size())) return "";
  return fmt::format(", by rank{} and not by other replicas of the same numbers (suspect the memory or processor there)", ranks);
}

// Indices in the order of declaration, -1: none.
struct Bad {
  double weight = -1, gradient = -1;
};

Bad bad_on_this_rank(Device& dev, const Parameters& parameters, const Optimizer& optimizer) {
  const auto finite = [&](const AnyTensor& x) {
    return with_type(x, [&]<class Typed>(const Typed& typed) { return std::isfinite(sum_of_squares<typename Typed::value_type>(dev, typed)); });
  };
  const auto& all = parameters.all();
  Bad bad;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Piece value = optimizer.has_master(*all[i]) ? optimizer.master(*all[i]) : all[i]->kept_value();
    if (bad.weight < 0 && !finite(value.numbers)) bad.weight = double(i);
    if (all[i]->trained && !finite(all[i]->kept_gradient().numbers)) bad.gradient = double(i);
  }
  return bad;
}

// The last stage that has one: its number and the index there.
std::pair<int, int> last_stage_with(Grid& grid, double mine) {
  mine = grid.tensor().whole().max(mine);
  if (grid.layout().cut() != Shard::none) mine = grid.group(token_axes).max(mine);
  const auto stages = grid.group(Axis::pipeline).gather({&mine, 1});
  const auto found = std::find_if(stages.rbegin(), stages.rend(), [](double index) { return index >= 0; });
  return {int(stages.rend() - found) - 1, found == stages.rend() ? -1 : int(*found)};
}

}  // namespace

void name_bad_numbers(Device& dev, Grid& grid, const Parameters& parameters, const Optimizer& optimizer, std::int64_t step, double loss,
                      double norm) {
  const Bad bad = bad_on_this_rank(dev, parameters, optimizer);
  const auto weight = last_stage_with(grid, bad.weight), gradient = last_stage_with(grid, bad.gradient);
  const auto found = weight.second >= 0 ? weight : gradient;
  const int stage = found.first, index = found.second;
  const std::string alone = grid.layout().cut() != Shard::none ? "" : only_some_replicas(grid, bad.weight >= 0 || bad.gradient >= 0);
  collective_check(grid.world(), [&] {  // only the stage that holds the weight can name it; all ranks end with its error
    if (stage == grid.coordinate(Axis::pipeline))
      fail(Exit::numeric,
           "step {}: loss {} and gradient norm {} are not both finite, first seen in the {} of {}{}. No weight has been changed: "
           "lower optimizer.lr, lengthen the warm-up, or look at the data of this step",
           step, loss, norm, weight.second >= 0 ? "value" : "gradient", parameters.all()[index]->weight.name, alone);
  });
  fail(Exit::numeric, "step {}: loss {} and gradient norm {} are not both finite", step, loss, norm);
}

}  // namespace gyr
