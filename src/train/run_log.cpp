// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/run_log.hpp"

#include <algorithm>
#include <chrono>

#include "modules/cost/flops.hpp"
#include "src/base/json.hpp"
#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/engine/step/engine.hpp"
#include "src/report/build_facts.hpp"
#include "src/train/run_paths.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

namespace {

constexpr std::size_t steps_compared = 20;  // the first step is not compared: it compiles kernels and touches memory

constexpr std::size_t iterations_compared = 6;  // but the first, likewise

std::optional<TensorBoard::Resumed> resumed(const CheckpointHeader& at) {
  if (at.step == 0) return {};
  return TensorBoard::Resumed{at.step, at.samples};
}

double flops_of_sample(const RunConfig& run) {
  const TextLengths lengths = run.lengths();
  return training_flops(run.model, lengths, run.optimizer.trained()) * double(lengths.text);
}

std::string start_line(const RunConfig& run, const CheckpointHeader& at, const Resources& r) {
  Json memory = Json::object();
  for (const auto& [category, bytes] : r.memory) memory[category] = bytes;
  return json_text({{"kind", "start"},
                    {"time", now()},
                    {"run", at.run},
                    {"step", at.step},
                    {"attempt", r.attempt},
                    {"ranks", r.ranks},
                    {"grid", r.grid},
                    {"transport", r.transport},
                    {"parameters", parameter_count(run.model)},
                    {"precision", run.train.precision},
                    {"peak_flops_per_rank", r.peak},
                    {"memory", memory},
                    {"version", version()},
                    {"git", git_hash()},
                    {"host", host_name()},
                    {"command", command_line()}});
}

}  // namespace

std::string parameters_text(const RunConfig& run) {
  const Index all = parameter_count(run.model), trained = trained_parameter_count(run.model, run.optimizer.trained());
  const std::string text = counted(all, "parameter");
  return trained == all ? text : text + fmt::format(" ({} trainable, {:.3g} %)", trained, 100 * double(trained) / double(all));
}

RunLog::RunLog(const RunConfig& run, const CheckpointHeader& at, const Resources& resources)
    : seq_length_(run.train.seq_length), flops_(flops_of_sample(run) / double(run.train.seq_length)), resources_(resources),
      progress_(stdout, progress_style(stdout, run.train.log_every, run.log_format)), metrics_(metrics_of(run)),
      tensorboard_(path_in(run, "tensorboard"), now(), resumed(at)) {
  OutputFile file(path_in(run, "deck.yaml"));
  file.append(at.deck);
  file.commit();
  if (!run.open_metrics.empty())
    monitored_.emplace(run.open_metrics, MetricLabels{{"run", at.run}, {"output", run.output}, {"grid", resources.grid}, {"host", host_name()}});
  if (at.step == 0) metrics_.line(json_text({{"kind", "run"}, {"time", now()}, {"run", at.run}}));
  metrics_.line(start_line(run, at, resources));
}

// A file that cannot be written ends the monitoring, not the run.
template <class Report>
void RunLog::monitor(const Report& report) {
  if (!monitored_) return;
  const std::string why = monitored_->write(report);
  if (why.empty()) return;
  print_line(fmt::format("warning: log.openmetrics: {}; the run continues without this file", why));
  monitored_.reset();
}

void RunLog::step(StepReport report) {
  const double tokens = double(report.global_batch_size * seq_length_);
  report.time = now();
  report.tokens_per_second = tokens / report.seconds;
  report.tflops = flops_ * tokens / report.seconds / resources_.ranks / 1e12;
  report.mfu = mfu_of(report.tflops * 1e12);
  report.memory_bytes = resources_.memory_bytes;
  progress_.show(report);
  metrics_.write(report);
  tensorboard_.write(report);
  monitor(report);
  if (!expected_) return;
  seconds_.push_back(report.seconds);
  if (seconds_.size() == steps_compared) compare();
}

// FLOP rate divided by the peak, which is measured at the start. A rate above it shows that the measurement was disturbed.
std::optional<double> RunLog::mfu_of(double flops) {
  const double mfu = flops / resources_.peak;
  if (mfu <= 1) return mfu;
  if (!peak_disproved_)
    print_line(
        fmt::format("a step reaches {}, more than the GEMM rate of {} that was measured at the start: other programs were running then, so MFU "
                    "is not shown for such steps",
                    metric_text(flops, "FLOP/s"), metric_text(resources_.peak, "FLOP/s")));
  peak_disproved_ = true;
  return {};
}

