// SPDX-License-Identifier: BSD-3-Clause
// Log of a run: on the terminal, in OUTPUT/metrics.jsonl, in OUTPUT/tensorboard and in the file of log.openmetrics. Only the first rank has one.
#pragma once

#include "kernels/base/printable.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/config/run_config.hpp"
#include "src/report/iteration_report.hpp"
#include "src/report/json_lines.hpp"
#include "src/report/open_metrics.hpp"
#include "src/report/progress.hpp"
#include "src/report/tensorboard.hpp"
#include "src/report/timers.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

double now();  // wall-clock time in seconds since 1970

// Resources that a run computes with.
struct Resources {
  int ranks = 1;
  double peak = 0;                // measured GEMM FLOP/s per rank, mean over ranks
  Index memory_bytes = 0;         // bytes of device memory per rank, maximum over ranks
  std::string transport = "MPI";  // communication library between ranks, e.g. MPI or NCCL
  std::string grid = {};
  int attempt = 0;                                         // number of the attempt under a supervisor, from 0
  std::vector<std::pair<std::string, Index>> memory = {};  // bytes of device memory per rank by category, maximum over ranks
};

// "45974 parameters"; with frozen weights, as with LoRA, "45974 parameters (1024 trainable, 2.23 %)".
std::string parameters_text(const RunConfig&);

class RunLog {
 public:
  // Also writes the effective deck to OUTPUT/deck.yaml. `at`: the state that the run continues from, with its run id
  // and deck. Exit::io.
  RunLog(const RunConfig&, const CheckpointHeader& at, const Resources&);

  // Sets the predicted time and memory of the run. They are logged next to the measured ones after the first 20 steps,
  // or at the end of a shorter run. Predicted calls of policy training are logged likewise after 6 iterations.
  void expect(const TrainOptions& options) { expected_ = options.expected, expected_calls_ = options.calls; }
  void calls(const CallSeconds& measured);  // of an iteration
  void print_line(std::string_view line) { progress_.print_line(printable_line(line)); }
  void step(StepReport);  // adds time, throughput and memory to the report, and logs it
  void validation(ValidationReport);
  void iteration(bool prints, const IterationReport&);  // prints: on standard output too
  void saved(const Saved&);
  // Logs a step that was not applied. `back`: the step that the run rolls back to; none: only the update is skipped.
  void left_out(Index step, const Span& samples, const std::string& why, std::optional<Index> back);
  // `wall`: duration of the training in seconds.
  void timers(const std::vector<std::string>& names, const std::vector<double>& all, double wall);

 private:
  void compare();
  template <class Report>
  void monitor(const Report&);
  void compare_calls();
  std::optional<double> mfu_of(double flops);

  Index seq_length_;
  double flops_;  // training FLOPs per token
  Resources resources_;
  bool peak_disproved_ = false;  // true if a step was faster than the measured peak
  Progress progress_;
  JsonLines metrics_;
  TensorBoard tensorboard_;
  std::optional<OpenMetricsFile> monitored_;  // file of log.openmetrics
  std::optional<Expectation> expected_;       // prediction of time and memory; empty: none, or already logged
  std::vector<double> seconds_;               // duration of each step so far, for the comparison with the prediction
  std::optional<CallSeconds> expected_calls_;
  std::vector<CallSeconds> calls_;  // of each iteration so far
};

}  // namespace gyr
