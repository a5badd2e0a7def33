// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/policy_report.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/commands/search_report.hpp"

namespace gyr {

namespace {

std::string rate_text(double tokens, double seconds) { return tokens > 0 && seconds > 0 ? metric_text(tokens / seconds, "") : ""; }

std::string calls_table(const IterationTimes& times) {
  double longest = 0, bytes = 0;
  for (const PlannedCall& call : times.calls) longest = std::max(longest, call.seconds), bytes = std::max(bytes, double(call.bytes()));
  const Unit seconds = time_unit(longest), memory = byte_unit(bytes);
  Table table({{"call"}, {seconds.name, true}, {"%", true}, {"ranks"}, {"layout", false, 60}, {"memory " + memory.name, true}, {"tokens/s", true}});
  for (const PlannedCall& call : times.calls)
    table.row({call.name, seconds(call.seconds), fmt::format("{:.1f}", 100 * call.seconds / times.seconds()), call.mesh.text(),
               call.layout ? call.layout->text() : "", call.bytes() > 0 ? memory(double(call.bytes())) : "", rate_text(call.tokens, call.seconds)});
  const AnswerCounts& a = times.answers;
  table.row({"iteration", seconds(times.seconds()), "100.0", "", "", "", rate_text(double(a.answers() * a.tokens), times.seconds())});
  return table.str();
}

}  // namespace

std::string iteration_text(const IterationTimes& times) {
  const auto longest =
      std::max_element(times.calls.begin(), times.calls.end(), [](const PlannedCall& a, const PlannedCall& b) { return a.seconds < b.seconds; });
  return fmt::format("{}; {} of it {}", time_text(times.seconds(), 4), time_text(longest->seconds, 4), longest->name);
}

std::string timeline_text(const IterationTimes& times) {
  constexpr std::size_t width = 50;
  const CallTimeline timeline = call_timeline(times);
  Table table({{"call"}, {"ranks"}, {fmt::format("0 to {}", time_text(timeline.seconds, 4)), false, width}});
  for (std::size_t i = 0; i < times.calls.size(); ++i) {
    std::string bar(width, '.');
    for (const CallSpan& span : timeline.spans) {
      if (span.call != i || span.end <= span.begin) continue;
      const auto column = [&](double seconds) { return std::size_t(std::lround(seconds / timeline.seconds * double(width))); };
      const std::size_t first = std::min(column(span.begin), width - 1), last = std::max(first + 1, column(span.end));
      bar.replace(first, last - first, last - first, times.overlaps ? char('0' + span.answers) : '#');
    }
    table.row({times.calls[i].name, times.calls[i].mesh.text(), bar});
  }
  const std::string note = times.overlaps ? "\nTwo iterations; digits: the iteration whose answers a call writes or reads\n" : "\nOne iteration\n";
  return prose(note) + table.str();
}

std::string calls_report(const RunConfig& run, const IterationTimes& times) {
  const AnswerCounts& a = times.answers;
  return prose(fmt::format(
             "\nCalls of an iteration, one after another: {} x {} of {} to prompts of {} ({}), {} of {} per step. Memory: of the call alone, on the "
             "rank that needs most. Tokens/s: new tokens, or tokens of prompts and answers that are read\n",
             counted(a.prompts, "prompt"), counted(a.group, "answer"), counted(a.tokens, "token"), counted(a.prompt_tokens, "token"),
             run.policy->plan.answer_tokens > 0 ? "rl.plan" : "the longest answers; rl.plan.answer_tokens sets others",
             counted(times.windows, "window"), counted(run.train.seq_length, "token"))) +
         calls_table(times) + timeline_text(times);
}

namespace {

std::vector<std::string> row_of(const std::string& place, const FoundIteration& f, const Unit& seconds, const Unit& memory,
                                const FoundIteration& first) {
  return {place,
          f.training.text(),
          fmt::format("{}", f.training.micro_batch_size),
          recompute_text(f.training),
          name_of(f.training.shard),
          f.place.empty() ? "as training" : f.place,
          seconds(f.seconds),
          seconds(f.generation_seconds),
          seconds(f.move_seconds),
          seconds(f.training_seconds),
          seconds(f.others_seconds),
          memory(f.bytes),
          fmt::format("{:.1f}", 100 * (f.seconds / first.seconds - 1))};
}

std::string pairs_table(const PolicySearchResult& result) {
  const FoundIteration& first = result.best.front();
  const Unit seconds = time_unit(result.heuristic ? result.heuristic->seconds : first.seconds), memory = byte_unit(first.bytes);
  Table table({{""},
               {"training", false, 60},
               {"micro-batch", true},
               {"recompute"},
               {"shard"},
               {"generation", false, 60},
               {"iteration " + seconds.name, true},
               {"generation", true},
               {"move", true},
               {"training", true},
               {"other calls", true},
               {"memory " + memory.name, true},
               {"slower by %", true}});
  for (std::size_t i = 0; i < result.best.size(); ++i) table.row(row_of(fmt::format("{}", i + 1), result.best[i], seconds, memory, first));
  if (result.heuristic) table.row(row_of("heuristic", *result.heuristic, seconds, memory, first));
  return table.str();
}

std::string heuristic_text(const PolicySearchResult& result) {
  if (!result.heuristic)
    return "Heuristic: all calls in one layout with the fewest tensor-parallel ranks, then pipeline ranks, with which all models fit; none fits\n";
  return fmt::format(
      "Heuristic: all calls in one layout with the fewest tensor-parallel ranks, then pipeline ranks, with which all models fit. The fastest pair "
      "takes {:.1f} % less time\n",
      100 * (1 - result.best.front().seconds / result.heuristic->seconds));
}

// How much faster iterations may be that a search did not predict before its time was over; empty if it predicted all.
std::string left_out_text(const PolicySearchResult& result) {
  std::string text;
  if (result.layouts_ended) text = "The time was over before all layouts of training were predicted: further ones may be faster. ";
  if (result.ended)
    text += fmt::format("The time was over before all pairs of these layouts were predicted: one of the others may take up to {:.1f} % less time. ",
                        100 * std::max(0.0, 1 - result.least_left_out / result.best.front().seconds));
  return text.empty() ? "" : text + "--search-seconds counts processor time; 0 searches to the end\n";
}

}  // namespace

std::string policy_search_report(const RunConfig& run, int ranks, const Cluster& cluster, const PolicySearchResult& result, double tokens) {
  require(
      !result.best.empty(), Exit::config,
      "no layout of training and generation of {} fits on {}: {} of {} pairs are too large for memory. Take activation.recompute=full, more ranks, "
      "or smaller models, or set rl.generate.sequences_together to fewer answers",
      counted(ranks, "rank"), cluster.name, result.counts.too_large, result.counts.pairs);
  std::vector<std::string> words;
  for (const std::string& line : result.best.front().lines) words.push_back(shell_word(line));
  const AnswerCounts answers = planned_answers(run);
  return prose(fmt::format(
             "{} of {}\n{} of training, {} of generation with a copy of the weights: {}, {} refused by rules; {} visited, {} too large for memory; "
             "{}\n\nThe fastest iterations, predicted, with answers of {} to prompts of {}. Other calls: scores, rewards, "
             "training of the critic. Memory: of the rank with the least left\n",
             counted(ranks, "rank"), cluster.name, counted(result.layouts, "layout"), counted(result.copies, "layout"),
             counted(result.counts.pairs, "pair"), result.refused, result.counts.moves + result.counts.too_large, result.counts.too_large,
             time_text(result.seconds), counted(answers.tokens, "token"), counted(answers.prompt_tokens, "token"))) +
         pairs_table(result) + prose(left_out_text(result)) + prose(heuristic_text(result)) +
         prose(fmt::format("Training with the fastest: {}\n", iterations_text(run, tokens, *result.best.front().times, ranks, cluster))) +
         timeline_text(*result.best.front().times) + "\nOverrides of the fastest, after plan DECK or train DECK\n" +
         fmt::format("{}\n", fmt::join(words, " "));
}

}  // namespace gyr
