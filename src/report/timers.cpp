// SPDX-License-Identifier: BSD-3-Clause
// A scope adds its time to its entry when it ends. The other functions compute statistics over ranks.
#include "src/report/timers.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/json.hpp"
#include "src/base/table.hpp"

namespace gyr {
namespace {

struct OverRanks {
  std::string name;
  Index calls = 0;                       // number of calls, maximum over the ranks
  double least = 0, mean = 0, most = 0;  // minimum, mean and maximum over the ranks, in seconds
  std::size_t slowest = 0;               // rank with the longest time
  double part = 0;                       // mean of this entry divided by the mean of the first entry
};

std::vector<OverRanks> merge(std::span<const std::string> names, std::span<const double> packed) {
  const std::size_t row = 2 * names.size();
  ensure(row > 0 && !packed.empty() && packed.size() % row == 0, "timers: {} values are not a multiple of {}", packed.size(), row);
  const std::size_t ranks = packed.size() / row;
  std::vector<OverRanks> all;
  for (std::size_t n = 0; n < names.size(); ++n) {
    OverRanks a{.name = names[n], .least = packed[2 * n + 1]};
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

Timers::Scope::~Scope() {
  Entry& entry = timers_.entries_[entry_];
  ++entry.calls;
  entry.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void Timers::add(std::string_view name, double seconds) {
  Entry& entry = entries_[find(name)];
  ++entry.calls;
  entry.seconds += seconds;
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

std::string Timers::table(std::span<const std::string> names, std::span<const double> packed) {
  Table table({{"section"}, {"calls", true}, {"min s", true}, {"mean s", true}, {"max s", true}, {"%", true}, {"max/mean", true}});
  for (const OverRanks& a : merge(names, packed))
    table.row({a.name, fmt::format("{}", a.calls), fmt::format("{:.3f}", a.least), fmt::format("{:.3f}", a.mean), fmt::format("{:.3f}", a.most),
               fmt::format("{:.1f}", 100 * a.part), a.mean > 0 ? fmt::format("{:.2f}", a.most / a.mean) : "-"});
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
