// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/islands.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "src/base/limits.hpp"

namespace gyr {

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at) parts.emplace_back();
    else parts.back() += c;
  return parts;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

template <class T>
bool number_of(const std::string& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Island island_in(const std::string& text, const std::string& all) {
  const std::vector<std::string> parts = split(text, ':');
  Island island{trimmed(parts.front())};
  const bool known = !island.name.empty() && (parts.size() == 2 || parts.size() == 3) && number_of(trimmed(parts[1]), island.ranks) &&
                     (parts.size() == 2 || number_of(trimmed(parts[2]), island.speed));
  require(known && island.ranks > 0 && Index(island.ranks) <= most_ranks && std::isfinite(island.speed) && island.speed > 0, Exit::config,
          "cluster.emulate = '{}': '{}' is not an island; write name:ranks or name:ranks:speed, separated by commas, as in \"ib:4:197,roce:4:160\"",
          all, text);
  return island;
}

// All positions, in the order in which ranks are assigned to them.
std::vector<int> in_order(const Layout& layout) {
  std::vector<int> positions(std::size_t(layout.ranks()));
  std::iota(positions.begin(), positions.end(), 0);
  const auto key = [&](int p) {
    return std::array{layout.coordinate(p, Axis::pipeline), layout.coordinate(p, Axis::data), layout.coordinate(p, Axis::context),
                      layout.coordinate(p, Axis::tensor)};
  };
  std::stable_sort(positions.begin(), positions.end(), [&](int a, int b) { return key(a) < key(b); });
  return positions;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::string range_text(const std::set<int>& indices) {
  const int first = *indices.begin(), last = *indices.rbegin();
  if (last - first + 1 == int(indices.size())) return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  std::string text;
  for (const int n : indices) text += fmt::format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

// Reason why more than pipeline messages crosses islands.
std::string why_text(const Layout& layout, const Islands& islands) {
  const int of_stage = layout.ranks() / layout.size(Axis::pipeline);
  for (const Island& island : islands)
    if (island.ranks % of_stage != 0)
      return fmt::format(
          "a stage has {} ranks (data x context x tensor), which do not divide the {} ranks of {}; more pipeline ranks make stages smaller", of_stage,
          island.ranks, island.name);
  return "parallel.permutation is set";
}

}  // namespace

int ranks_of(const Islands& islands) {
  return std::accumulate(islands.begin(), islands.end(), 0, [](int sum, const Island& i) { return sum + i.ranks; });
}

int island_of(const Islands& islands, int rank) {
  int number = 0;
  for (int end = islands.front().ranks; rank >= end; end += islands[std::size_t(number)].ranks) ++number;
  return number;
}

Islands read_islands(Section& s) {
  const std::string text =
      s.get("emulate", "",
            "emulated islands, in rank order: name:ranks or name:ranks:speed of each, separated by commas. Each pipeline stage is placed on one "
            "island, with layers by its speed, unless parallel.permutation or parallel.layers is set; empty: none")
          .value();
  Islands islands;
  if (text.empty()) return islands;
  Index ranks = 0;
  std::set<std::string> names;
  for (const std::string& part : split(text, ',')) {
    islands.push_back(island_in(part, text));
    require(names.insert(islands.back().name).second, Exit::config, "cluster.emulate = '{}' names {} twice; give each island a name of its own", text,
            islands.back().name);
    ranks += islands.back().ranks;
  }
  require(ranks <= most_ranks, Exit::config, "cluster.emulate = '{}' has {} ranks; at most {} are allowed", text, ranks, most_ranks);
  return islands;
}

std::string to_text(const Islands& islands) {
  std::string text;
  for (const Island& i : islands) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", i.name, i.ranks);
    if (i.speed != 1) text += fmt::format(":{:g}", i.speed);
  }
  return text;
}

std::vector<int> order_by_islands(const Layout& layout, const Islands& islands) {
  ensure(ranks_of(islands) == layout.ranks(), "islands of {} ranks for a layout of {}", ranks_of(islands), layout.ranks());
  std::vector<int> permutation(std::size_t(layout.ranks()));
  int rank = 0;
  for (const int position : in_order(layout)) permutation[std::size_t(position)] = rank++;
  return permutation;
}

std::vector<double> speeds_of_stages(const Layout& layout, const Islands& islands) {
  std::vector<double> speeds(std::size_t(layout.size(Axis::pipeline)), std::numeric_limits<double>::infinity());
  for (int position = 0; position < layout.ranks(); ++position) {
    double& speed = speeds[std::size_t(layout.coordinate(position, Axis::pipeline))];
    speed = std::min(speed, islands[std::size_t(island_of(islands, layout.rank_at(position)))].speed);
  }
  return speeds;
}

bool crosses(const Layout& layout, const Islands& islands, Axis axis) {
  for (int position = 0; position < layout.ranks(); ++position) {
    const int first = layout.position_at([&](Axis a) { return a == axis ? 0 : layout.coordinate(position, a); });
    if (island_of(islands, layout.rank_at(position)) != island_of(islands, layout.rank_at(first))) return true;
  }
  return false;
}

std::string text_of(const Layout& layout, const Islands& islands) {
  std::vector<int> stage_of(std::size_t(layout.ranks()));  // pipeline stage of each rank
  for (int p = 0; p < layout.ranks(); ++p) stage_of[std::size_t(layout.rank_at(p))] = layout.coordinate(p, Axis::pipeline);
  std::string text;
  int rank = 0;
  for (std::size_t i = 0; i < islands.size(); ++i) {
    const std::set<int> stages(stage_of.begin() + rank, stage_of.begin() + rank + islands[i].ranks);
    Index layers = 0;
    for (std::size_t stage = 0; stage < layout.stages.size(); ++stage)
      if (stages.contains(int(stage) % layout.size(Axis::pipeline))) layers += layout.stages[stage].size();
    text += fmt::format("{}{} has ranks {}-{}, pipeline rank{} {} with {} layers", i == 0 ? "" : "; ", islands[i].name, rank,
                        rank + islands[i].ranks - 1, stages.size() == 1 ? "" : "s", range_text(stages), layers);
    rank += islands[i].ranks;
  }
  std::vector<std::string> across;
  for (const Axis axis : {Axis::data, Axis::context, Axis::tensor})
    if (crosses(layout, islands, axis)) across.emplace_back(name_of(axis));
  if (across.empty())
    return text + (crosses(layout, islands, Axis::pipeline)
                       ? ". Between islands: pipeline messages, sums of tied embeddings and norms, no data, context or tensor parallel traffic"
                       : ". Between islands: only sums of norms");
  return text + fmt::format(". Between islands there are also reductions over {} ranks, because {}", listed(across), why_text(layout, islands));
}

}  // namespace gyr
