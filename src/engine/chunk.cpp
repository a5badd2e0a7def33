// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/chunk.hpp"

namespace gyr {

namespace {

// Copies host numbers into a tensor, wherever it lives.
template <class V>
void upload(Device& dev, std::span<const V> from, Tensor1<V> to) {
  if (dev.dry_run() || from.empty()) return;
  const Kokkos::View<const V*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(from.data(), from.size());
  Kokkos::deep_copy(to, host);
}

}  // namespace

Chunk::Chunk(const ModelConfig& config, Span layers, Parameters& parameters, Parameter* table, int stream_parts, const RecomputeConfig& recompute)
    : config_(config), dtype_(parameters.dtype()), first_layer_(layers.first), stream_parts_(stream_parts), recompute_(recompute) {
  const bool first = layers.first == 0, last = layers.last == config.layers();
  const auto declared = [&](auto&& declare) {
    const Index before = parameters.extent();
    declare();
    ranges_.push_back({before, parameters.extent()});
    if (first && parameters.extent() == 0) lowest_ = Index(ranges_.size());
  };
  if (first) declared([&] { embedding_ = std::make_unique<Embedding>(config_, parameters); });
  for (Index i = layers.first; i < layers.last; ++i)
    declared([&] { layers_.push_back(layer_type(config_.pattern[i]).make(config_, fmt::format("model.layers.{}", i), parameters)); });
  if (last)
    declared([&] {
      if (config_.tie_word_embeddings && first) table = &embedding_->table();
      head_ = config_.objective->head(config_, config_.tie_word_embeddings ? table : nullptr, parameters);
    });
  // Ranges meet: padding in front of a parameter belongs to what comes after it.
  for (std::size_t i = 1; i < ranges_.size(); ++i) ranges_[i].first = ranges_[i - 1].last;
}

std::string Chunk::stream_name(Index layer) const {
  return layer < 0 ? "model.embed_tokens.output" : fmt::format("model.layers.{}.output", first_layer_ + layer);
}

// Where every row stands.
void Chunk::place(Device& dev, Slot& slot, std::span<const std::int32_t> packed) const {
  SequenceLayout& s = slot.sequences;
  const auto positions = slot.frame.put(Keys::positions, s.rows());
  if (!dev.dry_run() || !packed.empty()) slot.positions = positions_of(s, packed);
  upload<std::int32_t>(dev, slot.positions, positions);
  s.positions = positions;
  s.packed = packed.empty() ? std::span<const std::int32_t>() : slot.positions;
}

Bundle Chunk::begin(Device& dev, Slot& slot, const MicroBatch& batch) const {
  ensure(slot.frame.empty(), "the slot still holds a micro-batch");
  slot.sequences = {batch.batch, batch.seq_length};
  const Index rows = slot.sequences.rows();
  slot.tokens = slot.frame.put(Keys::tokens, rows);
  slot.labels = slot.frame.put(Keys::labels, rows);
  if (first()) upload<Token>(dev, batch.tokens, slot.tokens);
  if (last()) upload<Token>(dev, batch.labels, slot.labels);
  place(dev, slot, batch.positions);
  return put_input(slot);
}

Bundle Chunk::begin(Device& dev, Slot& slot, const SequenceLayout& sequences, std::span<const Token> tokens) const {
  slot.clear();
  slot.sequences = sequences;
  slot.tokens = slot.frame.put(Keys::tokens, sequences.rows());
  if (first()) upload<Token>(dev, tokens, slot.tokens);
  place(dev, slot, {});
  return put_input(slot);
}

Bundle Chunk::put_input(Slot& slot) const {
  slot.stream = {};
  if (!first()) slot.stream.x = put_stream(slot, Keys::input);
  return slot.stream;
}

AnyTensor2 Chunk::put_stream(Slot& slot, const Key<AnyTensor2>& key) const {
  return slot.frame.put(key, dtype_, StreamRows{slot.sequences.rows(), stream_parts_}.share(), config_.hidden_size);
}

void Chunk::embed(Pass& a, Slot& slot) {
  if (first()) slot.stream.x = embedding_->forward(a, frame_of(slot, -1), slot.tokens);
}

void Chunk::run_and_keep(Pass& a, Slot& slot) {
  embed(a, slot);
  if (first()) a.show(Observed::activation, stream_name(-1), slot.stream.x);
  slot.inputs.clear();
  for (Index i = 0; i < Index(layers_.size()); ++i) {
    slot.inputs.push_back(slot.stream);
    layers_[i]->forward(a, frame_of(slot, i), slot.stream);
    if (const Recompute policy = recompute_of(i)) frame_of(slot, i).drop(*policy, slot.stream.x.data);
    a.show(Observed::activation, stream_name(i), slot.stream.x);
  }
}

// What a layer has kept makes room for the next one's, and the stream stays in one place.
void Chunk::run_through(Pass& a, Slot& slot) {
  embed(a, slot);
  for (Index i = 0; i < Index(layers_.size()); ++i) {
    Bundle out = slot.stream;
    layers_[i]->forward(a, frame_of(slot, i), out);
    convert(a.dev, out.x, slot.stream.x);
    frame_of(slot, i).clear();
  }
}

void Chunk::forward(Pass& a, Slot& slot, double scale, Tensor1<double> loss, std::vector<RowScore>* each) {
  scale == 0 ? run_through(a, slot) : run_and_keep(a, slot);
  if (!last()) return;
  const AnyTensor2 x = slot.stream.x;
  if (scale == 0) {
    head_->loss(a, head_frame(slot), x, slot.labels, loss, each);
  } else {
    head_->loss_and_gradient(a, head_frame(slot), x, slot.labels, scale, loss);
    slot.gradient.x = put_stream(slot, Keys::gradient);
    head_->backward(a, head_frame(slot), slot.gradient.x);
    head_frame(slot).release(Phase::weight_gradients);
  }
}

Bundle Chunk::begin_backward(Slot& slot) const {
  if (last()) return slot.gradient;
  slot.frame.release(slot.stream.x.data);
  slot.gradient.x = put_stream(slot, Keys::gradient);
  return slot.gradient;
}

Layer* Chunk::layer_of(Index part) const {
  const Index layer = part - Index(first());
  return layer >= 0 && layer < Index(layers_.size()) ? layers_[layer].get() : nullptr;
}

void Chunk::backward_input(Pass& a, Slot& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    backward_part(a, slot, part);
    const Layer* layer = layer_of(part);
    slot.frame.nested(int(part)).release(layer && layer->splits() ? Phase::input_gradients : Phase::weight_gradients);
  }
}

