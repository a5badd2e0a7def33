// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/engine.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/device/upload.hpp"
#include "kernels/ops/sum.hpp"
#include "src/engine/memory/engine_memory.hpp"
#include "src/engine/model/label_counts.hpp"
#include "src/engine/step/agreement.hpp"
#include "src/engine/step/graphs.hpp"
#include "src/engine/step/non_finite.hpp"

namespace gyr {

Index first_sample(Index micro_batch_size, Index i, const Grid& grid) {
  return (i * grid.layout().size(Axis::data) + grid.coordinate(Axis::data)) * micro_batch_size;
}

Engine::Engine(const EngineConfig& config, Grid& grid, const Capacity* capacity, Timers& timers, const Arena* working)
    : config_(config), grid_(grid), timers_(timers), working_(working_memory(capacity, working)), device_(!capacity, scratch(working_, capacity)),
      weights_(arena(Memory::weights, capacity)), gradients_(arena(Memory::gradients, capacity)),
      optimizer_memory_(arena(Memory::optimizer, capacity)),
      stage_(config.model, config.precision, grid, config.optimizer.trained(), config.recompute, config.factors, config.offload),
      buckets_(stage_.buckets()), reduction_(stage_, grid), gathering_(device_, stage_, grid), without_graphs_(reason_without_graphs(config, grid)),
      executor_(device_, grid, stage_, reduction_, gathering_, timers, has_graphs_ && without_graphs_.empty()) {
  device_.library = config.gemm_library;
  stage_.multiply_in(config.fp8);
  if (!capacity && config.planned_gpu) device_.gpu = *config.planned_gpu;
  const ModelConfig& m = config.model;
  const Index longest_source = reads_neighbours(m) ? m.retrieval.neighbour_length() : reads_images(m) ? m.vision.rows() : config.source_length;
  stage_.allocate(weights_, gradients_, config.training ? Gradients::kept : Gradients::none, std::max(config.seq_length, longest_source));
  if (config.training && config.reduce_dtype) reduction_.reduce_in_type(*config.reduce_dtype, gradients_);
  sums_ = weights_.tensor<double>(2 + further_losses()), scales_ = weights_.tensor<double>(1 + further_losses());
  if (config.training) optimizer_.emplace(config.optimizer, stage_.parameters(), grid, optimizer_memory_, weights_);
  if (capacity) {
    stage_.make_slots(capacity->forwards, working_);
    stage_.replay(capacity->training, working_, device_.queue);
    return;
  }
  std::vector<SlotMemory> slots;
  for (const int count : program(forward_only, 1).slots) slots.push_back({count, 0});
  stage_.make_slots(slots, true);
  if (config.training) stage_.rehearse(training_program(config.micros).slots, config.source_rooms());
}

Capacity Engine::measured() const {
  return {weights_.high_water(),
          gradients_.high_water(),
          optimizer_memory_.high_water(),
          device_.dry_run() ? stage_.rehearsed() : stage_.replayed(),
          stage_.slots(),
          device_.scratch.high_water(),
          executor_.live()};
}

Program Engine::program(Schedule schedule, int micros) const {
  return compile(schedule, pipeline_shape(grid_.layout(), micros), grid_.coordinate(Axis::pipeline), buckets_);
}

void Engine::set_hook(Hook* hook) {
  ensure(!device_.dry_run(), "a dry run has no values for a hook");
  stage_.set_hook(hook_ = hook);
  executor_.set_hook(hook);
}

// Waits for the all-gathers that write into the weights.
ParameterList Engine::parameters() const {
  gathering_.wait();
  return stage_.parameters().all();
}

void Engine::initialise(std::uint64_t seed) {
  for (const auto& p : parameters())
    if (const double factor = config_.optimizer.width.of_init(p->weight); factor == 1) gyr::initialise(device_, *p, seed);
    else assign(device_, *p, [&, s = Stream(seed, p->weight.name)](Index i) { return factor * draw(p->weight.init, s, i); });
  reset_optimizer();
}

Piece Engine::tensor(const Parameter& p, Content content) const {
  const bool trains = optimizer_ && p.trained;
  switch (content.kind) {
    case Content::Kind::weight: gathering_.wait(); return p.kept_value();
    case Content::Kind::gradient: return p.kept_gradient();
    case Content::Kind::state: return trains ? optimizer_->state(p, content.name) : Piece();
    case Content::Kind::master: return trains ? optimizer_->master(p) : Piece();
    case Content::Kind::activation: break;
  }
  return {};
}

std::vector<Index> Engine::labelled(const std::vector<MicroBatch>& batches, Index further) {
  const Recorder::Span span(grid_.recorder(), "count labels");
  grid_.begin_task("count labels");
  Communicator& replicas = grid_.group(Axis::data);
  if (device_.dry_run())
    return std::vector<Index>(1 + further, Index(batches.size()) * config_.micro_batch_size * config_.seq_length * replicas.size());
  return label_counts(batches, *config_.model.objective, further > 0, replicas);
}

void Engine::run(const Program& program, const std::vector<MicroBatch>& batches, const RunOrder& order) {
  fill<double>(device_, sums_, 0);
  executor_.run(program, batches, order);
}

void Engine::run_forward(const std::vector<MicroBatch>& batches, Scores* scores) {
  run(program(forward_only, int(batches.size())), batches, {rows(sums_, 0, 1), {}, scores});
}

void Engine::upload_loss_scales(const std::vector<Index>& labels) {
  const std::vector<double> scales = loss_scales(labels, *config_.model.objective);
  if (!device_.dry_run()) backend::upload(device_.queue, scales.data(), scales_.data(), Index(scales.size() * sizeof(double)));
}

void Engine::begin_gradients() {
  const Recorder::Span span(grid_.recorder(), "clear");
  reduction_.begin(device_);
  clear_choices(device_, stage_.parameters().expert_loads());
}

void Engine::finish_gradients() {
  auto t = timers_.scope("reduce gradients");
  const Recorder::Span span(grid_.recorder(), "reduce gradients");
  grid_.begin_task("reduce gradients");
  reduction_.finish(device_);
  sum_choices(device_, grid_, stage_.parameters().expert_loads());
}

StepResult Engine::gradients(const MicroBatches& source, int micros, const StepOrder& order) {
  const auto batches = first_of(source, micros);
  const Index further = further_losses();
  const std::vector<Index> labels = labelled(batches, further);
  StepResult result{.tokens = labels[0]};
  require(result.tokens > 0, Exit::data,
          "step {}: no token of the batch has a label; raise train.seq_length if it truncates the answers, else train.global_batch_size",
          order.number);
  begin_gradients();
  upload_loss_scales(labels);
  run(training_program(micros), batches, {rows(sums_, 0, 1 + further), scales_, nullptr, config_.seed, order.number});
  finish_gradients();
  if (on_gradients_ && !device_.dry_run()) on_gradients_(stage_.parameters().kept_gradients());
  if (hook_) hook_->gradients_are_reduced();

  // The host reads the device only here in a step. Otherwise the GPU would idle after each block of logits and each
  // weight's squares. The squared norm is summed over a replica, the loss over all ranks. Stop requests and flags are
  // reduced with both sums and so reach every rank.
  auto t = timers_.scope("gradient norm");
  const Recorder::Span span(grid_.recorder(), "gradient norm");
  grid_.begin_task("gradient norm");
  squares_.run(device_, [&] { optimizer_->add_gradient_squares(device_, rows(sums_, 1 + further, 1)); });
  std::vector<double> mine = to_host(device_, sums_);
  const double squared = mine.back();
  mine.pop_back();
  const bool finite = std::all_of(mine.begin(), mine.end(), [](double sum) { return std::isfinite(sum); });
  expert_choices_ = expert_choices(device_, stage_.parameters().expert_loads());
  const Agreed squares = agree_in_replica(grid_, {{squared}, order.stop_request, double(!finite)});
  result.gradient_norm = std::sqrt(squares.sums[0]);
  const Agreed loss = agree_from_last_stage(
      grid_, {mine, squares.stop_request, std::max(squares.not_finite, double(!std::isfinite(result.gradient_norm))),
              maximum_expert_load(stage_.parameters().expert_loads(), expert_choices_), dropped_choices(stage_.parameters().expert_loads())});
  result.loss = config_.model.objective->reported(loss.sums[0], result.tokens);
  for (Index k = 1; k <= further; ++k) {
    result.ahead_losses.emplace_back();
    if (labels[k] > 0) result.ahead_losses.back() = config_.model.objective->reported(loss.sums[k], labels[k]);
  }
  result.stop_request = loss.stop_request;
  result.expert_load = loss.expert_load, result.dropped_choices = loss.dropped;
  result.finite = device_.dry_run() || (loss.not_finite == 0 && std::isfinite(result.loss));
  if (!result.finite && config_.must_be_finite) not_finite(order.number, result);
  return result;
}

StepResult Engine::train(const MicroBatches& source, int micros, const StepOrder& order) {
  StepResult result = gradients(source, micros, order);
  result.refused = result.finite && order.refuses && order.refuses(result);
  result.applied = result.finite && !result.refused && !(result.loss > order.loss_limit);
  if (!result.applied) return result;
  auto t = timers_.scope("optimizer");
  const Recorder::Span span(grid_.recorder(), "optimizer");
  grid_.begin_task("optimizer");
  const double clip_grad = config_.optimizer.clip_grad;
  const double scale = clip_grad > 0 && result.gradient_norm > clip_grad ? clip_grad / result.gradient_norm : 1;
  optimizer_->step(device_, {order.lr, order.weight_decay.value_or(config_.optimizer.weight_decay), scale, double(order.number)});
  move_biases(device_, stage_.parameters().expert_loads(), expert_choices_, config_.model.moe.bias_update_rate, config_.optimizer);
  executor_.run_after_step(training_program(micros));
  return result;
}

std::pair<double, Index> Engine::evaluate(const MicroBatches& source, int micros, Scores* scores) {
  const auto batches = first_of(source, micros);
  const Index tokens = labelled(batches)[0];
  run_forward(batches, scores);
  return {agree_from_last_stage(grid_, {{to_host(device_, sums_)[0]}}).sums[0], tokens};
}

Scores Engine::scores(const MicroBatches& source, int micros) {
  Scores scores;
  run_forward(first_of(source, micros), &scores);
  return scores;
}

void Engine::not_finite(std::int64_t step, const StepResult& result) {
  throw_non_finite(device_, grid_, config_.model, stage_.parameters(), *optimizer_, step, result.loss, result.gradient_norm);
}

}  // namespace gyr
