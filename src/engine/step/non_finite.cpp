// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/non_finite.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/ops/sum.hpp"
#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

// After the reduction of gradients, all replicas of a weight hold the same values. If only some replicas see a bad one,
// returns the end of a message that names their ranks; otherwise an empty string.
std::string only_some_replicas(Grid& grid, bool bad) {
  const Layout& layout = grid.layout();
  const double mine = bad;
  const std::vector<double> seen = grid.world().gather({&mine, 1});
  std::vector<bool> replicas(layout.size(token_axes) / layout.expert, false);
  std::string ranks;
  for (int position = 0; position < layout.ranks(); ++position) {
    if (seen[position] == 0) continue;
    replicas[layout.coordinate(position, token_axes) / layout.expert] = true;
    ranks += fmt::format("{} {}", ranks.empty() ? "" : ",", layout.rank_at(position));
  }
  if (std::count(replicas.begin(), replicas.end(), true) == std::ptrdiff_t(replicas.size())) return "";
  return fmt::format(", by rank{} but not by other replicas of the same weights (suspect the memory or processor there)", ranks);
}

// Names of all weights in the order of the model. A tied embedding that the last stage also holds counts there as the
// last weight.
std::vector<std::string> names_of(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const Weight& w : declared_weights(model)) names.push_back(w.name);
  if (shares_embedding(model)) names.push_back(names.front());
  return names;
}

// Indices into names_of: first non-finite weight, last non-finite gradient; -1: all are finite.
struct Bad {
  double weight = -1, gradient = -1;
};

Bad bad_on_this_rank(Device& dev, const std::vector<std::string>& names, const Parameters& parameters, const Optimizer& optimizer) {
  const auto finite = [&](const AnyTensor& x) {
    return with_type(x, [&]<class Typed>(const Typed& typed) { return std::isfinite(sum_of_squares<typename Typed::value_type>(dev, typed)); });
  };
  Bad bad;
  for (const auto& p : parameters.all()) {
    const double number = p->tied ? double(names.size() - 1) : double(std::find(names.begin(), names.end(), p->weight.name) - names.begin());
    const Piece value = optimizer.has_master(*p) ? optimizer.master(*p) : p->kept_value();
    if (bad.weight < 0 && !finite(value.values)) bad.weight = number;
    if (p->trained && !finite(p->kept_gradient().values)) bad.gradient = std::max(bad.gradient, number);
  }
  return bad;
}

}  // namespace

void throw_non_finite(Device& dev, Grid& grid, const ModelConfig& model, const Parameters& parameters, const Optimizer& optimizer, std::int64_t step,
                      double loss, double norm) {
  const std::vector<std::string> names = names_of(model);
  const Bad bad = bad_on_this_rank(dev, names, parameters, optimizer);
  const double weight = grid.world().max(bad.weight), gradient = grid.world().max(bad.gradient);
  const std::string which_replicas = grid.layout().zero_shard() != Shard::none ? "" : only_some_replicas(grid, bad.weight >= 0 || bad.gradient >= 0);
  collective_check(grid.world(), [&] {  // a rank that has the bad value reports it; all ranks end with its error
    if (weight >= 0 ? bad.weight == weight : gradient >= 0 && bad.gradient == gradient)
      fail(Exit::numeric,
           "step {}: loss {} and gradient norm {} are not both finite, first seen in the {} of {}{}. No weight has been changed: "
           "lower optimizer.lr, lengthen the warm-up, or inspect the data of this step",
           step, loss, norm, weight >= 0 ? "value" : "gradient", names[std::size_t(weight >= 0 ? weight : gradient)], which_replicas);
  });
  fail(Exit::numeric, "step {}: loss {} and gradient norm {} are not both finite", step, loss, norm);
}

}  // namespace gyr
