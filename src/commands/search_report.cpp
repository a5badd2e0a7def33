// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/search_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/machine/run_islands.hpp"

namespace gyr {

namespace {

// Parts of a step's time in seconds, under the names that tables show. Communication counts only as far as computation
// does not hide it.
struct Parts {
  explicit Parts(const Prediction& p) : seconds{p.compute, p.transfers, p.copies, p.buckets, bubble(p)} {}
  static constexpr std::array<const char*, 5> names{"compute", "model-parallel comm", "host copies", "data-parallel comm", "bubble"};
  std::array<double, 5> seconds;
};

std::string milli(double seconds) { return fmt::format("{:.1f}", 1e3 * seconds); }

// Time that this layout takes longer than the first one, and its parts: "7.40 ms = compute +48.60, model-parallel comm
// -41.20". The printed parts add up to the printed time: the largest one takes what rounding leaves.
std::string loss_of(const FoundLayout& found, const FoundLayout& first) {
  const Parts mine(found.prediction), best(first.prediction);
  const double more = found.prediction.seconds - first.prediction.seconds;
  if (more == 0) return "as fast";
  const Unit unit = time_unit(more);
  const double digit = unit.size * std::pow(10, -unit.decimals);  // value of the last printed digit
  std::array<Index, 5> digits;
  Index left = std::lround(more / digit);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    left -= digits[i] = std::lround((mine.seconds[i] - best.seconds[i]) / digit);
    if (std::abs(digits[i]) > std::abs(digits[largest])) largest = i;
  }
  digits[largest] += left;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i)
    if (digits[i] != 0)
      text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", Parts::names[i], digits[i] > 0 ? "+" : "", unit(double(digits[i]) * digit));
  return fmt::format("{} {} = {}", unit(more), unit.name, text);
}

// "76.04 GiB of 76.00 GiB": with as many decimals as make the two differ.
std::string taken_of(double takes, double has) {
  Unit unit = byte_unit(std::max(takes, has));
  while (unit.size > 1 && unit.decimals < 9 && takes != has && unit(takes) == unit(has)) ++unit.decimals;
  return fmt::format("{} {} of {} {}", unit(takes), unit.name, unit(has), unit.name);
}

std::string ranking(const RunConfig& run, int ranks, const Cluster& cluster, const SearchResult& result) {
  std::vector<TableColumn> columns;
  for (const char* title : ranking_titles) columns.push_back({title, true});
  columns[1] = {"layout", false, 110}, columns[2].right = columns[4].right = false, columns.back() = {"slower by", false, 44};
  Table table(columns);
  for (const auto& row : ranking_rows(run, ranks, cluster, result)) table.row(row);
  return table.str();
}

std::string rejected(const SearchResult& result) {
  Table table({{"layouts", true}, {"why", false, 120}});
  std::string heading;
  for (const auto& [title, layouts, why] : refused_rows(result)) {
    if (title != heading) table.heading(heading = title);
    table.row({layouts, why});
  }
  return table.str();
}

// Deck keys that define a layout, as words that a shell passes on.
std::string overrides_text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += (text.empty() ? "" : " ") + (line.find_first_of("[]\"' ,:") == std::string::npos ? line : "'" + line + "'");
  return text;
}

// Deck keys that define a layout, as YAML by section.
std::string deck_text(const std::vector<std::string>& lines) {
  std::string text, section;
  for (const std::string& line : lines) {
    const auto dot = line.find('.'), equals = line.find('=');
    if (line.substr(0, dot) != section) text += fmt::format("{}:\n", section = line.substr(0, dot));
    text += fmt::format("  {}: {}\n", line.substr(dot + 1, equals - dot - 1), line.substr(equals + 1));
  }
  return text;
}

// Progress of a search as one line.
std::string progress_text(const SearchProgress& p, double seconds) {
  const std::string least = p.least_bytes > 0 ? fmt::format(" (the smallest of these needs {})", taken_of(p.least_bytes, p.usable)) : "";
  return fmt::format("{} {:.0f} layouts: {} of the fastest found, {} predicted, {:.0f} too large for memory{}, {}, {:.0f} s",
                     p.ending ? "ending the search of" : "searching", p.layouts, p.ranked, p.predicted, p.too_large, least,
                     counted(Index(p.dry_runs), "dry run"), seconds);
}

}  // namespace

