// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <set>

#include "kernels/base/printable.hpp"
#include "src/base/table.hpp"
#include "src/trace/trace_summary.hpp"

namespace gyr {

namespace {

std::string heading(const std::vector<TraceFile>& files, std::size_t ranks) {
  std::string steps, text;
  Index left_out = 0;
  for (const TraceFile& f : files) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", f.step), left_out += f.left_out;
  text = fmt::format("step{} {} of {} rank{}; times are means per step\n", files.size() > 1 ? "s" : "", steps, ranks, ranks > 1 ? "s" : "");
  if (left_out > 0) text += fmt::format("{} records did not fit into memory: the times below are incomplete\n", left_out);
  return text;
}

// Appends the time in seconds and as a percentage of the step.
void add_time(std::vector<std::string>& cells, double seconds, double step) {
  cells.push_back(fmt::format("{:.4f}", seconds));
  cells.push_back(fmt::format("{:.1f}", 100 * seconds / step));
}

std::string times(const std::vector<RankSummary>& ranks) {
  std::set<std::string> communicators;
  for (const RankSummary& r : ranks)
    for (const auto& [name, seconds] : r.exposed) communicators.insert(name);
  std::vector<TableColumn> columns{{"rank", true}, {"step s", true}};
  const auto add = [&](const std::string& name) { columns.push_back({name + " s", true}), columns.push_back({"%", true}); };
  add("busy");
  for (const std::string& name : communicators) add("wait " + printable(name));
  for (const char* name : {"bubble", "rest", "hidden"}) add(name);
  Table table(columns);
  for (const RankSummary& r : ranks) {
    std::vector<std::string> cells{fmt::format("{}", r.rank), fmt::format("{:.4f}", r.step)};
    add_time(cells, r.busy, r.step);
    for (const std::string& name : communicators) add_time(cells, r.exposed.contains(name) ? r.exposed.at(name) : 0, r.step);
    for (const double seconds : {r.bubble, r.rest, r.hidden}) add_time(cells, seconds, r.step);
    table.row(std::move(cells));
  }
  return table.str() + "step = busy + wait per communicator + bubble (wait for pipeline messages) + rest; hidden: transfers overlapped with work\n";
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
  for (const Comparison& c : columns) titles.push_back({c.what}), titles.push_back({"ms", true}), titles.push_back({"ratio", true});
  Table table(titles);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> cells{fmt::format("{}", ranks[i].rank)};
    for (const Comparison& c : columns) {
      const double ratio = c.relative[i];
      cells.push_back(ratio > 0 ? shade_of(ratio) : "");
      cells.push_back(ratio > 0 ? fmt::format("{:.3f}", 1e3 * c.seconds[i]) : "-");
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
