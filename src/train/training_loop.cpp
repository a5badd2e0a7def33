// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/training_loop.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/ops/policy/policy_loss.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/train/data_reading.hpp"
#include "src/train/recent_metrics.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

using Clock = Walltime::Clock;
// Metrics of the policy loss, by name.
std::vector<std::pair<std::string, double>> policy_figures_of(const StepResult& result, bool has_reference) {
  std::vector<std::pair<std::string, double>> figures;
  for (std::size_t f = 0; f < result.ahead_losses.size(); ++f)
    if (const bool of_reference = PolicyFigure(f) == PolicyFigure::k1 || PolicyFigure(f) == PolicyFigure::k3; has_reference || !of_reference)
      figures.emplace_back(policy_figure_names[f], result.ahead_losses[f].value_or(0));
  return figures;
}

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

TrainingLoop::TrainingLoop(const RunParts& parts, const RunData& data, StepSource& steps, RunStart& start, Saving& saving, RunLog* log,
                           const CheckpointHeader& at)
    : parts_(parts), data_(data), steps_(steps), start_(start), saving_(saving), log_(log), at_(at), step_actions_(parts.run),
      guard_(parts.run.train), skip_(parts.run.data.skip), furthest_(at.step) {}

void TrainingLoop::run() {
  remember();
  parts_.watch.progress_record().step(at_.step);  // a run without steps left reports this step as its last
  begin_ = Clock::now(), first_ = at_.step;
  stop_request_ = agreed_stop_request();
  if (!stop_request_ && !validated_ && step_actions_.validates(at_.step)) validate();  // an earlier attempt was stopped during this validation
  const bool nothing_left = finished();
  while (step_actions_.takes_another(at_.step, stop_request_)) {
    parts_.watch.progress_record().phase("train");
    if (!traced_step()) continue;  // false: the run has rolled back to a checkpoint
    saving_.poll();
    if (step_actions_.checks_replicas(at_.step)) parts_.engine.check_replicas(at_.step);
    if (step_actions_.leaves(at_.step, stop_request_)) break;
    const bool improved = step_actions_.validates(at_.step) && validate();
    if (improved || step_actions_.saves(at_.step, stop_request_)) save();
  }
  finish();
  if (log_ && nothing_left) report_nothing_left();
}

// Reads the run id, and the losses before this step, from the metrics file.
void TrainingLoop::remember() {
  const Past past = past_of(parts_.grid.world(), at_.run, metrics_of(parts_.run), at_.step, Guard::window);
  at_.run = past.run;
  validated_ = past.metrics.validated;
  for (const double loss : past.metrics.losses) guard_.remember(loss);
}

// Runs a step, with a trace if one is due. Returns false if the run has rolled back instead. The time of the step
// excludes work for the trace.
bool TrainingLoop::traced_step() {
  Trace& trace = parts_.trace;
  const Index number = at_.step + 1;
  if (!trace.takes(number)) return timed_step();
  parts_.engine.record(&trace.begin(parts_.grid), trace.kernels());
  const bool taken = timed_step();
  parts_.engine.record(nullptr, false);
  trace.write(number, parts_.grid);
  return taken;
}

bool TrainingLoop::timed_step() {
  ProgressRecord& progress_record = parts_.watch.progress_record();
  const Clock::time_point start = Clock::now();
  const double waited = progress_record.waited();
  std::optional<StepReport> report = step();
  if (!report) return false;
  report->seconds = since(start);
  progress_record.stepped(report->seconds, progress_record.waited() - waited);
  longest_step_ = std::max(longest_step_, report->seconds);
  report->seconds_left = since(begin_) / double(at_.step - first_) * double(report->steps - at_.step);
  if (log_) log_->step(*report);
  return true;
}

std::optional<StepReport> TrainingLoop::step() {
  auto t = parts_.timers.scope("step");
  const Recorder::Span span(parts_.grid.recorder(), step_span);
  const RunConfig& run = parts_.run;
  const Index number = at_.step + 1;
  parts_.watch.progress_record().step(number);
  parts_.engine.before(number);
  const StepSamples taken = steps_.samples(number, at_, skip_);
  const Span samples = taken.samples;
  const Index batch = taken.batch(), tokens = at_.tokens + batch * run.train.seq_length;
  const Index position = run.lr.unit == ScheduleUnit::steps ? number : run.lr.unit == ScheduleUnit::samples ? samples.last : tokens;
  const StepOrder order{number, run.lr.at(position), double(local_stop_request()), guard_.loss_limit(), run.weight_decay.at(position), taken.refuses};
  const auto beside = steps_.train_beside(order);
  const StepResult result = parts_.engine.step(order, taken, at_, [this](const std::string& line) { log_->print_line(line); });
  stop_request_ = int(result.stop_request);
  parts_.watch.progress_record().loss(result.loss);
  if (!result.applied && !result.refused && !leave_out(number, result, samples)) return {};
  at_.step = number, at_.samples = samples.last, at_.tokens = tokens;
  if (log_ && data_.training)
    for (const std::string& line : change_lines(*data_.training, samples.first, samples.last)) log_->print_line(line);
  if (result.applied) guard_.applied(result.loss, number > furthest_);
  furthest_ = std::max(furthest_, number);
  StepReport taken_step = report(result, batch, order.lr);
  taken_step.figures.insert(taken_step.figures.end(), beside.begin(), beside.end());
  return taken_step;
}

