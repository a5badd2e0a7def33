// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/stage.hpp"

namespace gyr {

template <class T>
Stage<T>::Stage(const ModelConfig& config, Grid& grid, Trained trained)
    : config_(config), grid_(grid), parameters_(grid.layout().coordinates(grid.position(), weight_axes), std::move(trained)) {
  const PipelineShape shape = pipeline_shape(grid.layout(), 1);
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const Span layers = grid.layout().stages.at(shape.stage(grid.coordinate(Axis::pipeline), chunk));
    Embedding<T>* embedding = chunks_.empty() ? nullptr : chunks_.front()->embedding();
    chunks_.push_back(std::make_unique<Chunk<T>>(config_, layers, parameters_, embedding ? &embedding->table() : nullptr));
  }
  grid.add_tensor_blocks(parameters_.copy_counts(Axis::tensor));
}

template <class T>
Parameter* Stage<T>::shared_embedding() {
  if (!config_.tie_word_embeddings || first() == last()) return nullptr;
  return first() ? &chunks_.front()->embedding()->table() : &head().weight();
}

template <class T>
GradientParts Stage<T>::parts() const {
  GradientParts parts;
  for (const auto& chunk : chunks_) parts.parts.push_back(int(chunk->ranges().size()));
  return parts;
}

template <class T>
std::vector<Span> Stage<T>::ranges() const {
  std::vector<Span> all;
  for (const auto& chunk : chunks_) all.insert(all.end(), chunk->ranges().begin(), chunk->ranges().end());
  for (std::size_t i = 1; i < all.size(); ++i) all[i].first = all[i - 1].last;
  return all;
}

template <class T>
void Stage<T>::make_slots(const std::vector<SlotMemory>& memory, bool dry_run) {
  for (const SlotMemory& chunk : memory) {
    auto& slots = slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i) slots.emplace_back(Arena::make(Memory::activations, chunk.bytes, dry_run));
  }
}

template <class T>
void Stage<T>::make_slots(const std::vector<SlotMemory>& chunks, const Arena& memory) {
  Index at = 0;
  for (const SlotMemory& chunk : chunks) {
    auto& slots = slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i, at += chunk.bytes) slots.emplace_back(memory.part(Memory::activations, at, chunk.bytes));
  }
}

template <class T>
void Stage<T>::rehearse(const std::vector<int>& counts) {
  for (const int count : counts) {
    auto& slots = training_slots_.emplace_back();
    scripts_.push_back(std::make_shared<Script>());
    for (int i = 0; i < count; ++i) slots.emplace_back(Tape(scripts_.back()), true);
  }
}

template <class T>
void Stage<T>::replay(const std::vector<ReplayedSlots>& chunks, const Arena& memory) {
  char *const shared = memory.begin() + slot_bytes(chunks), *at = memory.begin();
  for (const ReplayedSlots& chunk : chunks) {
    auto& slots = training_slots_.emplace_back();
    for (int i = 0; i < chunk.count; ++i, at += chunk.bytes) slots.emplace_back(Tape(chunk.script, at, shared), false);
  }
}

template <class T>
std::vector<ReplayedSlots> Stage<T>::rehearsed() const {
  int all = 0;
  for (const auto& chunk : training_slots_) all += int(chunk.size());
  std::vector<ReplayedSlots> list;
  for (std::size_t c = 0; c < training_slots_.size(); ++c) {
    const auto script = std::make_shared<Script>(*scripts_[c]);
    script->plan = plan_slot(script->blocks, all == 1);
    list.push_back({int(training_slots_[c].size()), script->plan.slot, script->plan.shared, script});
  }
  return list;
}

template <class T>
std::vector<ReplayedSlots> Stage<T>::replayed() const {
  std::vector<ReplayedSlots> list;
  for (const auto& chunk : training_slots_) {
    list.push_back({int(chunk.size()), 0, 0, nullptr});
    for (const Slot<T>& slot : chunk) {
      list.back().bytes = std::max(list.back().bytes, slot.tape->slot_high());
      list.back().shared = std::max(list.back().shared, slot.tape->shared_high());
    }
  }
  return list;
}

template <class T>
std::vector<SlotMemory> Stage<T>::slots() const {
  std::vector<SlotMemory> memory;
  for (const auto& chunk : slots_) {
    memory.push_back({int(chunk.size()), 0});
    for (const Slot<T>& slot : chunk) memory.back().bytes = std::max(memory.back().bytes, slot.arena.high_water());
  }
  return memory;
}

template <class T>
Index Stage<T>::slots_capacity() const {
  Index sum = 0;
  for (const auto& chunk : slots_)
    for (const Slot<T>& slot : chunk) sum += slot.arena.capacity();
  return sum;
}

template <class T>
Pass<T> Stage<T>::pass(Device& dev, Slot<T>& slot) {
  return {dev, grid_.tensor(), slot.sequences, nullptr, slot.cosine, slot.sine, slot.documents, hook_};
}

template <class T>
Bundle<T> Stage<T>::begin(Device& dev, const Sequences& sequences, std::span<const Token> tokens) {
  ensure(chunks() == 1, "a stage of {} chunks does not generate", chunks());
  return chunk(0).begin(dev, slot(0, 0), sequences, tokens);
}

template <class T>
Bundle<T> Stage<T>::forward(Device& dev, StateStore& state) {
  Pass<T> a = pass(dev, slot(0, 0));
  a.state = &state;
  chunk(0).run_through(a, slot(0, 0));
  return slot(0, 0).stream;
}

template <class T>
Tensor2<Acc<T>> Stage<T>::logits(Device& dev, Rows which) {
  Slot<T>& slot = this->slot(0, 0);
  Pass<T> a = pass(dev, slot);
  const Tensor2<T> all = slot.stream.x;
  Tensor2<T> x = all;
  if (const Index seq_length = slot.sequences.seq_length; which == Rows::last && seq_length > 1) {
    x = slot.frame.put(Keys::last_rows, slot.sequences.batch, config_.hidden_size);
    for (Index b = 0; b < slot.sequences.batch; ++b) convert<T, T>(dev, Matrix<T>(rows(all, (b + 1) * seq_length - 1, 1)), rows(x, b, 1));
  }
  const auto out = slot.frame.put(Keys::logits, x.extent(0), head().columns_here());
  head().predict(a, chunk(0).head_frame(slot), x, out);
  return out;
}

template class Stage<double>;
template class Stage<float>;
template class Stage<bf16>;

}  // namespace gyr
