// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/engine.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

Index Capacity::bytes(Memory category) const {
  switch (category) {
    case Memory::weights: return weights;
    case Memory::gradients: return gradients;
    case Memory::optimizer: return optimizer;
    case Memory::activations: {
      Index sum = 0;
      for (const SlotMemory& chunk : slots) sum += chunk.count * chunk.bytes;
      return sum;
    }
    case Memory::scratch: return scratch;
    case Memory::communication: return communication;
  }
  return 0;
}

Capacity most_of(const Capacity& a, const Capacity& b) {
  Capacity most{std::max(a.weights, b.weights), std::max(a.gradients, b.gradients),         std::max(a.optimizer, b.optimizer),
                std::max(a.scratch, b.scratch), std::max(a.communication, b.communication), a.slots.size() > b.slots.size() ? a.slots : b.slots};
  for (std::size_t i = 0; i < std::min(a.slots.size(), b.slots.size()); ++i)
    most.slots[i] = {std::max(a.slots[i].count, b.slots[i].count), std::max(a.slots[i].bytes, b.slots[i].bytes)};
  return most;
}

Index Capacity::total() const {
  Index sum = 0;
  for (int i = 0; i < memory_categories; ++i) sum += bytes(Memory(i));
  return sum;
}

std::vector<std::string> engine_timer_names() {
  return {"step",          "data",      "forward",  "backward",   "pipeline wait",   "reduce gradients",
          "gradient norm", "optimizer", "evaluate", "checkpoint", "checkpoint write"};
}

namespace {

Arena arena(Memory category, const Capacity* capacity) { return capacity ? Arena(category, capacity->bytes(category)) : Arena::dry_run(category); }

}  // namespace

Index first_sample(Index micro_batch_size, Index i, const Grid& grid) {
  return (i * grid.layout().size(Axis::data) + grid.coordinate(Axis::data)) * micro_batch_size;
}

template <class T>
Engine<T>::Engine(const EngineConfig& config, Grid& grid, const Capacity* capacity, Timers& timers)
    : config_(config), grid_(grid), timers_(timers), device_(!capacity, capacity ? capacity->scratch : 0), weights_(arena(Memory::weights, capacity)),
      gradients_(arena(Memory::gradients, capacity)), optimizer_memory_(arena(Memory::optimizer, capacity)),
      communication_(arena(Memory::communication, capacity)), stage_(config.model, grid, config.optimizer.trained()), parts_(gradient_parts()),
      executor_(device_, grid, stage_, timers) {
  stage_.parameters().allocate(weights_, gradients_, config.training ? Gradients::kept : Gradients::none);
  if (config.training) optimizer_.emplace(config.optimizer, stage_.parameters(), optimizer_memory_);
  if (capacity) {
    stage_.make_slots(capacity->slots, false);
    return;
  }
  const Program program =
      config.training ? training_program(config.micros) : compile(forward_only, pipeline_shape(grid.layout(), 1), grid.coordinate(Axis::pipeline));
  std::vector<SlotMemory> slots;
  for (const int count : program.slots) slots.push_back({count, 0});
  stage_.make_slots(slots, true);
}

template <class T>
Capacity Engine<T>::measured() const {
  return {weights_.high_water(),        gradients_.high_water(),     optimizer_memory_.high_water(),
          device_.scratch.high_water(), communication_.high_water(), stage_.slots()};
}

// Parts are gathered from the back, in the order backward completes them, until a bucket has its bytes. Parts without gradients wait for
// none.
template <class T>
GradientParts Engine<T>::gradient_parts() const {
  GradientParts parts = stage_.parts();
  const std::vector<Span> ranges = stage_.ranges();
  Index bytes = config_.bucket_bytes;
  for (Index part = Index(ranges.size()) - 1; part >= 0; --part) {
    if (bytes >= config_.bucket_bytes) parts.buckets.push_back({part, part + 1}), bytes = 0;
    parts.buckets.back().first = part;
    bytes += ranges[part].size() * Index(sizeof(Acc<T>));
  }
  return parts;
}

template <class T>
Program Engine<T>::training_program(int micros) const {
  return compile(config_.schedule, pipeline_shape(grid_.layout(), micros), grid_.coordinate(Axis::pipeline), parts_);
}

template <class T>
void Engine<T>::set_hook(Hook<T>* hook) {
  ensure(!device_.dry_run(), "a dry run has no numbers for a hook");
  stage_.set_hook(hook_ = hook);
  executor_.set_hook(hook);
}

template <class T>
void Engine<T>::initialise(std::uint64_t seed) {
  for (const auto& p : stage_.parameters().all()) gyr::initialise<T>(device_, *p, seed);
  if (optimizer_) optimizer_->reset(device_);
}

