// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/stage.hpp"

#include <algorithm>
#include <set>

#include "src/engine/model/filling.hpp"

namespace gyr {

Stage::Stage(const ModelConfig& config, DType dtype, Grid& grid, Trained trained, const RecomputeConfig& recompute, Factors factors,
             const OffloadConfig& offload)
    : config_(config), grid_(grid), parameters_(dtype, grid.layout().coordinates(grid.position(), weight_axes), std::move(trained),
                                                grid.layout().sharded_over(grid.position()), grid.layout().mixers()),
      offload_(offload) {
  require(
      factors == Factors::stored || config_.linear == LinearLayers::full, Exit::config,
      "--weights int8: the linear layers of this model are ternary (model.linear), and are quantized from the stored weights; take --weights stored");
  parameters_.adapt(config_.lora);
  parameters_.compute(config_.linear);
  const PipelineShape shape = pipeline_shape(grid.layout(), 1);
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const Span layers = grid.layout().stages.at(shape.stage(grid.coordinate(Axis::pipeline), chunk));
    Embedding* embedding = chunks_.empty() ? nullptr : chunks_.front()->embedding();
    chunks_.push_back(std::make_unique<Chunk>(config_, layers, parameters_, embedding ? &embedding->table() : nullptr, grid.layout().stream_parts(),
                                              recompute, offload));
  }
  parameters_.hold(factors);
  parameters_.lay_out(grid.layout().bucket_bytes);
  grid.add_blocks(grid.tensor(), parameters_.copy_counts(Axis::tensor, Parameters::Holders::all));
  if (grid.team()) grid.add_blocks(*grid.team(), parameters_.copy_counts(Axis::tensor, Parameters::Holders::team));
}

void Stage::allocate(Arena& weights, Arena& gradients, Gradients keep, Index positions) {
  require(config_.positions == 0 || positions <= config_.positions, Exit::config,
          "sequences of {} tokens: the model has only {} learned positions (model.positions); use shorter sequences", positions, config_.positions);
  parameters_.allocate(weights, gradients, keep);
  rotary_.emplace(weights, positions);
}

void Stage::fill(const std::function<void(ParameterList, const Arrived&)>& load) {
  Filling filling(parameters_);
  load(filling.weights(), filling.arrived());
}

Parameter* Stage::shared_embedding() {
  if (!shares_embedding(config_) || first() == last()) return nullptr;
  return first() ? &chunks_.front()->embedding()->table() : &head().table();
}

// A head tied to this rank's embedding table also uses the bucket of the table.
BucketPlan Stage::buckets() const {
  BucketPlan plan;
  plan.shard = parameters_.shard();
  plan.head = last();
  for (const Bucket& bucket : parameters_.buckets()) plan.kept_unsharded.push_back(bucket.kept_unsharded);
  for (const auto& chunk : chunks_) {
    plan.parts.push_back(int(chunk->groups().size()));
    for (const Span& groups : chunk->groups()) {
      std::set<int> buckets;
      for (Index group = groups.first; group < groups.last; ++group) buckets.insert(parameters_.bucket_of(int(group)));
      plan.buckets.emplace_back(buckets.begin(), buckets.end());
    }
  }
  if (last())
    for (const Parameter* used : {&chunks_.back()->head()->weight(), &chunks_.back()->head()->table()})
      if (const int bucket = parameters_.bucket_of(used->group()); !std::count(plan.buckets.back().begin(), plan.buckets.back().end(), bucket))
        plan.buckets.back().push_back(bucket);
  return plan;
}

void Stage::make_slots(const std::vector<SlotMemory>& memory, bool dry_run) {
  slots_.clear();
  for (const SlotMemory& chunk : memory) {
    auto& slots = slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i) slots.emplace_back(Arena::make(Memory::activations, chunk.bytes, dry_run));
  }
}

void Stage::make_slots(const std::vector<SlotMemory>& chunks, const Arena& memory) {
  slots_.clear();
  Index at = 0;
  for (const SlotMemory& chunk : chunks) {
    auto& slots = slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i, at += chunk.bytes) slots.emplace_back(memory.part(Memory::activations, at, chunk.bytes));
  }
}

void Stage::rehearse(const std::vector<int>& counts, const std::vector<Index>& rooms) {
  for (const int count : counts) {
    auto& slots = training_slots_.emplace_back();
    auto& scripts = scripts_.emplace_back();
    for (const Index capacity : rooms) scripts.push_back(std::make_shared<Script>(Script{{}, {}, {}, "tokens in an encoder input", capacity}));
    if (rooms.empty()) scripts.push_back(std::make_shared<Script>());
    for (int i = 0; i < count; ++i) slots.emplace_back(Tape(scripts_.back()), true);
    if (offload_.on)
      for (Slot& slot : slots) slot.offload.emplace();
  }
}

void Stage::replay(const std::vector<ReplayedSlots>& chunks, const Arena& memory, const Queue& queue) {
  char *const shared = memory.begin() + slot_bytes(chunks), *at = memory.begin();
  if (offload_.on) host_memory_ = HostMemory(host_bytes(chunks), offload_.folder), host_copies_ = std::make_unique<HostCopies>(queue);
  char* there = host_memory_.begin();
  for (const ReplayedSlots& chunk : chunks) {
    auto& slots = training_slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i, at += chunk.bytes) slots.emplace_back(Tape(chunk.rooms, at, shared), false);
    if (!offload_.on) continue;
    for (Slot& slot : slots) slot.offload.emplace(*host_copies_, there, chunk.host), there += chunk.host;
  }
}