std::string recompute_text(const LayoutChoice& c) {
  return recompute_names[c.recompute] + (c.alpha >= 0 ? fmt::format(", alpha {:g}", c.offload_fraction()) : std::string());
}

const std::vector<const char*> ranking_titles{"",
                                              "layout",
                                              "shard",
                                              "micro-batch",
                                              "recompute",
                                              "step ms",
                                              Parts::names[0],
                                              Parts::names[1],
                                              Parts::names[2],
                                              Parts::names[3],
                                              Parts::names[4],
                                              "memory GiB",
                                              "MFU %",
                                              "slower by"};

std::vector<std::vector<std::string>> ranking_rows(const RunConfig& run, int ranks, const Cluster& cluster, const SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundLayout& f = result.best[i];
    std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{fmt::format("{}", i + 1), f.choice.text(), name_of(f.choice.shard),
                                                                               fmt::format("{}", f.choice.micro_batch_size), recompute_text(f.choice),
                                                                               milli(f.prediction.seconds)});
    for (const double seconds : Parts(f.prediction).seconds) row.push_back(milli(seconds));
    row.push_back(fmt::format("{:.1f}", double(f.bytes) / double(1 << 30)));
    row.push_back(fmt::format("{:.1f}", 100 * utilisation(run, ranks, cluster, f.prediction.seconds)));
    row.push_back(i == 0 ? "" : loss_of(f, result.best.front()));
  }
  return rows;
}

std::vector<std::array<std::string, 3>> refused_rows(const SearchResult& result) {
  constexpr std::size_t most = 16;
  std::vector<std::array<std::string, 3>> rows;
  const auto add = [&](const char* title, const Refusals& refusals) {
    const std::vector<Refusals::Line> lines = refusals.lines();
    double remaining = 0;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (i < most) rows.push_back({title, fmt::format("{:.0f}", lines[i].layouts), lines[i].why});
      else remaining += lines[i].layouts;
    if (remaining > 0) rows.push_back({title, fmt::format("{:.0f}", remaining), "for other reasons"});
  };
  add("Violates a rule of the deck", result.by_rules);
  add("Too large for memory", result.by_memory);
  if (result.slower > 0)
    rows.push_back({result.ended ? "Not predicted, because the search ended early" : "Too slow", fmt::format("{:.0f}", result.slower),
                    fmt::format("a step takes at least {}, by a lower bound", time_text(result.least_slower))});
  return rows;
}

SearchWatch SearchStatus::watch() {
  return [this](const SearchProgress& p) {
    if (line_.due()) line_.show(progress_text(p, line_.seconds()));
  };
}

SearchResult search_with_progress(const RunConfig& run, int ranks, const Machine& machine, SearchOptions options) {
  SearchStatus status;
  options.watch = status.watch();
  return search(run, ranks, machine.cluster, machine.profile ? &*machine.profile : nullptr, options);
}

std::string search_summary(const SearchResult& r) {
  return fmt::format(
      "{}: {}, {:.0f} too large for memory{}, {:.0f} {}, {} predicted; {}, {}", counted(Index(r.layouts), "layout"),
      counted(Index(r.by_rules.layouts()), "violates a rule of the deck", "violate a rule of the deck"), r.by_memory.layouts(),
      r.by_reserve > 0 ? fmt::format(" ({} less than the reserve)", counted(Index(r.by_reserve), "of them leaves", "of them leave")) : "", r.slower,
      r.ended ? "not predicted when the time was over" : "pruned (lower bound above the tenth)", r.predicted, counted(Index(r.dry_runs), "dry run"),
      time_text(r.seconds));
}

