// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/history_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"

namespace gyr {

namespace {

// Width of a sparkline in characters: what the other columns leave of the terminal.
std::size_t curve_width() { return std::size_t(std::clamp(output_width(stdout) - 60, 20, 60)); }
constexpr Index most_event_lines = 40;  // only the last events are listed; checkpoints are only counted

using Format = std::function<std::string(double)>;
Format as(const char* format) {
  return [=](double value) { return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-"; };
}
std::string count_text(double value) { return metric_text(value, ""); }

template <class F>
std::vector<double> column(const std::vector<const TakenStep*>& steps, const F& of) {
  std::vector<double> values;
  for (const TakenStep* s : steps) values.push_back(of(*s));
  return values;
}

std::string local_time(double seconds) {
  if (!(std::abs(seconds) < 1e12)) return "-";
  const std::time_t seconds_since_epoch = std::time_t(seconds);
  std::tm parts{};
  localtime_r(&seconds_since_epoch, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

struct Sparkline {
  const char* title;
  Format format;
  std::function<double(const TakenStep&)> of;
};
const std::vector<Sparkline>& curves() {
  static const std::vector<Sparkline> all = {{"loss", as("{:.4f}"), [](const TakenStep& s) { return s.loss; }},
                                             {"learning rate", as("{:.3g}"), [](const TakenStep& s) { return s.learning_rate; }},
                                             {"gradient norm", as("{:.3g}"), [](const TakenStep& s) { return s.grad_norm; }},
                                             {"tokens/s", count_text, [](const TakenStep& s) { return s.tokens_per_second; }},
                                             {"MFU %", as("{:.1f}"), [](const TakenStep& s) { return 100 * s.mfu; }},
                                             {"expert load", as("{:.2f}"), [](const TakenStep& s) { return s.expert_load; }}};
  return all;
}

// Table row of a metric: first value, sparkline, last value, minimum and maximum. Values that are not finite are left
// out.
void add_curve(Table& table, const char* title, const Format& text, const std::vector<double>& values) {
  std::vector<double> at(values.size());
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = double(i);
  const Thinned thin = thinned(at, values, curve_width());
  if (thin.mean.empty()) return;
  const auto finite = [](double v) { return std::isfinite(v); };
  table.row({title, text(*std::find_if(values.begin(), values.end(), finite)), sparkline(thin.mean),
             text(*std::find_if(values.rbegin(), values.rend(), finite)), text(*std::min_element(thin.least.begin(), thin.least.end())),
             text(*std::max_element(thin.most.begin(), thin.most.end()))});
}

std::string curves_of(const RunHistory& run) {
  Table table({{"", false}, {"first", true}, {"over kept steps", false, curve_width()}, {"last", true}, {"min", true}, {"max", true}});
  const auto steps = run.counted();
  for (const Sparkline& c : curves()) add_curve(table, c.title, c.format, column(steps, c.of));
  std::vector<double> validation;
  for (const ValidatedStep& v : run.validations)
    if (!v.overtaken) validation.push_back(v.loss);
  add_curve(table, "validation loss", as("{:.4f}"), validation);
  std::vector<double> rewards, lengths;
  for (const RewardedIteration& i : run.iterations)
    if (!i.overtaken) rewards.push_back(i.reward), lengths.push_back(i.length);
  add_curve(table, "reward", as("{:.4f}"), rewards);
  add_curve(table, "answer length", as("{:.1f}"), lengths);
  return table.str();
}

std::string events_of(const RunHistory& run) {
  Table table({{"time"}, {"step", true}, {"event"}, {"", false, 90}});
  const Index checkpoints = run.count(RunEvent::Kind::checkpoint), other_events = Index(run.events.size()) - checkpoints;
  const Index left_out = std::max<Index>(0, other_events - most_event_lines);
  Index at = 0;
  for (const RunEvent& e : run.events)
    if (e.kind != RunEvent::Kind::checkpoint && ++at > left_out)
      table.row({local_time(e.time), fmt::format("{}", e.step), std::string(name_of(e.kind)), printable(e.text)});
  std::string text = left_out > 0 ? fmt::format("{} left out; the HTML page (--html) shows all\n", counted(left_out, "earlier event")) : "";
  if (other_events > 0) text += table.str();
  if (checkpoints > 0) text += counted(checkpoints, "checkpoint") + " written\n";
  return text;
}

std::string sections_of(const RunHistory& run) {
  if (run.sections.empty() || run.ranks < 2) return "";
  double longest = 0;
  for (const SectionTime& s : run.sections) longest = std::max(longest, s.most);
  const Unit unit = time_unit(longest);
  Table table({{"section"}, {"mean " + unit.name, true}, {"max " + unit.name, true}, {"max/mean", true}, {"slowest rank", true}});
  for (const SectionTime& s : run.sections)
    if (s.most >= 0.0005 * longest)  // others are not used on this layout
      table.row({s.name, unit(s.mean), unit(s.most), s.mean > 0 ? fmt::format("{:.2f}", s.most / s.mean) : "-",
                 s.slowest_rank >= 0 ? fmt::format("{}", s.slowest_rank) : "-"});
  return table.str();
}

std::string differences_of(const std::vector<RunHistory>& runs) {
  const auto differences = deck_differences(runs);
  if (differences.empty()) return "the decks are the same\n";
  std::vector<TableColumn> columns{{"deck key", false, 48}};
  for (const RunHistory& run : runs) columns.push_back({printable(run.name)});
  Table table(columns);
  for (const auto& [key, values] : differences) {
    std::vector<std::string> cells{printable(key)};
    for (const std::string& value : values) cells.push_back(printable(value));
    table.row(cells);
  }
  return table.str();
}

std::string all_runs(const std::vector<RunHistory>& runs) {
  std::vector<TableColumn> columns;
  for (const auto& [name, value] : facts_of(runs.front())) columns.push_back({name, name != "run"});
  Table table(columns);
  for (const RunHistory& run : runs) {
    std::vector<std::string> cells;
    for (const auto& [name, value] : facts_of(run)) cells.push_back(value);
    table.row(cells);
  }
  return table.str();
}

std::string text_of(const RunHistory& run) {
  Table facts({{""}, {"", false, 90}});
  for (const auto& [name, value] : facts_of(run)) facts.row({name, value});
  if (!run.grid.empty()) facts.row({"grid", printable(run.grid) + (run.precision.empty() ? "" : ", " + printable(run.precision))});
  std::string text = facts.str(false);
  for (const std::string& part : {run.steps.empty() ? "" : curves_of(run), events_of(run), sections_of(run)}) {
    if (part.empty()) continue;
    text += '\n';
    text += part;
  }
  if (run.broken_lines > 0) text += counted(run.broken_lines, "line") + " of metrics.jsonl cannot be read\n";
  return text;
}

}  // namespace

std::string sparkline(const std::vector<double>& values) {
  static const char* const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double least = INFINITY, most = -INFINITY;
  for (const double v : values)
    if (std::isfinite(v)) least = std::min(least, v), most = std::max(most, v);
  std::string line;
  for (const double v : values) {
    if (!std::isfinite(v)) line += ' ';
    else line += bars[most > least ? int(std::min(7.0, (v / 2 - least / 2) / (most / 2 - least / 2) * 8)) : 0];
  }
  return line;
}

std::vector<std::pair<std::string, std::string>> facts_of(const RunHistory& run) {
  const auto steps = run.counted();
  const auto of_last = [&](const auto& of) { return steps.empty() ? NAN : of(*steps.back()); };
  double best = INFINITY, seconds = 0;
  for (const ValidatedStep& v : run.validations)
    if (!v.overtaken && std::isfinite(v.loss)) best = std::min(best, v.loss);
  for (const TakenStep& s : run.steps)
    if (std::isfinite(s.seconds)) seconds += s.seconds;
  const std::size_t recent = std::min<std::size_t>(10, steps.size());
  const Index starts = run.count(RunEvent::Kind::start);
  double loss = 0, losses = 0;
  for (std::size_t i = steps.size() - recent; i < steps.size(); ++i)
    if (std::isfinite(steps[i]->loss)) loss += steps[i]->loss, ++losses;
  return {{"run", printable(run.name)},
          {"state", printable(run.state)},
          {"step", fmt::format("{} of {}", run.reached(), run.steps_wanted)},
          {"tokens", count_text(of_last([](const TakenStep& s) { return s.tokens; }))},
          {"loss, last 10", as("{:.4f}")(loss / losses)},
          {"best validation", as("{:.4f}")(best)},
          {"tokens/s", count_text(median(column(steps, [](const TakenStep& s) { return s.tokens_per_second; })))},
          {"MFU %", as("{:.1f}")(100 * median(column(steps, [](const TakenStep& s) { return s.mfu; })))},
          {"memory per rank", bytes_text(of_last([](const TakenStep& s) { return s.memory_bytes; }))},
          {"ranks", run.ranks > 0 ? fmt::format("{}", run.ranks) : "-"},
          {"starts", starts > 0 ? fmt::format("{}", starts) : "-"},
          {"kills", fmt::format("{}", run.count(RunEvent::Kind::killed))},
          {"time in steps", duration(seconds)},
          {"useful time", run.useful.text()}};
}

std::string text_of(const std::vector<RunHistory>& runs) {
  std::string text;
  if (runs.size() > 1) text = all_runs(runs) + "\n" + differences_of(runs);
  for (const RunHistory& run : runs) {
    if (!text.empty()) text += '\n';
    text += text_of(run);
  }
  return text;
}

}  // namespace gyr
