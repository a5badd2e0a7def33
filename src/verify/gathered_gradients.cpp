// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/gathered_gradients.hpp"

#include "kernels/ops/host_values.hpp"
#include "modules/cost/flops.hpp"

namespace gyr {

namespace {

// Elements that this rank contributes, and the number of contributions per element.
struct Counted {
  std::vector<double> values, owners;
};

void count(const Engine& engine, const Parameter& mine, Counted& all) {
  const Piece kept = engine.tensor(mine, Content::gradient);
  with_type(kept.values, [&]<class S>(const Tensor1<S>& gradient) {
    HostValues<S> g(gradient);
    g.take();
    stretches(mine, kept.of, [&](Index logical, Index local, Index elements, const Held& held) {
      if (!held.first_copy()) return;
      for (Index i = 0; i < elements; ++i) all.values[logical + i] += double(g(local + i)), all.owners[logical + i] += 1;
    });
  });
}

void sum(Engine& engine, std::vector<double>& x) {
  engine.grid().world().start_all_reduce(engine.device(), Tensor1<double>(x.data(), x.size())).host_wait();
}

}  // namespace

NamedGradients gathered_gradients(Engine& engine) {
  const Grid& grid = engine.grid();
  const auto counts = [&](const Weight& w) {  // without ZeRO, all replicas hold the same gradient, and only the first contributes
    return grid.layout().replicas(bool(w.expert), grid.position()).rank == 0 || grid.layout().zero_shard() != Shard::none;
  };
  const Trained trained = engine.trained();
  NamedGradients gradients;
  for (const Weight& weight : declared_weights(engine.model())) {
    if (!trained(weight)) continue;
    const auto size = std::size_t(weight.size());
    Counted all{std::vector<double>(size, 0), std::vector<double>(size, 0)};
    for (const auto& mine : engine.parameters())
      if (counts(weight) && mine->weight.name == weight.name && !mine->tied) count(engine, *mine, all);
    sum(engine, all.values), sum(engine, all.owners);
    for (std::size_t i = 0; i < size; ++i) ensure(all.owners[i] == 1, "{}: element {} has {} owners", weight.name, i, all.owners[i]);
    gradients[weight.name] = std::move(all.values);
  }
  return gradients;
}

}  // namespace gyr
