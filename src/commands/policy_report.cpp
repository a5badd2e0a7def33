// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/policy_report.hpp"

#include <algorithm>

#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
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

std::string calls_report(const RunConfig& run, const IterationTimes& times) {
  const AnswerCounts& a = times.answers;
  return prose(fmt::format(
             "\nCalls of an iteration, one after another: {} x {} of {} to prompts of {} ({}), {} of {} per step. Memory: of the call alone, on the "
             "rank that needs most. Tokens/s: new tokens, or tokens of prompts and answers that are read\n",
             counted(a.prompts, "prompt"), counted(a.group, "answer"), counted(a.tokens, "token"), counted(a.prompt_tokens, "token"),
             run.policy->plan.answer_tokens > 0 ? "rl.plan" : "the longest answers; rl.plan.answer_tokens sets others",
             counted(times.windows, "window"), counted(run.train.seq_length, "token"))) +
         calls_table(times);
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

}  // namespace

std::string policy_search_report(const RunConfig& run, int ranks, const Cluster& cluster, const PolicySearchResult& result) {
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
         pairs_table(result) + prose(heuristic_text(result)) + "\nOverrides of the fastest, after plan DECK or train DECK\n" +
         fmt::format("{}\n", fmt::join(words, " "));
}

}  // namespace gyr