void require_found(const RunConfig& run, const SearchResult& r, int ranks, const Cluster& cluster) {
  if (!r.best.empty()) return;
  const char* const offload = run.offload.on ? "" : "activation.policy=swap (less memory for activations), ";
  const std::vector<Refusals::Line> large = r.by_memory.lines(), refused = r.by_rules.lines();
  if (r.ended)
    fail(Exit::config,
         "no layout of {} that fits on {} was found in {}: {:.0f} of {:.0f} layouts are too large for memory{}. --search-seconds 0 searches to the "
         "end; {}more ranks, a smaller model or shorter sequences need less memory",
         counted(ranks, "rank"), cluster.name, time_text(r.seconds), r.by_memory.layouts(), r.layouts,
         r.least.takes > 0 ? fmt::format("; the smallest of those needs {} of a device", taken_of(r.least.takes, r.least.has)) : "", offload);
  fail(Exit::config, "no layout of {} fits on {}: of {}, {}{}, {} too large for memory{}", counted(ranks, "rank"), cluster.name,
       counted(Index(r.layouts), "layout"), counted(Index(r.by_rules.layouts()), "violates a rule of the deck", "violate a rule of the deck"),
       refused.empty() ? "" : fmt::format(" (most often: {})", refused.front().why), counted(Index(r.by_memory.layouts()), "is", "are"),
       large.empty() ? "" : fmt::format(" (most often: {}); take {}more ranks, a smaller model or shorter sequences", large.front().why, offload));
}

