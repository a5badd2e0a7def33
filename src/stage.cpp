// SPDX-License-Identifier: BSD-3-Clause
#include "src/stage.hpp"

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
Stage<T>::Stage(const ModelConfig& config, Grid& grid, Trained trained)
    : config_(config), grid_(grid), parameters_(grid.tensor().size(), grid.tensor().rank(), std::move(trained)) {
  const int stage = grid.coordinate("pipeline"), stages = grid.layout().size("pipeline");
  first_ = stage == 0;
  last_ = stage == stages - 1;
  const auto declared = [&](auto&& declare) {
    const Index before = parameters_.extent();
    declare();
    ranges_.push_back({before, parameters_.extent()});
    if (first_ && parameters_.extent() == 0) lowest_ = int(ranges_.size());
  };
  if (first_) declared([&] { embedding_ = std::make_unique<Embedding<T>>(config_, parameters_); });
  const Span mine = grid.layout().stages.at(stage);
  first_layer_ = mine.first;
  for (Index i = mine.first; i < mine.last; ++i)
    declared([&] {
      const auto make = std::get<MakeLayer<T>>(layer_type(config_.pattern[i]).make);
      layers_.push_back(make(config_, fmt::format("model.layers.{}", i), parameters_));
    });
  if (last_)
    declared([&] {
      Parameter* table = config_.tie_word_embeddings && first_ ? &embedding_->table() : nullptr;
      head_ = std::make_unique<Head<T>>(config_, table, parameters_);
    });
  // Ranges meet: padding in front of a parameter belongs to what comes after it.
  for (std::size_t i = 1; i < ranges_.size(); ++i) ranges_[i].first = ranges_[i - 1].last;
  grid.add_tensor_blocks(parameters_.replica_counts());
}

template <class T>
Parameter* Stage<T>::shared_embedding() {
  if (!config_.tie_word_embeddings || first_ == last_) return nullptr;
  return first_ ? &embedding_->table() : &head_->weight();
}

template <class T>
void Stage<T>::make_slots(int count, Index bytes, bool dry_run) {
  for (int i = 0; i < count; ++i)
    slots_.push_back({ActivationStore(Arena::make(Memory::activations, bytes, dry_run)), {}, {}, {}, {}, {}, {}, {}, {}, {}});
}

template <class T>
Index Stage<T>::slot_bytes() const {
  Index most = 0;
  for (const Slot& slot : slots_) most = std::max(most, slot.saved.arena().high_water());
  return most;
}

template <class T>
Index Stage<T>::slots_capacity() const {
  Index sum = 0;
  for (const Slot& slot : slots_) sum += slot.saved.arena().capacity();
  return sum;
}

template <class T>
Pass<T> Stage<T>::pass(Device& dev, Slot& slot) {
  return {dev, slot.saved, grid_.tensor(), slot.sequences, nullptr, slot.cosine, slot.sine, slot.documents, hook_};
}

template <class T>
std::string Stage<T>::stream_name(Index layer) const {
  return layer < 0 ? "model.embed_tokens.output" : fmt::format("model.layers.{}.output", first_layer_ + layer);
}

