// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/gathered.hpp"

#include <algorithm>

#include "kernels/ops/host_values.hpp"
#include "modules/cost/flops.hpp"

namespace gyr {

namespace {

// Elements that this rank contributes, and the number of contributions per element.
struct Counted {
  std::vector<double> values, owners;
};

void count(const Engine& engine, const Parameter& mine, Content content, Counted& all) {
  const Piece kept = engine.tensor(mine, content);
  if (!kept) return;
  with_type(kept.values, [&]<class S>(const Tensor1<S>& values) {
    HostValues<S> v(values);
    v.take();
    stretches(mine, kept.of, [&](Index logical, Index local, Index elements, const Held& held) {
      if (!held.first_copy()) return;
      for (Index i = 0; i < elements; ++i) all.values[logical + i] += double(Acc<S>(v(local + i))), all.owners[logical + i] += 1;
    });
  });
}

void sum(Engine& engine, std::vector<double>& x) {
  engine.grid().world().start_all_reduce(engine.device(), Tensor1<double>(x.data(), x.size())).host_wait();
}

bool is_kept(const Engine& engine, const Weight& weight, Content content) {
  if (content.kind != Content::Kind::state) return true;
  const std::vector<std::string_view> states = engine.optimizer_config().rule_of(weight).states();
  return std::find(states.begin(), states.end(), content.name) != states.end();
}

}  // namespace

NamedTensors gathered(Engine& engine, Content content) {
  const Grid& grid = engine.grid();
  const auto counts = [&](const Weight& w) {  // replicas hold the same values unless ZeRO shards them, and only the first contributes
    return grid.layout().replicas(bool(w.expert), grid.position()).rank == 0 || is_zero_sharded(content, grid.layout().zero_shard());
  };
  const Trained trained = engine.trained();
  NamedTensors tensors;
  for (const Weight& weight : declared_weights(engine.model())) {
    if (!trained(weight) || !is_kept(engine, weight, content)) continue;
    const auto size = std::size_t(weight.size());
    Counted all{std::vector<double>(size, 0), std::vector<double>(size, 0)};
    for (const auto& mine : engine.parameters())
      if (counts(weight) && mine->weight.name == weight.name && !mine->tied) count(engine, *mine, content, all);
    sum(engine, all.values), sum(engine, all.owners);
    for (std::size_t i = 0; i < size; ++i) ensure(all.owners[i] == 1, "{}: element {} has {} owners", weight.name, i, all.owners[i]);
    tensors[weight.name] = std::move(all.values);
  }
  return tensors;
}

}  // namespace gyr