namespace {
// Peak bytes of any of the slots in host memory.
Index offloaded(const std::deque<Slot>& slots) {
  Index most = 0;
  for (const Slot& slot : slots)
    if (slot.offload) most = std::max(most, slot.offload->high_water());
  return most;
}
}  // namespace

std::vector<ReplayedSlots> Stage::rehearsed() const {
  int all = 0;
  for (const auto& chunk : training_slots_) all += int(chunk.size());
  std::vector<ReplayedSlots> list;
  for (std::size_t c = 0; c < training_slots_.size(); ++c) {
    ReplayedSlots& slots = list.emplace_back(ReplayedSlots{int(training_slots_[c].size()), 0, 0, offloaded(training_slots_[c])});
    for (const auto& recorded : scripts_[c]) {
      const auto script = std::make_shared<Script>(*recorded);
      script->plan = plan_slot(script->blocks, all == 1);
      slots.bytes = std::max(slots.bytes, script->plan.slot), slots.shared = std::max(slots.shared, script->plan.shared);
      slots.rooms.push_back(script);
    }
  }
  return list;
}

std::vector<ReplayedSlots> Stage::replayed() const {
  std::vector<ReplayedSlots> list;
  for (const auto& chunk : training_slots_) {
    list.push_back({int(chunk.size()), 0, 0, offloaded(chunk), {}});
    for (const Slot& slot : chunk) {
      list.back().bytes = std::max(list.back().bytes, slot.tape->slot_high());
      list.back().shared = std::max(list.back().shared, slot.tape->shared_high());
    }
  }
  return list;
}

std::vector<SlotMemory> Stage::slots() const {
  std::vector<SlotMemory> memory;
  for (const auto& chunk : slots_) {
    memory.push_back({int(chunk.size()), 0});
    for (const Slot& slot : chunk) memory.back().bytes = std::max(memory.back().bytes, slot.arena.high_water());
  }
  return memory;
}

Index Stage::slots_capacity() const {
  Index sum = 0;
  for (const auto& chunk : slots_)
    for (const Slot& slot : chunk) sum += slot.arena.capacity();
  return sum;
}

Pass Stage::pass_of(Device& dev, const Text& text, bool causal, Hook* hook) {
  if (!text.positions.empty()) {
    const Index furthest = *std::max_element(text.positions.begin(), text.positions.end());
    ensure(furthest < rotary_->positions(), "a token is at position {}, but the rotary tables have {} positions", furthest, rotary_->positions());
  }
  const StreamRows stream{text.sequences.rows(), grid_.layout().stream_parts(), grid_.coordinate(Axis::tensor)};
  const Mask mask{causal, 0, 0, text.sequences.documents};
  Communicator* const context = text.sequences.shared() ? &grid_.group(Axis::context) : nullptr;
  const ExpertRanks experts{grid_.experts(), grid_.layout().expert_receive_capacity};
  Pass pass{dev, grid_.tensor(), grid_.team(), context, experts, *rotary_, text.sequences, stream, mask, nullptr, hook};
  pass.fp8 = fp8_;
  return pass;
}

Pass Stage::pass(Device& dev, Slot& slot) { return pass_of(dev, slot.text, config_.attention.causal, hook_); }

std::optional<Pass> Stage::source_pass(Device& dev, Slot& slot) {
  if (slot.source.sequences.rows() == 0) return {};
  return pass_of(dev, slot.source, false, nullptr);  // hooks observe only the decoder text
}

Bundle Stage::begin(Device& dev, const SequenceLayout& sequences, std::span<const Token> tokens, const GivenText& source) {
  ensure(chunks() == 1 && !grid_.layout().sequence, "generation requires one chunk per stage, without sequence parallelism");
  return chunk(0).begin(dev, slot(0, 0), {sequences, tokens}, source);
}

Bundle Stage::forward(Device& dev, StateStore& state) {
  Pass a = pass(dev, slot(0, 0));
  std::optional<Pass> source = source_pass(dev, slot(0, 0));
  if (source) a.source = &*source;
  a.state = &state, a.fp8 = Fp8Recipe::none;
  chunk(0).run_through(a, slot(0, 0));
  return slot(0, 0).stream;
}

AnyTensor2 Stage::logits(Device& dev, Rows which) {
  Slot& slot = this->slot(0, 0);
  Pass a = pass(dev, slot);
  const AnyTensor2 all = slot.stream.x();
  AnyTensor2 x = all;
  if (const Index seq_length = slot.text.sequences.seq_length; which == Rows::last && seq_length > 1) {
    x = slot.frame.put(Keys::last_rows, all.dtype, slot.text.sequences.batch, all.columns);
    for (Index b = 0; b < slot.text.sequences.batch; ++b) convert(dev, rows(all, (b + 1) * seq_length - 1, 1), rows(x, b, 1));
  }
  const AnyTensor2 out = slot.frame.put(Keys::logits, accumulator_of(x.dtype), x.rows, head().columns_here());
  head().predict(a, chunk(0).head_frame(slot), x, out);
  return out;
}

}  // namespace gyr
