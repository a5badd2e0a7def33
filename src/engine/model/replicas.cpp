// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/replicas.hpp"

#include <xxhash.h>

#include <algorithm>
#include <map>

#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {

// Checksum of the state that replicas share: of expert weights, or of all others.
std::uint64_t checksum(ModelState& state, bool of_experts) {
  std::uint64_t sum = 0;
  std::vector<std::byte> copy;
  for (const auto& p : state.parameters()) {
    if (bool(p->weight.expert) != of_experts) continue;
    std::vector<Content> contents = state.optimizer_config().stored_with(p->weight);
    contents.insert(contents.begin(), Content::weight);
    for (const Content content : contents)
      if (const Piece x = state.tensor(*p, content); x && !is_zero_sharded(content, state.grid().layout().zero_shard())) {
        copy.resize(std::size_t(x.values.bytes()));
        copy_to_host(x.values, copy.data());
        sum = XXH3_64bits_withSeed(copy.data(), copy.size(), sum);
      }
  }
  return sum;
}

// Ranks in the given replicas that hold the same weights as this rank, unless a fault changed them.
std::string ranks_at(const Grid& grid, const std::vector<int>& replicas, bool of_experts) {
  const Layout& layout = grid.layout();
  const auto replica = [&](int position) { return layout.replicas(of_experts, position).rank; };
  std::string text;
  for (int position = 0; position < layout.ranks(); ++position) {
    const bool same_place = layout.coordinate(position, all_but(token_axes)) == grid.coordinate(all_but(token_axes)) &&
                            (!of_experts || layout.experts(position).rank == layout.experts(grid.position()).rank);
    if (same_place && std::find(replicas.begin(), replicas.end(), replica(position)) != replicas.end())
      text += fmt::format("{}{}", text.empty() ? "" : " and ", layout.rank_at(position));
  }
  return text;
}

void check(ModelState& state, std::int64_t step, bool of_experts) {
  Grid& grid = state.grid();
  Communicator& same = grid.replicas(of_experts);
  const std::uint64_t mine = checksum(state, of_experts);
  const double halves[] = {double(mine >> 32), double(mine & 0xffffffffu)};  // two halves of the checksum, each exact in a double
  const std::vector<double> all = same.gather(halves);
  std::map<std::pair<double, double>, std::vector<int>> holders;
  for (int replica = 0; replica < same.size(); ++replica) holders[{all[2 * replica], all[2 * replica + 1]}].push_back(replica);
  collective_check(grid.world(), [&] {
    if (holders.size() == 1) return;
    std::vector<int> odd, some;
    for (const auto& [sum, replicas] : holders) {
      const bool majority = 2 * replicas.size() > std::size_t(same.size());
      if (!majority) odd.insert(odd.end(), replicas.begin(), replicas.end());
      some.push_back(replicas.front());
    }
    const std::string at = fmt::format("step {}: replicas of the same weights differ (train.check_replicas): ", step);
    const char* way_out = "Resume from an earlier checkpoint; if it happens again, take that machine out of service";
    if (odd.size() < std::size_t(same.size()))
      fail(Exit::numeric, "{}rank {} holds other bits than the majority: suspect its memory or processor. {}", at, ranks_at(grid, odd, of_experts),
           way_out);
    fail(Exit::numeric, "{}ranks {} do not hold the same bits, and there is no majority to show which is right. {}", at,
         ranks_at(grid, some, of_experts), way_out);
  });
}

}  // namespace

void check_replicas(ModelState& state, std::int64_t step) {
  Grid& grid = state.grid();
  if (grid.group(token_axes).size() == 1) return;
  grid.begin_task("check replicas");
  for (const bool of_experts : {false, true}) check(state, step, of_experts);
}

}  // namespace gyr