// Compares the median: other jobs on a machine make some steps longer, and none shorter.
void RunLog::compare() {
  if (!expected_ || seconds_.size() < 2) return;
  const auto middle = seconds_.begin() + 1 + std::ptrdiff_t(seconds_.size() - 1) / 2;
  std::nth_element(seconds_.begin() + 1, middle, seconds_.end());
  const double measured = *middle, more = measured / expected_->seconds - 1;
  print_line(fmt::format("time per step: {} (median of {}), predicted {} ({:+.1f} %); maximum memory per rank: {}, planned {}",
                         time_text(measured, 4), seconds_.size() - 1, time_text(expected_->seconds, 4), 100 * more,
                         bytes_text(double(resources_.memory_bytes)), bytes_text(double(expected_->bytes))));
  metrics_.line(json_text({{"kind", "prediction"},
                           {"time", now()},
                           {"predicted_seconds", expected_->seconds},
                           {"measured_seconds", measured},
                           {"predicted_bytes", expected_->bytes},
                           {"memory_bytes", resources_.memory_bytes}}));
  expected_.reset();
}

void RunLog::calls(const CallSeconds& measured) {
  if (!expected_calls_) return;
  calls_.push_back(measured);
  if (calls_.size() == iterations_compared) compare_calls();
}

// Compares the means: the answers of an iteration may be longer than those of another.
void RunLog::compare_calls() {
  if (!expected_calls_ || calls_.size() < 2) return;
  const std::size_t iterations = calls_.size() - 1;
  Json seconds = Json::object();
  for (std::size_t i = 0; i < expected_calls_->named().size(); ++i) {
    const auto [name, predicted] = expected_calls_->named()[i];
    double measured = 0;
    for (std::size_t k = 1; k <= iterations; ++k) measured += calls_[k].named()[i].second / double(iterations);
    if (predicted <= 0) continue;
    print_line(fmt::format("{}: {} per iteration (mean of {}), predicted {} ({:+.1f} %)", name, time_text(measured, 4), iterations,
                           time_text(predicted, 4), 100 * (measured / predicted - 1)));
    seconds[name] = {{"predicted_seconds", predicted}, {"measured_seconds", measured}};
  }
  metrics_.line(json_text({{"kind", "calls"}, {"time", now()}, {"iterations", iterations}, {"calls", seconds}}));
  expected_calls_.reset();
}

void RunLog::validation(ValidationReport report) {
  report.time = now();
  progress_.show(report);
  metrics_.write(report);
  tensorboard_.write(report);
  monitor(report);
}

void RunLog::iteration(bool prints, const IterationReport& report) {
  if (prints) print_line(iteration_line(report));
  metrics_.line(iteration_json(report, now()));
}

void RunLog::saved(const Saved& saved) {
  print_line(fmt::format("checkpoint {}, {} in {}, written in {} ({}), training blocked for {}", saved.path.string(),
                         metric_text(double(saved.bytes), "B"), counted(saved.files, "file"), time_text(saved.write_seconds),
                         metric_text(double(saved.bytes) / saved.write_seconds, "B/s"), time_text(saved.blocked_seconds)));
  metrics_.line(json_text({{"kind", "checkpoint"},
                           {"time", now()},
                           {"step", saved.step},
                           {"bytes", saved.bytes},
                           {"files", saved.files},
                           {"write_seconds", saved.write_seconds},
                           {"blocked_seconds", saved.blocked_seconds}}));
  for (const std::string& note : saved.notes) print_line(note);
}

void RunLog::left_out(Index step, const Span& samples, const std::string& why, std::optional<Index> back) {
  print_line(fmt::format("{}. {}", why,
                         back
                             ? fmt::format("Rolled back to step {}; samples {} to {} are skipped from now on", *back, samples.first, samples.last - 1)
                             : std::string("The update is skipped on all ranks")));
  metrics_.line(json_text({{"kind", back ? "rollback" : "skip"},
                           {"time", now()},
                           {"step", step},
                           {"to", back.value_or(step)},
                           {"first_sample", samples.first},
                           {"samples", samples.size()},
                           {"why", why}}));
}

void RunLog::timers(const std::vector<std::string>& names, const std::vector<double>& all, double wall) {
  progress_.clear();
  compare(), compare_calls();
  progress_.print_line(Timers::table(names, all, wall, engine_step_parts(names)));
  metrics_.line(Timers::json(names, all));
}

}  // namespace gyr
