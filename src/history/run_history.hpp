// SPDX-License-Identifier: BSD-3-Clause
// What an output folder tells of its run: the steps of metrics.jsonl with what happened between them, how attempts ended, and the deck.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Numbers that are not finite, or that no line has, are NaN.
struct TakenStep {
  double time = 0;  // seconds since 1970
  Index step = 0;
  double tokens, seconds, tokens_per_second, mfu, learning_rate, loss, grad_norm, expert_load, memory_bytes;
  bool overtaken = false;  // taken again later: it does not count
};

struct ValidatedStep {
  double time = 0;
  Index step = 0;
  double tokens, loss, accuracy, order_accuracy, margin;
  bool overtaken = false;
};

struct RunEvent {
  enum class Kind { start, done, stopped, failed, killed, checkpoint, skip, rollback };
  Kind kind;
  double time = 0;
  Index step = 0;
  std::string text = {};
};
std::string_view name_of(RunEvent::Kind);

// Time of a section of the program over the ranks of an attempt.
struct SectionTime {
  std::string name;
  double mean = 0, most = 0;  // seconds
  Index slowest_rank = -1;    // -1: not told
};

struct RunHistory {
  std::string name, folder, run, state;
  std::string grid, precision, version;
  Index ranks = 0, parameters = 0, steps_wanted = 0;
  std::vector<TakenStep> steps;
  std::vector<ValidatedStep> validations;
  std::vector<RunEvent> events;                       // by time
  std::vector<std::pair<std::string, Index>> memory;  // bytes by category, most of any rank
  std::vector<SectionTime> sections;                  // of the last attempt that came to its end
  std::map<std::string, std::string> deck;            // every key and its value
  Index broken_lines = 0;                             // of metrics.jsonl, which a killed run may leave
  std::vector<const TakenStep*> counted() const;      // steps that were not taken again
  Index count(RunEvent::Kind) const;
  Index reached() const;  // the step at which the run stands
  double begin() const;   // seconds since 1970; NaN where nothing tells a time
  double end() const;
};

// Of an output folder, or of the metrics.jsonl in it; the name is the folder's. A run that has said nothing of its end and gives no sign of life was
// killed. Exit::missing where there are no metrics, Exit::data where not one line of them is a start or a step.
RunHistory read_history(const std::filesystem::path& output);

// Keys that not all of the decks say alike, with the value of each; a key that a deck lacks is "".
std::vector<std::pair<std::string, std::vector<std::string>>> deck_differences(const std::vector<RunHistory>&);

// Numbers in so few buckets of neighbours that they can be drawn: x of a bucket is that of its last number. NaN is left out.
struct Thinned {
  std::vector<double> at, mean, least, most;
};
Thinned thinned(const std::vector<double>& at, const std::vector<double>& value, std::size_t buckets);

double median(std::vector<double> values);  // of those that are finite; NaN where there is none

}  // namespace gyr
