// SPDX-License-Identifier: BSD-3-Clause
// History of a run, read from its output folder: the steps in metrics.jsonl, the events between them, the ends of its
// attempts, and its deck.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "src/history/useful_time.hpp"

namespace gyr {

// Values that are missing or not finite are NaN.
struct TakenStep {
  double time = 0;  // end of the step, seconds since 1970
  Index step = 0;
  double tokens, seconds, tokens_per_second, mfu, learning_rate, loss, grad_norm, expert_load, memory_bytes;
  bool overtaken = false;  // true if the step was repeated after a resume, so that it does not count
};

struct ValidatedStep {
  double time = 0;
  Index step = 0;
  double tokens, loss, accuracy, order_accuracy, margin;
  bool overtaken = false;
};

// An iteration of policy training: means over its answers.
struct RewardedIteration {
  double time = 0;
  Index step = 0, iteration = 0;  // step: optimizer steps before it
  double tokens, reward, length;
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

// Time of a timer section over the ranks of an attempt.
struct SectionTime {
  std::string name;
  double mean = 0, most = 0;  // seconds: mean and maximum over the ranks
  Index slowest_rank = -1;    // rank with the longest time; -1: unknown
};

struct RunHistory {
  std::string name, folder, run, state;
  std::string grid, precision, version;
  std::string host, git, command;  // of the last start: host of the first rank, git commit of the program, command line; "": not recorded
  Index ranks = 0, parameters = 0, steps_wanted = 0;
  std::vector<TakenStep> steps;
  std::vector<ValidatedStep> validations;
  std::vector<RewardedIteration> iterations;
  std::vector<RunEvent> events;                       // events in order of time
  std::vector<std::pair<std::string, Index>> memory;  // memory in bytes by category, maximum over the ranks
  UsefulTime useful;
  std::vector<SectionTime> sections;              // times of the last attempt that wrote its timers
  std::map<std::string, std::string> deck;        // all deck keys with their values
  Index broken_lines = 0;                         // lines of metrics.jsonl that cannot be parsed; a killed run may leave one
  std::vector<const TakenStep*> counted() const;  // steps that were not repeated later
  Index count(RunEvent::Kind) const;
  Index reached() const;  // number of the last step in the metrics; without steps, the step of the last event
  double begin() const;   // seconds since 1970; NaN if no time is known
  double end() const;
};

// Numbers that summarize a run. NaN: not reported.
struct RunSummary {
  double tokens;                              // tokens consumed up to the last step
  double loss;                                // mean training loss of the last ten steps
  double best_validation;                     // smallest validation loss
  double tokens_per_second, mfu;              // medians over the steps; mfu is a fraction
  double memory_bytes;                        // maximum over the ranks at the last step
  double step_seconds = 0, kept_seconds = 0;  // time in all steps, and in those that were not repeated later
};
RunSummary summary_of(const RunHistory&);

// Reads an output folder, given by its path or that of the metrics.jsonl in it; the run's name is the folder's. A run
// without a reported end counts as killed if it has an exit record or its ranks give no sign of life. Exit::missing if
// there are no metrics; Exit::data if they contain no start and no step.
RunHistory read_history(const std::filesystem::path& output);

// Deck keys whose values differ between the runs, with the value of each run; "" if a deck lacks the key.
std::vector<std::pair<std::string, std::vector<std::string>>> deck_differences(const std::vector<RunHistory>&);

// Points grouped into at most `buckets` buckets of neighbours for drawing. `at` of a bucket is that of its last point.
// NaN is left out.
struct Thinned {
  std::vector<double> at, mean, least, most;
};
Thinned thinned(const std::vector<double>& at, const std::vector<double>& value, std::size_t buckets);

double median(std::vector<double> values);  // median of the finite values; NaN if there are none

}  // namespace gyr