template <class T>
std::vector<MicroBatch> Engine<T>::collect(const MicroBatches& source, int micros) const {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < micros; ++i) batches.push_back(source(i));
  return batches;
}

template <class T>
Index Engine<T>::labelled(const std::vector<MicroBatch>& batches) {
  grid_.tell("count labels");
  if (device_.dry_run()) return Index(batches.size()) * config_.micro_batch_size * config_.seq_length * grid_.group(Axis::data).size();
  double count = 0;
  for (const MicroBatch& batch : batches)
    for (const Token label : batch.labels) count += label != ignored_label;
  return Index(grid_.group(Axis::data).sum(count));
}

template <class T>
RunResult Engine<T>::run(const Program& program, const std::vector<MicroBatch>& batches, const RunOrder& order) {
  const std::vector<Span> ranges = stage_.ranges();
  return executor_.run(program, batches, order, [&](int bucket) {
    const Span& parts = parts_.buckets[bucket];
    const Index first = ranges[parts.first].first;
    const Index last = parts.last == Index(ranges.size()) ? stage_.parameters().extent() : ranges[parts.last - 1].last;
    if (first == last) return Event();
    return grid_.group(Axis::data).start_all_reduce(device_, rows(stage_.parameters().gradients(), first, last - first));
  });
}

template <class T>
RunResult Engine<T>::run_forward(const std::vector<MicroBatch>& batches, bool scores) {
  return run(compile(forward_only, pipeline_shape(grid_.layout(), int(batches.size())), grid_.coordinate(Axis::pipeline)), batches, {0, scores});
}

// Buckets first, then gradients that ranks of the tensor axis share, then the matrix of the embedding group; the order does not matter for sums.
template <class T>
void Engine<T>::finish_gradients() {
  auto t = timers_.scope("reduce gradients");
  grid_.tell("reduce gradients");
  executor_.wait_for_reductions();
  stage_.parameters().reduce_replicas(device_, communication_, grid_.tensor());
  if (Parameter* shared = stage_.shared_embedding(); shared && shared->trained)
    grid_.embedding_group()->all_reduce(device_, shared->template vector_gradient<Acc<T>>());
}

template <class T>
typename Engine<T>::Agreed Engine<T>::agree_over(Communicator& ranks, const Agreed& mine) {
  const double local[] = {mine.sum, mine.stop_request, mine.not_finite};
  const std::vector<double> all = ranks.gather(local);
  Agreed agreed;
  for (std::size_t i = 0; i < all.size(); i += 3)
    agreed = {agreed.sum + all[i], std::max(agreed.stop_request, all[i + 1]), std::max(agreed.not_finite, all[i + 2])};
  return agreed;
}

template <class T>
typename Engine<T>::Agreed Engine<T>::from_last_stage(const Agreed& mine) {
  if (device_.dry_run()) return mine;
  const Agreed replicas = agree_over(grid_.group(Axis::data), mine);
  const bool last = grid_.coordinate(Axis::pipeline) == grid_.group(Axis::pipeline).size() - 1;
  return agree_over(grid_.group(Axis::pipeline), {last ? replicas.sum : 0, replicas.stop_request, replicas.not_finite});
}

template <class T>
StepResult Engine<T>::gradients(const MicroBatches& source, int micros, const StepOrder& order) {
  const auto batches = collect(source, micros);
  StepResult result;
  result.tokens = labelled(batches);
  require(result.tokens > 0, Exit::data,
          "step {}: no token of the batch has a label: all are masked; take larger batches, or longer sequences if these cut the answers off",
          order.number);
  fill<Acc<T>>(device_, stage_.parameters().gradients(), 0);
  const double sum = run(training_program(micros), batches, {1.0 / double(result.tokens)}).loss;
  finish_gradients();
  if (on_gradients_ && !device_.dry_run()) on_gradients_(device_, stage_.parameters().gradients());
  if (hook_) hook_->gradients_are_whole();

  // The norm is summed over a replica, the loss over all ranks: stop requests and flags travel with both sums and so reach every rank.
  auto t = timers_.scope("gradient norm");
  grid_.tell("gradient norm");
  Agreed squares{optimizer_->gradient_squares(device_), order.stop_request, double(!std::isfinite(sum))};
  if (!device_.dry_run()) squares = agree_over(grid_.group(Axis::pipeline), agree_over(grid_.tensor().whole(), squares));
  result.gradient_norm = std::sqrt(squares.sum);
  const Agreed loss = from_last_stage({sum, squares.stop_request, std::max(squares.not_finite, double(!std::isfinite(result.gradient_norm)))});
  result.loss = loss.sum / double(result.tokens);
  result.stop_request = loss.stop_request;
  result.finite = device_.dry_run() || (loss.not_finite == 0 && std::isfinite(result.loss));
  if (!result.finite && config_.must_be_finite) not_finite(order.number, result);
  return result;
}