void Chunk::backward_weights(Pass& a, Slot& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    if (Layer* layer = layer_of(part)) layer->backward_weights(a, slot.frame.nested(int(part)));
    slot.frame.nested(int(part)).release(Phase::weight_gradients);
  }
}

void Chunk::backward(Pass& a, Slot& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= parts.first; --part) {
    backward_input(a, slot, {part, part + 1});
    backward_weights(a, slot, {part, part + 1});
  }
}

// What the layer has dropped comes back, without another word to hooks.
void Chunk::forward_again(const Pass& a, Slot& slot, Index layer) {
  Pass again = a;
  again.hook = nullptr;
  Bundle stream = slot.inputs[layer];
  frame_of(slot, layer).again();
  layers_[layer]->forward(again, frame_of(slot, layer), stream);
}

// The head's is done with its forward.
void Chunk::backward_part(Pass& a, Slot& slot, Index part) {
  const Index layer = part - Index(first());
  if (layer == Index(layers_.size())) return;
  a.show(Observed::gradient, stream_name(layer), slot.gradient.x);
  if (layer >= 0 && recompute_of(layer)) forward_again(a, slot, layer);
  if (layer < 0) embedding_->backward(a, frame_of(slot, layer), slot.gradient.x);
  else layers_[layer]->backward_input(a, frame_of(slot, layer), slot.gradient);
}

}  // namespace gyr
