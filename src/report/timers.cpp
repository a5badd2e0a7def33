// SPDX-License-Identifier: BSD-3-Clause
// A scope adds its time to its entry when it ends. The other functions compute statistics over ranks.
#include "src/report/timers.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/json.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"

namespace gyr {
namespace {

struct OverRanks {
  std::string name = {};
  Index calls = 0;                       // number of calls, maximum over the ranks
  double least = 0, mean = 0, most = 0;  // minimum, mean and maximum over the ranks, in seconds
  std::size_t slowest = 0;               // rank with the longest time
  double part = 0;                       // mean of this entry divided by the mean of the first entry
  std::size_t entry = 0;                 // index among all entries
};

std::vector<OverRanks> merge(std::span<const std::string> names, std::span<const double> packed) {
  const std::size_t row = 2 * names.size();
  ensure(row > 0 && !packed.empty() && packed.size() % row == 0, "timers: {} values are not a multiple of {}", packed.size(), row);
  const std::size_t ranks = packed.size() / row;
  std::vector<OverRanks> all;
  for (std::size_t n = 0; n < names.size(); ++n) {
    OverRanks a{.name = names[n], .least = packed[2 * n + 1], .entry = n};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double calls = packed[rank * row + 2 * n], seconds = packed[rank * row + 2 * n + 1];
      a.calls = std::max(a.calls, Index(calls));
      a.least = std::min(a.least, seconds);
      if (seconds > a.most) a.most = seconds, a.slowest = rank;
      a.mean += seconds / double(ranks);
    }
    const double total = all.empty() ? a.mean : all.front().mean;
    a.part = total > 0 ? a.mean / total : 0;
    all.push_back(a);
  }
  std::erase_if(all, [](const OverRanks& a) { return a.calls == 0; });
  return all;
}

}  // namespace

Timers::Timers(std::vector<std::string> names) : names_(std::move(names)), entries_(names_.size()) {}

Timers::Scope::Scope(Timers& timers, std::size_t entry) : timers_(timers), entry_(entry), outermost_(!timers.outermost_) {
  if (outermost_) timers_.outermost_ = entry_;
}

Timers::Scope::~Scope() {
  const bool measured = outermost_ || timers_.outermost_ == 0;
  if (outermost_) timers_.outermost_.reset();
  if (!measured) return;
  Entry& entry = timers_.entries_[entry_];
  ++entry.calls;
  entry.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

std::size_t Timers::find(std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  ensure(at != names_.end(), "timers: `{}` is not declared", name);
  return std::size_t(at - names_.begin());
}

std::vector<double> Timers::packed() const {
  std::vector<double> values;
  for (const Entry& entry : entries_) values.insert(values.end(), {double(entry.calls), entry.seconds});
  return values;
}

void Timers::reset() { std::fill(entries_.begin(), entries_.end(), Entry{}); }

std::string Timers::table(std::span<const std::string> names, std::span<const double> packed, double wall, std::size_t parts) {
  std::vector<OverRanks> all = merge(names, packed);
  double rest = wall;
  bool alike = true;
  for (const OverRanks& a : all) {
    if (a.entry == 0 || a.entry > parts) rest -= a.mean;
    alike = alike && a.most - a.least <= 0.01 * wall;
  }
  const Unit unit = time_unit(wall);
  const auto percent = [&](double seconds) { return fmt::format("{:.1f}", wall > 0 ? 100 * seconds / wall : 0); };
  std::vector<TableColumn> columns{{"section"}, {"calls", true}};
  if (alike) columns.push_back({unit.name, true});
  else columns.insert(columns.end(), {{"min " + unit.name, true}, {"mean " + unit.name, true}, {"max " + unit.name, true}, {"slowest rank", true}});
  columns.push_back({"% of run", true});
  Table table(columns);
  const auto row = [&](const std::string& name, const std::string& calls, const OverRanks& a) {
    if (a.most < 0.0005 * wall) return;
    std::vector<std::string> cells{name, calls};
    if (alike) cells.push_back(unit(a.mean));
    else cells.insert(cells.end(), {unit(a.least), unit(a.mean), unit(a.most), calls.empty() ? "" : fmt::format("{}", a.slowest)});
    cells.push_back(percent(a.mean));
    table.row(std::move(cells));
  };
  for (const OverRanks& a : all) row((a.entry > 0 && a.entry <= parts ? "  " : "") + a.name, fmt::format("{}", a.calls), a);
  row("rest", "", {.least = rest, .mean = rest, .most = rest});
  row("run", "", {.least = wall, .mean = wall, .most = wall});
  return table.str();
}

std::string Timers::json(std::span<const std::string> names, std::span<const double> packed) {
  Json sections = Json::array();
  for (const OverRanks& a : merge(names, packed))
    sections.push_back({{"name", a.name},
                        {"calls", a.calls},
                        {"min_seconds", a.least},
                        {"mean_seconds", a.mean},
                        {"max_seconds", a.most},
                        {"slowest_rank", a.slowest},
                        {"part", a.part}});
  return json_text({{"kind", "timers"}, {"sections", sections}});
}

}  // namespace gyr
