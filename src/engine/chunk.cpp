// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/chunk.hpp"

#include "kernels/rope.hpp"

namespace gyr {

namespace {

// Copies host numbers into a tensor, wherever it lives.
template <class V>
void upload(Device& dev, std::span<const V> from, Tensor1<V> to) {
  if (dev.dry_run() || from.empty()) return;
  const Kokkos::View<const V*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(from.data(), from.size());
  Kokkos::deep_copy(to, host);
}

// Positions of every row: those of packed documents, or counted from where each sequence stands.
std::vector<std::int32_t> positions_of(const Sequences& s, std::span<const std::int32_t> packed) {
  if (packed.empty()) {
    std::vector<std::int32_t> counted;
    for (Index b = 0; b < s.batch; ++b)
      for (Index t = 0; t < s.seq_length; ++t) counted.push_back(std::int32_t(s.past_of(b) + t));
    return counted;
  }
  ensure(Index(packed.size()) == s.rows(), "{} positions for {} rows", packed.size(), s.rows());
  for (Index r = 0; r < s.rows(); ++r)
    ensure(packed[r] == 0 || (packed[r] > 0 && (r % s.seq_length == 0 || packed[r] == packed[r - 1] + 1)),
           "row {} stands at position {} of a document and the row before it at {}", r, packed[r], r > 0 ? packed[r - 1] : -1);
  return {packed.begin(), packed.end()};
}

}  // namespace

template <class T>
Chunk<T>::Chunk(const ModelConfig& config, Span layers, Parameters<T>& parameters, Parameter* table) : config_(config), first_layer_(layers.first) {
  const bool first = layers.first == 0, last = layers.last == config.layers();
  const auto declared = [&](auto&& declare) {
    const Index before = parameters.extent();
    declare();
    ranges_.push_back({before, parameters.extent()});
    if (first && parameters.extent() == 0) lowest_ = Index(ranges_.size());
  };
  if (first) declared([&] { embedding_ = std::make_unique<Embedding<T>>(config_, parameters); });
  for (Index i = layers.first; i < layers.last; ++i)
    declared([&] {
      const auto make = std::get<MakeLayer<T>>(layer_type(config_.pattern[i]).make);
      layers_.push_back(make(config_, fmt::format("model.layers.{}", i), parameters));
    });
  if (last)
    declared([&] {
      if (config_.tie_word_embeddings && first) table = &embedding_->table();
      head_ = config_.objective->head(config_, config_.tie_word_embeddings ? table : nullptr, parameters);
    });
  // Ranges meet: padding in front of a parameter belongs to what comes after it.
  for (std::size_t i = 1; i < ranges_.size(); ++i) ranges_[i].first = ranges_[i - 1].last;
}

template <class T>
std::string Chunk<T>::stream_name(Index layer) const {
  return layer < 0 ? "model.embed_tokens.output" : fmt::format("model.layers.{}.output", first_layer_ + layer);
}

// Where every row stands: its position, the angles of that, and, of packed documents, how far it may look back.
template <class T>
void Chunk<T>::place(Device& dev, Slot<T>& slot, std::span<const std::int32_t> packed) const {
  const Index rows = slot.sequences.rows(), half = config_.attention.head_dim / 2;
  const auto positions = slot.frame.put(Keys::positions, rows);
  slot.cosine = slot.frame.put(Keys::cosine, rows, half);
  slot.sine = slot.frame.put(Keys::sine, rows, half);
  if (!dev.dry_run() || !packed.empty()) slot.host_positions = positions_of(slot.sequences, packed);
  upload<std::int32_t>(dev, slot.host_positions, positions);
  slot.documents = packed.empty() ? Documents() : Documents{positions, slot.host_positions};
  rope_table<Acc<T>>(dev, positions, config_.attention.rope_theta, slot.cosine, slot.sine);
}

template <class T>
Bundle<T> Chunk<T>::begin(Device& dev, Slot<T>& slot, const MicroBatch& batch) const {
  ensure(slot.frame.empty(), "the slot still holds a micro-batch");
  slot.sequences = {batch.batch, batch.seq_length, 0, {}};
  const Index rows = slot.sequences.rows();
  slot.tokens = slot.frame.put(Keys::tokens, rows);
  slot.labels = slot.frame.put(Keys::labels, rows);
  if (first()) upload<Token>(dev, batch.tokens, slot.tokens);
  if (last()) upload<Token>(dev, batch.labels, slot.labels);
  place(dev, slot, batch.positions);
  return put_input(slot);
}

template <class T>
Bundle<T> Chunk<T>::begin(Device& dev, Slot<T>& slot, const Sequences& sequences, std::span<const Token> tokens) const {
  slot.clear();
  slot.sequences = sequences;
  slot.tokens = slot.frame.put(Keys::tokens, sequences.rows());
  if (first()) upload<Token>(dev, tokens, slot.tokens);
  place(dev, slot, {});
  return put_input(slot);
}

template <class T>
Bundle<T> Chunk<T>::put_input(Slot<T>& slot) const {
  slot.stream = {};
  if (!first()) slot.stream.x = slot.frame.put(Keys::input, slot.sequences.rows(), config_.hidden_size);
  return slot.stream;
}

template <class T>
void Chunk<T>::embed(Pass<T>& a, Slot<T>& slot) {
  if (first()) slot.stream.x = embedding_->forward(a, frame_of(slot, -1), slot.tokens);
}

template <class T>
void Chunk<T>::run_and_keep(Pass<T>& a, Slot<T>& slot) {
  embed(a, slot);
  if (first()) a.show(Observed::activation, stream_name(-1), slot.stream.x);
  for (Index i = 0; i < Index(layers_.size()); ++i) {
    layers_[i]->forward(a, frame_of(slot, i), slot.stream);
    a.show(Observed::activation, stream_name(i), slot.stream.x);
  }
}

// What a layer has kept makes room for the next one's, and the stream stays in one place.
template <class T>
void Chunk<T>::run_through(Pass<T>& a, Slot<T>& slot) {
  embed(a, slot);
  for (Index i = 0; i < Index(layers_.size()); ++i) {
    Bundle<T> out = slot.stream;
    layers_[i]->forward(a, frame_of(slot, i), out);
    convert<T, T>(a.dev, Matrix<T>(out.x), Matrix<T>(slot.stream.x));
    frame_of(slot, i).clear();
  }
}

template <class T>
void Chunk<T>::forward(Pass<T>& a, Slot<T>& slot, double scale, Tensor1<double> loss, std::vector<RowScore>* each) {
  scale == 0 ? run_through(a, slot) : run_and_keep(a, slot);
  if (!last()) return;
  const Tensor2<T> x = slot.stream.x;
  if (scale == 0) {
    head_->loss(a, head_frame(slot), x, slot.labels, loss, each);
  } else {
    head_->loss_and_gradient(a, head_frame(slot), x, slot.labels, scale, loss);
    slot.gradient.x = slot.frame.put(Keys::gradient, x.extent(0), x.extent(1));
    head_->backward(a, head_frame(slot), slot.gradient.x);
    head_frame(slot).release(Phase::weight_gradients);
  }
}

template <class T>
Bundle<T> Chunk<T>::begin_backward(Slot<T>& slot) const {
  if (last()) return slot.gradient;
  slot.frame.release(slot.stream.x.data());
  slot.gradient.x = slot.frame.put(Keys::gradient, slot.sequences.rows(), config_.hidden_size);
  return slot.gradient;
}

template <class T>
Layer<T>* Chunk<T>::layer_of(Index part) const {
  const Index layer = part - Index(first());
  return layer >= 0 && layer < Index(layers_.size()) ? layers_[layer].get() : nullptr;
}

template <class T>
void Chunk<T>::backward_input(Pass<T>& a, Slot<T>& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    backward_part(a, slot, part);
    const Layer<T>* layer = layer_of(part);
    slot.frame.nested(int(part)).release(layer && layer->splits() ? Phase::input_gradients : Phase::weight_gradients);
  }
}

template <class T>
void Chunk<T>::backward_weights(Pass<T>& a, Slot<T>& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    if (Layer<T>* layer = layer_of(part)) layer->backward_weights(a, slot.frame.nested(int(part)));
    slot.frame.nested(int(part)).release(Phase::weight_gradients);
  }
}

template <class T>
void Chunk<T>::backward(Pass<T>& a, Slot<T>& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= parts.first; --part) {
    backward_input(a, slot, {part, part + 1});
    backward_weights(a, slot, {part, part + 1});
  }
}

// The head's is done with its forward.
template <class T>
void Chunk<T>::backward_part(Pass<T>& a, Slot<T>& slot, Index part) {
  const Index layer = part - Index(first());
  if (layer == Index(layers_.size())) return;
  a.show(Observed::gradient, stream_name(layer), slot.gradient.x);
  if (layer < 0) embedding_->backward(a, frame_of(slot, layer), slot.gradient.x);
  else layers_[layer]->backward_input(a, frame_of(slot, layer), slot.gradient);
}

template class Chunk<double>;
template class Chunk<float>;
template class Chunk<bf16>;

}  // namespace gyr
