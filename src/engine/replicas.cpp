// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/replicas.hpp"

#include <xxhash.h>

#include <algorithm>
#include <map>

#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

template <class S>
std::uint64_t mix(std::uint64_t sum, Tensor1<S> x) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  return XXH3_64bits_withSeed(host.data(), host.span() * sizeof(S), sum);
}

template <class T>
std::uint64_t checksum(Engine<T>& engine) {
  const Optimizer<T>& optimizer = engine.optimizer();
  std::uint64_t sum = 0;
  for (const auto& p : engine.stage().parameters().all()) {
    sum = p->dtype() == dtype_of<T>() ? mix(sum, p->template vector<T>()) : mix(sum, p->template vector<Acc<T>>());
    if (!p->trained) continue;
    sum = mix(mix(sum, optimizer.moment1(*p)), optimizer.moment2(*p));
    if (optimizer.has_master(*p)) sum = mix(sum, optimizer.master(*p));
  }
  return sum;
}

// Ranks of the replicas at `coordinates` of the data axis that stand where this rank does on the others.
std::string ranks_at(const Grid& grid, const std::vector<int>& coordinates) {
  const Layout& layout = grid.layout();
  std::string text;
  for (int position = 0; position < layout.ranks(); ++position) {
    const bool same_place = layout.coordinate(position, all_but(Axis::data)) == grid.coordinate(all_but(Axis::data));
    const bool meant = std::find(coordinates.begin(), coordinates.end(), layout.coordinate(position, Axis::data)) != coordinates.end();
    if (same_place && meant) text += fmt::format("{}{}", text.empty() ? "" : " and ", layout.rank_at(position));
  }
  return text;
}

}  // namespace

template <class T>
void check_replicas(Engine<T>& engine, std::int64_t step) {
  Grid& grid = engine.grid();
  if (grid.group(Axis::data).size() == 1) return;
  grid.tell("check replicas");
  const std::uint64_t mine = checksum(engine);
  const double halves[] = {double(mine >> 32), double(mine & 0xffffffffu)};  // exact in a double
  const std::vector<double> all = grid.group(Axis::data).gather(halves);
  std::map<std::pair<double, double>, std::vector<int>> holders;
  for (int replica = 0; replica < grid.group(Axis::data).size(); ++replica) holders[{all[2 * replica], all[2 * replica + 1]}].push_back(replica);
  collective_check(grid.world(), [&] {
    if (holders.size() == 1) return;
    std::vector<int> odd, some;
    for (const auto& [sum, replicas] : holders) {
      const bool majority = 2 * replicas.size() > std::size_t(grid.group(Axis::data).size());
      if (!majority) odd.insert(odd.end(), replicas.begin(), replicas.end());
      some.push_back(replicas.front());
    }
    const std::string at = fmt::format("step {}: replicas of the same weights differ (train.check_replicas): ", step);
    const char* way_out = "Go on from a checkpoint before it; if it comes again, take that machine out";
    if (odd.size() < std::size_t(grid.group(Axis::data).size()))
      fail(Exit::numeric, "{}rank {} holds other bits than the majority: suspect its memory or processor. {}", at, ranks_at(grid, odd), way_out);
    fail(Exit::numeric, "{}ranks {} do not hold the same bits, and no majority says which is right. {}", at, ranks_at(grid, some), way_out);
  });
}

template void check_replicas<double>(Engine<double>&, std::int64_t);
template void check_replicas<float>(Engine<float>&, std::int64_t);
template void check_replicas<bf16>(Engine<bf16>&, std::int64_t);

}  // namespace gyr