namespace {

bool is_equal_within_error(const FoundLayout& found, const FoundLayout& first, double error) {
  return found.prediction.seconds - first.prediction.seconds < first.prediction.seconds * error;
}

// Sentence about the layouts that the error of the prediction does not distinguish; empty if there are none.
std::string equal_text(const RunConfig& run, const Cluster& cluster, const SearchResult& result) {
  const double error = cluster.errors.largest();
  const FoundLayout& first = result.best.front();
  std::size_t equal = 1;
  while (equal < result.best.size() && is_equal_within_error(result.best[equal], first, error)) ++equal;
  if (equal == 1) return "";
  return fmt::format("Layouts 1 to {} differ by less than {} ms ({:.1f} %, the mean error for published steps{}): any of them may be the fastest\n",
                     equal, milli(first.prediction.seconds * error), 100 * error, is_judged_length(run) ? "" : " of shorter sequences");
}

// `equal`: relative difference of step times that the error covers.
std::string own_layout_text(const SearchResult& result, int ranks, double equal) {
  if (!result.own) return "";
  const OwnLayout& own = *result.own;
  if (!own.found) return fmt::format("The deck's own layout cannot run on {} ranks of this cluster: {}\n", ranks, own.refused);
  const FoundLayout &found = *own.found, &first = result.best.front();
  const std::string place = own.place > 0  ? fmt::format("place {}", own.place)
                            : result.ended ? std::string("no known place, because the search ended early")
                                           : fmt::format("a place after the {} layouts that were ranked", own.ranked);
  std::string difference = own.place == 1 ? "no layout is faster" : "slower than the first by " + loss_of(found, first);
  if (own.place != 1 && is_equal_within_error(found, first, equal)) difference += ", which is within the error";
  return fmt::format("The deck's own layout has {}: {}, micro-batches of {}, recompute {}, shard {}; {} ms per step; {}\n", place, own.choice.text(),
                     own.choice.micro_batch_size, recompute_text(own.choice), name_of(own.choice.shard), milli(found.prediction.seconds), difference);
}

// Sentence about layouts that a search which ended early did not predict; otherwise empty.
std::string ended_text(const SearchResult& result) {
  if (!result.ended) return "";
  const double first = result.best.front().prediction.seconds, least = result.least_slower;
  const std::string limit = least >= first ? std::string("No layout is faster than the first, but others of the list may be missing")
                                           : fmt::format("A layout that was not predicted takes at least {}, {:.1f} % less than the first",
                                                         time_text(least), 100 * (first - least) / first);
  return fmt::format("The search ended after {} by --search-seconds, which counts processor time. {}. --search-seconds 0 searches to the end\n",
                     time_text(result.seconds), limit);
}

std::string search_notes(const RunConfig& run, int ranks, const Cluster& cluster, const SearchResult& result) {
  const LayoutChoice& best = result.best.front().choice;
  std::string text =
      ended_text(result) + equal_text(run, cluster, result) + own_layout_text(result, ranks, is_judged_length(run) ? cluster.errors.largest() : 0);
  for (const std::string& line : {batch_limit_text(run, ranks), divisible_batch_text(run, ranks)})
    if (!line.empty()) text += line + '\n';
  if (const std::string line = defaults_text(cluster); !line.empty()) text += "Defaults: " + line + '\n';
  for (const std::string& note : doubtful_links(cluster, ranks)) text += "Links: " + note + '\n';
  for (const std::string& note : doubtful_devices(cluster)) text += "Device: " + note + '\n';
  if (micros_of(run, best) == 1)
    text += fmt::format(
        "The fastest layout has one micro-batch per data-parallel rank: train.global_batch_size = {} is {} data-parallel ranks x micro-batches of "
        "{}.{}\n",
        run.largest_batch(), best.data, best.micro_batch_size, best.data < ranks ? " More data-parallel ranks need a larger batch." : "");
  if (cluster.device.reserve > 0)
    text += fmt::format("Reserve: {:g} GiB of each device remain free for CUDA context, NCCL and cuBLAS; {} less\n",
                        cluster.device.reserve / double(1 << 30), counted(Index(result.by_reserve), "layout leaves", "layouts leave"));
  const RunConfig first = with(on_cluster(run, cluster, ranks), best);
  return text +
         fmt::format("Accuracy: {}\nSave of a checkpoint: {}\n", error_text(run, ranks, cluster), save_text(first, layout_of(first, ranks), cluster));
}

// Optimizer steps that read at least `tokens` tokens.
Index steps_of(const RunConfig& run, double tokens) { return Index(std::ceil(tokens / double(run.largest_batch() * run.train.seq_length))); }

std::string costs_text(const RunConfig& run, int ranks, const Cluster& cluster, const SearchResult& result, double tokens) {
  if (tokens <= 0) return "";
  Table table({{"", true}, {"tokens/s", true}, {"days", true}, {"MWh", true}, {"device hours", true}, {"price", true}});
  const auto row = [&](const std::string& name, const FoundLayout& f) {
    const double rate = double(run.largest_batch() * run.train.seq_length) / f.prediction.seconds;
    const TrainingCost cost = training_cost(tokens, rate, ranks, cluster);
    table.row({name, fmt::format("{:.0f}", rate), days_text(run, ranks, cluster, cost),
               cost.joules > 0 ? fmt::format("{:.4g}", cost.joules / 3.6e9) : "unknown", metric_text(cost.seconds / 3600 * ranks, ""),
               cost.price > 0 ? money_text(cost.price, cluster) : "unknown"});
  };
  for (std::size_t i = 0; i < result.best.size(); ++i) row(fmt::format("{}", i + 1), result.best[i]);
  if (result.own && result.own->found) row("deck", *result.own->found);
  return prose(fmt::format(
             "\nTraining of {} in {}{}: days at this rate, energy of the devices (device.watts x devices x time), and their price (device.price)\n",
             metric_text(tokens, " tokens"), counted(steps_of(run, tokens), "step"), error_bar(run, ranks, cluster))) +
         table.str();
}

// Deck keys of the fastest layout, and of the steps that read `tokens`, if above 0.
std::vector<std::string> keys_of(const RunConfig& run, const SearchResult& result, double tokens) {
  std::vector<std::string> keys = deck_lines(result.best.front().choice, run.parallel.keep, result.islands);
  if (tokens <= 0 || run.policy) return keys;
  const auto last = std::find_if(keys.rbegin(), keys.rend(), [](const std::string& key) { return key.starts_with("train."); });
  keys.insert(last == keys.rend() ? keys.end() : last.base(), fmt::format("train.steps={}", steps_of(run, tokens)));
  return keys;
}

}  // namespace

std::string search_report(const RunConfig& run, int ranks, const Cluster& cluster, const SearchResult& result, double tokens) {
  require_found(run, result, ranks, cluster);
  const std::vector<std::string> keys = keys_of(run, result, tokens);
  return prose(fmt::format("{} of {}\n{}\n\nThe fastest layouts, predicted: times of a step in ms{} on the rank that computes longest, memory of the "
                           "rank that uses most\n",
                           counted(ranks, "rank"), cluster.name, search_summary(result), error_bar(run, ranks, cluster))) +
         ranking(run, ranks, cluster, result) + prose(search_notes(run, ranks, cluster, result)) + costs_text(run, ranks, cluster, result, tokens) +
         fmt::format("\nRejected layouts\n{}\nOverrides of the fastest layout, after train DECK\n{}\n\nDeck keys of the fastest layout\n{}",
                     rejected(result), overrides_text(keys), deck_text(keys));
}

}  // namespace gyr