template <class T>
StepResult Engine<T>::train(const MicroBatches& source, int micros, const StepOrder& order) {
  StepResult result = gradients(source, micros, order);
  result.applied = result.finite && !(result.loss > order.loss_limit);
  if (!result.applied) return result;
  auto t = timers_.scope("optimizer");
  grid_.tell("optimizer");
  const double clip_grad = config_.optimizer.clip_grad;
  optimizer_->step(device_, order.lr, order.number, clip_grad > 0 && result.gradient_norm > clip_grad ? clip_grad / result.gradient_norm : 1);
  return result;
}

template <class T>
std::pair<double, Index> Engine<T>::evaluate(const MicroBatches& source, int micros) {
  const auto batches = collect(source, micros);
  const Index tokens = labelled(batches);
  const double sum = run_forward(batches, false).loss;
  return {from_last_stage({sum}).sum, tokens};
}

// Data replicas hold the same numbers once gradients are reduced. Where only some of them see a bad one, names their ranks.
template <class T>
std::string Engine<T>::only_some_replicas(bool bad) {
  const Layout& layout = grid_.layout();
  const double mine = bad;
  const std::vector<double> seen = grid_.world().gather({&mine, 1});
  std::vector<bool> replicas(layout.size(Axis::data), false);
  std::string ranks;
  for (int position = 0; position < layout.ranks(); ++position) {
    if (seen[position] == 0) continue;
    replicas[layout.coordinate(position, Axis::data)] = true;
    ranks += fmt::format("{} {}", ranks.empty() ? "" : ",", layout.rank_at(position));
  }
  if (std::count(replicas.begin(), replicas.end(), true) == std::ptrdiff_t(replicas.size())) return "";
  return fmt::format(", by rank{} and not by other replicas of the same numbers (suspect the memory or processor there)", ranks);
}

template <class T>
std::vector<std::vector<TokenScore>> Engine<T>::scores(const MicroBatches& source, int micros) {
  return run_forward(collect(source, micros), true).scores;
}

// Names the weight nearest to where it began: backward spreads a bad number towards the embedding, so the last weight in the order of the
// model whose gradient is bad is the closest to its origin; weights that are bad themselves come first.
template <class T>
void Engine<T>::not_finite(std::int64_t step, const StepResult& result) {
  using A = Acc<T>;
  const double loss = result.loss, norm = result.gradient_norm;
  const auto& all = stage_.parameters().all();
  const auto finite = [&](auto x) { return std::isfinite(sum_of_squares<typename decltype(x)::non_const_value_type>(device_, x)); };
  double bad_weight = -1, bad_gradient = -1;  // indices in `all`
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto value = optimizer_->has_master(*all[i]) ? Tensor1<const A>(optimizer_->master(*all[i])) : all[i]->template vector<const A>();
    if (bad_weight < 0 && !finite(value)) bad_weight = double(i);
    if (all[i]->trained && !finite(all[i]->template vector_gradient<const A>())) bad_gradient = double(i);
  }
  // The last stage that has one: its number and the index there.
  const auto last_stage_with = [&](double mine) {
    mine = grid_.tensor().whole().max(mine);
    const auto stages = grid_.group(Axis::pipeline).gather({&mine, 1});
    const auto found = std::find_if(stages.rbegin(), stages.rend(), [](double index) { return index >= 0; });
    return std::pair(int(stages.rend() - found) - 1, found == stages.rend() ? -1 : int(*found));
  };
  const auto weight = last_stage_with(bad_weight), gradient = last_stage_with(bad_gradient);
  const auto found = weight.second >= 0 ? weight : gradient;
  const int stage = found.first, index = found.second;
  const std::string alone = only_some_replicas(bad_weight >= 0 || bad_gradient >= 0);
  collective_check(grid_.world(), [&] {  // only the stage that holds the weight can name it; all ranks end with its error
    if (stage == grid_.coordinate(Axis::pipeline))
      fail(Exit::numeric,
           "step {}: loss {} and gradient norm {} are not both finite, first seen in the {} of {}{}. No weight has been changed: "
           "lower optimizer.lr, lengthen the warm-up, or look at the data of this step",
           step, loss, norm, weight.second >= 0 ? "value" : "gradient", all[index]->weight.name, alone);
  });
  fail(Exit::numeric, "step {}: loss {} and gradient norm {} are not both finite", step, loss, norm);
}

template class Engine<double>;
template class Engine<float>;
template class Engine<bf16>;

}  // namespace gyr
