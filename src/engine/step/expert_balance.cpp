// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/expert_balance.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/device/upload.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr {

namespace {

// Calls f(load, token counts of its experts) for each layer.
template <class F>
void for_loads(const ExpertLoads& loads, const ExpertChoices& choices, const F& f) {
  std::size_t at = 0;
  for (const ExpertLoad& load : loads.all()) {
    f(load, std::span(choices).subspan(at, std::size_t(load.experts)));
    at += std::size_t(load.experts);
  }
}

double sum_of(std::span<const double> chosen) { return std::accumulate(chosen.begin(), chosen.end(), 0.0); }

}  // namespace

double dropped_choices(const ExpertLoads& loads) {
  double sum = 0;
  for (const ExpertLoad& load : loads.all()) sum += load.dropped;
  return sum;
}

void clear_choices(Device& dev, ExpertLoads& loads) {
  loads.clear_dropped();
  if (loads.chosen().span() > 0) fill<double>(dev, loads.chosen(), 0);
}

void sum_choices(Device& dev, Grid& grid, const ExpertLoads& loads) {
  const Device::Purpose purpose(dev, "tokens per expert: layers x experts");
  if (loads.chosen().span() > 0) grid.group(token_axes).all_reduce(dev, loads.chosen());
}

ExpertChoices expert_choices(Device& dev, const ExpertLoads& loads) {
  return loads.chosen().span() > 0 ? to_host(dev, loads.chosen()) : ExpertChoices();
}

double maximum_expert_load(const ExpertLoads& loads, const ExpertChoices& choices) {
  double largest_rank = 0;
  for_loads(loads, choices, [&](const ExpertLoad& load, std::span<const double> chosen) {
    const double sum = sum_of(chosen);
    if (sum > 0) largest_rank = std::max(largest_rank, *std::max_element(chosen.begin(), chosen.end()) * double(load.experts) / sum);
  });
  return largest_rank;
}

void move_biases(Device& dev, const ExpertLoads& loads, const ExpertChoices& choices, double rate, const OptimizerConfig& optimizer) {
  if (rate == 0) return;
  for_loads(loads, choices, [&](const ExpertLoad& load, std::span<const double> chosen) {
    if (!load.bias || optimizer.freezes(load.bias->weight)) return;
    const double sum = sum_of(chosen);
    const Piece kept = load.bias->kept_value();
    with_type(kept.values, [&]<class Typed>(const Typed& values) {
      using S = typename Typed::value_type;
      std::vector<S> bias = to_host(dev, values);
      for (Index i = 0; i < kept.of.size(); ++i) {
        const double more = sum - chosen[kept.of.first + i] * double(load.experts);
        bias[i] = S(double(bias[i]) + (more > 0 ? rate : more < 0 ? -rate : 0));
      }
      if (!dev.dry_run()) backend::upload(dev.queue, bias.data(), values.data(), Index(bias.size() * sizeof(S)));
    });
  });
}

}  // namespace gyr
