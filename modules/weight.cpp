// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weight.hpp"

#include <cmath>
#include <numeric>

namespace gyr {

double draw(const Init& init, const Stream& stream, Index i) {
  switch (init.kind) {
    case Init::constant: return init.a;
    case Init::normal: return init.a + init.b * stream.normal(i);
    case Init::uniform: return init.a + (init.b - init.a) * stream.uniform(i);
    case Init::log_of_uniform: return std::log(init.a + (init.b - init.a) * stream.uniform(i));
    case Init::step_bias: {
      const double dt = std::max(1e-4, std::exp(std::log(init.a) + (std::log(init.b) - std::log(init.a)) * stream.uniform(i)));
      return dt + std::log(-std::expm1(-dt));
    }
  }
  return 0;
}

namespace {

// One run's piece, given where the run starts globally and locally. Returns the local rows it takes.
Index shard_run(const Weight& w, const Run& run, Index global, Index local, int ranks, int rank, std::vector<Piece>& pieces) {
  if (run.units == 0) {
    const Index each = (run.extent + ranks - 1) / ranks;
    const Index first = std::min(run.extent, each * rank), last = std::min(run.extent, first + each);
    pieces.push_back({global + first, local, last - first, 1, 0});
    return each;
  }
  const Index unit = run.extent / run.units;
  if (run.units % ranks == 0) {
    const Index each = run.units / ranks * unit;
    pieces.push_back({global + each * rank, local, each, 1, 0});
    return each;
  }
  require(ranks % run.units == 0, Exit::config,
          "{}: its {} units (heads, groups or channels) cannot be sharded over {} tensor ranks; set parallel.tensor to a divisor or a multiple of {}",
          w.name, run.units, ranks, run.units);
  const Index parts = run.divisible ? std::gcd(unit, ranks / run.units) : 1, part = unit / parts;
  const int replicas = int(ranks / (run.units * parts));
  pieces.push_back({global + part * (rank / replicas), local, part, replicas, rank % replicas});
  return part;
}

}  // namespace

Shard shard(const Weight& w, int ranks, int rank) {
  Shard result{w.shape, {}};
  const Index whole = w.shape.at(w.sharding.dim);
  if (w.sharding.runs.empty()) {
    result.pieces.push_back({0, 0, whole, ranks, rank});
    return result;
  }
  Index global = 0, local = 0;
  for (const Run& run : w.sharding.runs) {
    local += shard_run(w, run, global, local, ranks, rank, result.pieces);
    global += run.extent;
  }
  ensure(global == whole, "{}: runs cover {} of {}", w.name, global, whole);
  result.shape[w.sharding.dim] = local;
  return result;
}

}  // namespace gyr
