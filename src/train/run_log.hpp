// SPDX-License-Identifier: BSD-3-Clause
// What a run tells people: on the terminal, in OUTPUT/metrics.jsonl and OUTPUT/tensorboard. The first rank has one.
#pragma once

#include "kernels/base/printable.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/config/run_config.hpp"
#include "src/report/json_lines.hpp"
#include "src/report/progress.hpp"
#include "src/report/tensorboard.hpp"
#include "src/report/timers.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

double now();  // seconds since 1970

// What a run computes with.
struct Resources {
  int ranks = 1;
  double peak = 0;                // flop/s of a rank
  Index memory_bytes = 0;         // of the rank that takes most
  std::string transport = "MPI";  // between ranks
  std::string grid = {};
  int attempt = 0;                                         // of its supervisor
  std::vector<std::pair<std::string, Index>> memory = {};  // bytes of each category, most of any rank
};

class RunLog {
 public:
  // Also writes the effective deck, OUTPUT/deck.yaml. `at`: what the run goes on from, with its id and deck. Exit::io.
  RunLog(const RunConfig&, const CheckpointHeader& at, const Resources&);

  // What was predicted of the run is told beside what its first steps take, or all of them where there are fewer.
  void expect(const Expectation& expected) { expected_ = expected; }
  void say(std::string_view line) { progress_.say(printable(line)); }
  void step(StepReport);  // adds time, rates and memory
  void validation(ValidationReport);
  void saved(const Saved&);
  // A step that was not applied; `back`: to where the run goes instead of leaving the update out.
  void left_out(Index step, const Span& samples, const std::string& why, std::optional<Index> back);
  void timers(const std::vector<std::string>& names, const std::vector<double>& all);

 private:
  void compare();

  Index seq_length_;
  double flops_;  // of a token
  Resources resources_;
  Progress progress_;
  JsonLines metrics_;
  TensorBoard tensorboard_;
  std::optional<Expectation> expected_;  // until it is told
  std::vector<double> seconds_;          // of the steps so far
};

}  // namespace gyr