// Where every row stands: its position, the angles of that, and, of packed documents, how far it may look back.
template <class T>
void Stage<T>::place(Device& dev, Slot& slot, std::span<const std::int32_t> packed) {
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
Tensor2<T> Stage<T>::begin(Device& dev, int i, const MicroBatch& batch) {
  Slot& slot = slots_[i];
  ensure(slot.saved.empty(), "slot {} still holds a micro-batch", i);
  slot.sequences = {batch.batch, batch.seq_length, 0, {}};
  const Index rows = slot.sequences.rows();
  slot.tokens = slot.saved.template push<Tensor1<Token>>("token ids", rows);
  slot.labels = slot.saved.template push<Tensor1<Token>>("labels", rows);
  if (first_) upload<Token>(dev, batch.tokens, slot.tokens);
  if (last_) upload<Token>(dev, batch.labels, slot.labels);
  place(dev, slot, batch.positions);
  return push_input(slot);
}

template <class T>
Tensor2<T> Stage<T>::push_input(Slot& slot) {
  return slot.input = first_ ? Tensor2<T>() : slot.saved.template push<Tensor2<T>>("input", slot.sequences.rows(), config_.hidden_size);
}

template <class T>
Tensor2<T> Stage<T>::forward(Pass<T>& a, Slot& slot) {
  Tensor2<T> x = first_ ? embedding_->forward(a, slot.tokens) : slot.input;
  if (first_) a.show(Observed::activation, stream_name(-1), x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(a, x);
    a.show(Observed::activation, stream_name(Index(i)), x);
  }
  return slot.output = x;
}

// As forward, for passes that no backward follows: what a layer has kept makes room for the next one's, and the stream stays in one place.
template <class T>
Tensor2<T> Stage<T>::run_through(Pass<T>& a, Slot& slot) {
  const Tensor2<T> x = first_ ? embedding_->forward(a, slot.tokens) : slot.input;
  for (auto& layer : layers_) {
    const std::size_t before = a.saved.count();
    convert<T, T>(a.dev, Matrix<T>(layer->forward(a, x)), Matrix<T>(x));
    a.saved.forget(before);
  }
  return slot.output = x;
}

template <class T>
Tensor2<T> Stage<T>::forward(Device& dev, int i, double scale, double& loss, std::vector<TokenScore>* each) {
  Slot& slot = slots_[i];
  Pass<T> a = pass(dev, slot);
  const Tensor2<T> x = scale == 0 ? run_through(a, slot) : forward(a, slot);
  if (!last_) return x;
  if (scale == 0) {
    loss += head_->loss(a, x, slot.labels, each);
  } else {
    auto dx = slot.saved.template push<Tensor2<T>>("dx", x.extent(0), x.extent(1));
    loss += head_->loss_and_gradient(a, x, slot.labels, scale, dx);
  }
  return x;
}

template <class T>
Tensor2<T> Stage<T>::begin_backward(int i) {
  Slot& slot = slots_[i];
  if (last_) return {};
  return slot.saved.template push<Tensor2<T>>("dx", slot.sequences.rows(), config_.hidden_size);
}

template <class T>
Tensor2<T> Stage<T>::backward(Device& dev, int i, const std::function<void(int)>& done) {
  Slot& slot = slots_[i];
  Pass<T> a = pass(dev, slot);
  auto dx = slot.saved.template pop<Tensor2<T>>("dx");
  int part = int(ranges_.size());
  if (last_) done(--part);
  for (Index i = Index(layers_.size()) - 1; i >= 0; --i) {
    if (--part >= lowest_) {
      a.show(Observed::gradient, stream_name(i), dx);
      layers_[i]->backward(a, dx);
    }
    done(part);
  }
  if (first_) {
    if (--part >= lowest_) {
      a.show(Observed::gradient, stream_name(-1), dx);
      embedding_->backward(a, dx);
    }
    done(part);
  }
  slot.saved.clear();
  return dx;
}

template <class T>
void Stage<T>::end(int i) { slots_[i].saved.clear(); }

template <class T>
Tensor2<T> Stage<T>::begin(Device& dev, const Sequences& sequences, std::span<const Token> tokens) {
  Slot& slot = slots_.front();
  slot.saved.clear();
  slot.sequences = sequences;
  slot.tokens = slot.saved.template push<Tensor1<Token>>("token ids", sequences.rows());
  if (first_) upload<Token>(dev, tokens, slot.tokens);
  place(dev, slot, {});
  return push_input(slot);
}

template <class T>
Tensor2<T> Stage<T>::forward(Device& dev, StateStore& state) {
  Pass<T> a = pass(dev, slots_.front());
  a.state = &state;
  return run_through(a, slots_.front());
}

template <class T>
Tensor2<Acc<T>> Stage<T>::logits(Device& dev, Rows which) {
  Slot& slot = slots_.front();
  Pass<T> a = pass(dev, slot);
  Tensor2<T> x = slot.output;
  if (const Index seq_length = slot.sequences.seq_length; which == Rows::last && seq_length > 1) {
    x = slot.saved.template push<Tensor2<T>>("last rows", slot.sequences.batch, config_.hidden_size);
    for (Index b = 0; b < slot.sequences.batch; ++b)
      convert<T, T>(dev, Matrix<T>(rows(slot.output, (b + 1) * seq_length - 1, 1)), rows(x, b, 1));
  }
  auto out = slot.saved.template push<Tensor2<Acc<T>>>("logits", x.extent(0), head_->vocab_size_here());
  head_->logits(a, x, out);
  return out;
}

template class Stage<double>;
template class Stage<float>;
template class Stage<bf16>;

}  // namespace gyr
