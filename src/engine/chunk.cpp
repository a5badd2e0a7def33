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
      head_ = std::make_unique<Head<T>>(config_, config_.tie_word_embeddings ? table : nullptr, parameters);
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
  auto positions = slot.saved.template push<Tensor1<std::int32_t>>("positions", rows);
  slot.cosine = slot.saved.template push<Tensor2<Acc<T>>>("cosine", rows, half);
  slot.sine = slot.saved.template push<Tensor2<Acc<T>>>("sine", rows, half);
  if (!dev.dry_run() || !packed.empty()) slot.host_positions = positions_of(slot.sequences, packed);
  upload<std::int32_t>(dev, slot.host_positions, positions);
  slot.documents = packed.empty() ? Documents() : Documents{positions, slot.host_positions};
  rope_table<Acc<T>>(dev, positions, config_.attention.rope_theta, slot.cosine, slot.sine);
}

template <class T>
Tensor2<T> Chunk<T>::begin(Device& dev, Slot<T>& slot, const MicroBatch& batch) const {
  ensure(slot.saved.empty(), "the slot still holds a micro-batch");
  slot.sequences = {batch.batch, batch.seq_length, 0, {}};
  const Index rows = slot.sequences.rows();
  slot.tokens = slot.saved.template push<Tensor1<Token>>("token ids", rows);
  slot.labels = slot.saved.template push<Tensor1<Token>>("labels", rows);
  if (first()) upload<Token>(dev, batch.tokens, slot.tokens);
  if (last()) upload<Token>(dev, batch.labels, slot.labels);
  place(dev, slot, batch.positions);
  return push_input(slot);
}

template <class T>
Tensor2<T> Chunk<T>::begin(Device& dev, Slot<T>& slot, const Sequences& sequences, std::span<const Token> tokens) const {
  slot.saved.clear();
  slot.sequences = sequences;
  slot.tokens = slot.saved.template push<Tensor1<Token>>("token ids", sequences.rows());
  if (first()) upload<Token>(dev, tokens, slot.tokens);
  place(dev, slot, {});
  return push_input(slot);
}

template <class T>
Tensor2<T> Chunk<T>::push_input(Slot<T>& slot) const {
  return slot.input = first() ? Tensor2<T>() : slot.saved.template push<Tensor2<T>>("input", slot.sequences.rows(), config_.hidden_size);
}

template <class T>
Tensor2<T> Chunk<T>::run_and_keep(Pass<T>& a, Slot<T>& slot) {
  Tensor2<T> x = first() ? embedding_->forward(a, slot.tokens) : slot.input;
  if (first()) a.show(Observed::activation, stream_name(-1), x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(a, x);
    a.show(Observed::activation, stream_name(Index(i)), x);
  }
  return slot.output = x;
}

// For passes that no backward follows: what a layer has kept makes room for the next one's, and the stream stays in one place.
template <class T>
Tensor2<T> Chunk<T>::run_through(Pass<T>& a, Slot<T>& slot) {
  const Tensor2<T> x = first() ? embedding_->forward(a, slot.tokens) : slot.input;
  for (auto& layer : layers_) {
    const std::size_t before = a.saved.count();
    convert<T, T>(a.dev, Matrix<T>(layer->forward(a, x)), Matrix<T>(x));
    a.saved.forget(before);
  }
  return slot.output = x;
}

template <class T>
Tensor2<T> Chunk<T>::forward(Pass<T>& a, Slot<T>& slot) {
  return run_through(a, slot);
}

template <class T>
Tensor2<T> Chunk<T>::forward(Pass<T>& a, Slot<T>& slot, double scale, double& loss, std::vector<TokenScore>* each) {
  const Tensor2<T> x = scale == 0 ? run_through(a, slot) : run_and_keep(a, slot);
  if (!last()) return x;
  if (scale == 0) {
    loss += head_->loss(a, x, slot.labels, each);
  } else {
    auto dx = slot.saved.template push<Tensor2<T>>("dx", x.extent(0), x.extent(1));
    loss += head_->loss_and_gradient(a, x, slot.labels, scale, dx);
  }
  return x;
}

template <class T>
Tensor2<T> Chunk<T>::begin_backward(Slot<T>& slot) const {
  if (last()) return {};
  return slot.saved.template push<Tensor2<T>>("dx", slot.sequences.rows(), config_.hidden_size);
}

template <class T>
Tensor2<T> Chunk<T>::backward(Pass<T>& a, Slot<T>& slot, const Span& parts) {
  const bool begins = parts.last == Index(ranges_.size());
  if (begins) slot.dx = slot.saved.template pop<Tensor2<T>>("dx");
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) backward_part(a, part, slot.dx);
  if (parts.first == 0) slot.saved.clear();
  return slot.dx;
}

// The head's is done with its forward.
template <class T>
void Chunk<T>::backward_part(Pass<T>& a, Index part, Tensor2<T> dx) {
  const Index layer = part - Index(first());
  if (layer == Index(layers_.size())) return;
  a.show(Observed::gradient, stream_name(layer), dx);
  if (layer < 0) embedding_->backward(a, dx);
  else layers_[layer]->backward(a, dx);
}

template class Chunk<double>;
template class Chunk<float>;
template class Chunk<bf16>;

}  // namespace gyr