StepReport TrainingLoop::report(const StepResult& result, Index batch, double lr) const {
  StepReport r;
  r.step = at_.step, r.steps = parts_.run.train.steps;
  r.samples = at_.samples, r.tokens = at_.tokens, r.global_batch_size = batch;
  r.loss = result.loss, r.grad_norm = result.gradient_norm, r.learning_rate = lr;
  if (result.expert_load > 0) r.expert_load = result.expert_load;
  if (parts_.run.model.objective->predicts_sentence_order()) r.order_loss = result.ahead_losses.at(0);
  else if (parts_.run.policy) r.figures = policy_figures_of(result, parts_.run.policy->reads_reference());
  else r.mtp_losses = result.ahead_losses;
  if (const double choices = parts_.run.limited_choices(batch); choices > 0) r.dropped_choices = result.dropped_choices / choices;
  r.skipped = guard_.skipped(), r.nans = guard_.not_finite();
  return r;
}

// Decides about a step that was not applied, the same on every rank. It ends the run, counts the step as taken (true),
// or rolls back to the last checkpoint and never takes these samples again (false).
bool TrainingLoop::leave_out(Index step, const StepResult& result, const Span& samples) {
  const std::string why = result.finite ? guard_.spike(step, result.loss) : parts_.engine.bad_number(step, result);
  const bool back = guard_.bad(result.finite, why) == Guard::Verdict::rollback;
  if (log_) log_->left_out(step, samples, why, back ? std::optional(saving_.last()) : std::nullopt);
  if (back) go_back(samples);
  return !back;
}

void TrainingLoop::go_back(const Span& samples) {
  saving_.finish();  // the checkpoint to roll back to may still be in writing
  skip_.insert(std::upper_bound(skip_.begin(), skip_.end(), samples, [](const Span& a, const Span& b) { return a.first < b.first; }), samples);
  guard_.forget();
  at_ = start_.resume(RunStart::Changes::known, saving_.last() + 1);
  remember();
}

void TrainingLoop::save() {
  steps_.before_save();
  saving_.save(at_);
}

// Returns true if the state must be saved because its validation loss is the lowest so far.
bool TrainingLoop::validate() {
  auto t = parts_.timers.scope("evaluate");
  parts_.watch.progress_record().phase("validate");
  const TrainConfig& c = parts_.run.train;
  auto found = parts_.engine.validate(*data_.validation, c.eval_batches, parts_.run.batch_after(double(at_.tokens)), [&] {
    stop_request_ = agreed_stop_request();
    return stop_request_ != 0;
  });
  if (!found) {  // the next attempt begins with this validation
    if (log_ && finished())
      log_->print_line(fmt::format("stop requested by {}: all steps are done, the last validation is left to --resume", stop_reason(stop_request_)));
    return false;
  }
  require(std::isfinite(found->loss), Exit::numeric,
          "step {}: the validation loss is {}; the weights are not saved. Resume from an earlier checkpoint, with a lower optimizer.lr", at_.step,
          found->loss);
  ValidationReport report;
  report.step = at_.step, report.samples = at_.samples, report.loss = found->loss, report.figures = std::move(found->figures);
  if (log_) log_->validation(report);
  return saving_.validated(at_.step, found->loss);
}

void TrainingLoop::report_nothing_left() const {
  const Index steps = parts_.run.train.steps;
  if (at_.step == 0)
    log_->print_line("train.steps = 0: nothing is trained, and no checkpoint is saved; set train.steps to the number of optimizer steps");
  else log_->print_line(fmt::format("step {} is done, and train.steps = {}: nothing is left to do; raise train.steps to continue", at_.step, steps));
}

void TrainingLoop::finish() {
  if (step_actions_.saves_before_exit(at_.step, stop_request_, saving_.last())) save();
  saving_.finish();
  if (finished()) saving_.require_folder();
  parts_.grid.begin_task("report");
  const double wall = since(begin_);
  const std::vector<double> seconds = parts_.grid.world().gather(parts_.timers.packed());
  if (log_) log_->timers(parts_.timers.names(), seconds, wall);
  if (const auto& best = saving_.best(); log_ && best)
    log_->print_line(
        fmt::format("best checkpoint: {}, validation loss {:.4f}", checkpoint_path(checkpoints_of(parts_.run), best->step).string(), best->loss));
  if (log_ && data_.training && has_mixture(*data_.training))
    log_->print_line(fmt::format("data up to step {}: {}", at_.step, total_reading(*data_.training, at_.samples)));
  if (stop_request_ && !finished()) stopped();
}

void TrainingLoop::stopped() {
  collective_check(parts_.grid.world(), [&] {
    std::error_code ignored;
    if (parts_.lead()) std::filesystem::remove(stop_file(parts_.run.output), ignored);  // the stop request has been served
  });
  const std::string reason = stop_reason(stop_request_);
  require(saving_.last() > 0, Exit::again, "stopped by {} before the first step; nothing has been saved, so start the run again", reason);
  fail(Exit::again, "stopped by {} after step {} of {}; its checkpoint is saved, and --resume continues from it", reason, at_.step,
       parts_.run.train.steps);
}

// Stop request of this rank, 0: none. The agreed one is the maximum over all ranks, which takes a reduction.
int TrainingLoop::local_stop_request() const {
  if (parts_.folder.lost()) return folder_lost_reason;
  if (parts_.walltime.over(longest_step_, saving_.longest_seconds())) return walltime_reason;
  return parts_.watch.stop_file_seen() ? stop_file_reason : StopSignals::caught();
}
int TrainingLoop::agreed_stop_request() { return int(parts_.grid.world().max(local_stop_request())); }

}  // namespace gyr
