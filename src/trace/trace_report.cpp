// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/trace/trace_summary.hpp"

namespace gyr {

namespace {

std::string heading(const std::vector<TraceFile>& files, std::size_t ranks) {
  std::string steps, text;
  Index left_out = 0;
  for (const TraceFile& f : files) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", f.step), left_out += f.left_out;
  text = fmt::format("step{} {} of {}; times are means per step\n", files.size() > 1 ? "s" : "", steps, counted(Index(ranks), "rank"));
  if (left_out > 0) text += counted(left_out, "record") + " did not fit into memory: the times below are incomplete\n";
  return text;
}

// Column of the times table: seconds of every rank.
struct TimeColumn {
  std::string name;
  std::vector<double> seconds;
};

std::vector<TimeColumn> time_columns_of(const std::vector<RankSummary>& ranks) {
  std::set<std::string> communicators;
  for (const RankSummary& r : ranks)
    for (const auto& [name, seconds] : r.exposed) communicators.insert(name);
  std::vector<TimeColumn> parts{{"busy", {}}};
  for (const std::string& name : communicators) parts.push_back({"wait " + printable(name), {}});
  for (const char* name : {"bubble", "rest", "hidden"}) parts.push_back({name, {}});
  for (const RankSummary& r : ranks) {
    std::size_t part = 0;
    parts[part++].seconds.push_back(r.busy);
    for (const std::string& name : communicators) parts[part++].seconds.push_back(r.exposed.contains(name) ? r.exposed.at(name) : 0);
    for (const double seconds : {r.bubble, r.rest, r.hidden}) parts[part++].seconds.push_back(seconds);
  }
  return parts;
}

// Columns below 0.05 % of the step on every rank are left out.
std::string times(const std::vector<RankSummary>& ranks) {
  double step = 0;
  for (const RankSummary& r : ranks) step = std::max(step, r.step);
  const Unit unit = time_unit(step);
  std::vector<TimeColumn> parts = time_columns_of(ranks);
  std::erase_if(parts, [&](const TimeColumn& p) { return *std::max_element(p.seconds.begin(), p.seconds.end()) < 0.0005 * step; });
  std::vector<TableColumn> columns{{"rank", true}, {"step " + unit.name, true}};
  for (const TimeColumn& p : parts) columns.push_back({p.name + " " + unit.name, true}), columns.push_back({"%", true});
  Table table(columns);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> cells{fmt::format("{}", ranks[i].rank), unit(ranks[i].step)};
    for (const TimeColumn& p : parts) cells.push_back(unit(p.seconds[i])), cells.push_back(fmt::format("{:.1f}", 100 * p.seconds[i] / ranks[i].step));
    table.row(std::move(cells));
  }
  return table.str() +
         "%: of the rank's step = busy + wait per communicator + bubble (wait for pipeline messages) + rest; hidden: transfers\n"
         "overlapped with work\n";
}

struct Shade {
  double up_to;
  const char* block;
};
constexpr Shade shades[] = {{0.9, "░░"}, {1.1, "▒▒"}, {slow_factor, "▓▓"}};

std::string shade_of(double ratio) {
  for (const Shade& s : shades)
    if (ratio <= s.up_to) return s.block;
  return "██";
}

std::string heat_map(const std::vector<RankSummary>& ranks, const std::vector<Comparison>& columns) {
  std::vector<TableColumn> titles{{"rank", true}};
  std::vector<Unit> units;
  for (const Comparison& c : columns) {
    units.push_back(time_unit(*std::max_element(c.seconds.begin(), c.seconds.end())));
    titles.insert(titles.end(), {{c.what}, {units.back().name, true}, {"ratio", true}});
  }
  Table table(titles);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> cells{fmt::format("{}", ranks[i].rank)};
    for (std::size_t n = 0; n < columns.size(); ++n) {
      const double ratio = columns[n].relative[i];
      cells.push_back(ratio > 0 ? shade_of(ratio) : "");
      cells.push_back(ratio > 0 ? units[n](columns[n].seconds[i]) : "-");
      cells.push_back(ratio > 0 ? fmt::format("{:.2f}", ratio) : "-");
    }
    table.row(std::move(cells));
  }
  return fmt::format(
             "work without waiting, per micro-batch and per step, relative to the median rank (of the stage, or of all if it has one rank):\n"
             "{} up to {} times, {} to {}, {} to {}, {} more: slow\n\n",
             shades[0].block, shades[0].up_to, shades[1].block, shades[1].up_to, shades[2].block, shades[2].up_to, shade_of(2 * slow_factor)) +
         table.str();
}

std::string slow_ranks(const std::vector<RankSummary>& ranks, const std::vector<Comparison>& columns) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::string why;
    for (const Comparison& c : columns)
      if (c.relative[i] > slow_factor) why += fmt::format("{}{} {:.2f}", why.empty() ? "" : ", ", c.what, c.relative[i]);
    if (why.empty()) continue;
    const std::string where = ranks[i].host.empty() ? "" : " on " + printable(ranks[i].host);
    const std::string name = ranks[i].name.empty() ? fmt::format("rank {}", ranks[i].rank) : printable(ranks[i].name);
    text += fmt::format("slow: {}{}: {} times the median\n", name, where, why);
  }
  return text.empty() ? fmt::format("no rank is slow: none takes more than {} times the median\n", slow_factor) : text;
}

}  // namespace

std::string trace_report(const std::vector<TraceFile>& files) {
  const std::vector<RankSummary> ranks = summary_of(files);
  const std::vector<Comparison> columns = comparisons_of(ranks);
  return heading(files, ranks.size()) + "\n" + times(ranks) + "\n" + heat_map(ranks, columns) + "\n" + slow_ranks(ranks, columns);
}

}  // namespace gyr
