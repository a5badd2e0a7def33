// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/chunk.hpp"

#include <algorithm>

#include "kernels/upload.hpp"

namespace gyr {

namespace {

// Copies host numbers into a tensor, wherever it lives.
template <class V>
void upload(Device& dev, std::span<const V> from, Tensor1<V> to) {
  if (dev.dry_run() || from.empty()) return;
  backend::upload(dev.queue, from.data(), to.data(), Index(from.size_bytes()));
}

// What this rank has of a value for each token of whole sequences.
template <class V>
std::vector<V> share_of(const SequenceLayout& s, std::span<const V> whole, V padding) {
  if (!s.shared() || whole.empty()) return {whole.begin(), whole.end()};
  ensure(Index(whole.size()) == s.batch * s.whole, "{} tokens in {} sequences of {}", whole.size(), s.batch, s.whole);
  std::vector<V> mine;
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.seq_length; ++t) mine.push_back(s.place(t) < s.whole ? whole[b * s.whole + s.place(t)] : padding);
  return mine;
}

}  // namespace

Chunk::Chunk(const ModelConfig& config, Span layers, Parameters& parameters, Parameter* table, int stream_parts, const RecomputeConfig& recompute)
    : config_(config), dtype_(parameters.dtype()), first_layer_(layers.first), stream_parts_(stream_parts), recompute_(recompute) {
  const bool first = layers.first == 0, last = layers.last == config.layers();
  const auto trained = [&] { return std::any_of(parameters.all().begin(), parameters.all().end(), [](const auto& p) { return p->trained; }); };
  const auto declared = [&](auto&& declare) {
    parameters.begin_group();
    const Index begin = parameters.groups() - 1;
    declare();
    groups_.push_back({begin, parameters.groups()});
    if (first && !trained()) lowest_ = Index(groups_.size());
  };
  if (first) declared([&] { embedding_ = std::make_unique<Embedding>(config_, parameters); });
  for (Index i = layers.first; i < layers.last; ++i)
    declared([&] { layers_.push_back(layer_type(config_.pattern[i]).make(config_, fmt::format("model.layers.{}", i), parameters)); });
  if (last)
    declared([&] {
      if (config_.tie_word_embeddings && first) table = &embedding_->table();
      head_ = config_.objective->head(config_, config_.tie_word_embeddings ? table : nullptr, parameters);
    });
}

std::string Chunk::stream_name(Index layer) const {
  return layer < 0 ? "model.embed_tokens.output" : fmt::format("model.layers.{}.output", first_layer_ + layer);
}

// Positions of whole sequences in their documents: those that are packed, and where attention would look ahead into what only pads, each sequence
// apart from that.
std::vector<std::int32_t> Chunk::documents_of(const SequenceLayout& s, std::span<const std::int32_t> packed) const {
  if (!packed.empty() || config_.attention.causal || !s.shared() || s.whole == s.ranks * s.seq_length) return {packed.begin(), packed.end()};
  std::vector<std::int32_t> positions;
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.whole; ++t) positions.push_back(std::int32_t(t));
  return positions;
}

// Labels of this rank's rows; where few can have one, also which do.
void Chunk::label(Device& dev, Slot& slot, std::span<const Token> labels) const {
  const SequenceLayout& s = slot.sequences;
  const Index rows = s.rows(), most = std::min(rows, s.batch * config_.objective->most_labels(s.whole_length()));
  const auto of_rows = slot.frame.put(Keys::labels, rows);
  slot.labels = {of_rows, {}, {}, {}};
  upload<Token>(dev, labels, of_rows);
  if (!last() || most == rows) return;
  const auto picked = slot.frame.put(Keys::picked, most), label = slot.frame.put(Keys::picked_labels, most),
             place = slot.frame.put(Keys::places, rows);
  slot.labels = {of_rows, picked, label, place};
  std::vector<Token> row_of(most, -1), label_of(most, ignored_label), place_of(rows, -1);
  Index count = 0;
  for (Index r = 0; r < Index(labels.size()); ++r) {
    if (labels[r] == ignored_label) continue;
    ensure(count < most, "more than {} of {} rows have a label", most, rows);
    row_of[count] = Token(r), label_of[count] = labels[r], place_of[r] = Token(count), ++count;
  }
  upload<Token>(dev, row_of, picked), upload<Token>(dev, label_of, label), upload<Token>(dev, place_of, place);
}

// Where every row stands.
void Chunk::place(Device& dev, Slot& slot, std::span<const std::int32_t> documents) const {
  SequenceLayout& s = slot.sequences;
  const std::vector<std::int32_t> packed = share_of<std::int32_t>(s, documents, 0);
  const auto positions = slot.frame.put(Keys::positions, s.rows());
  if (!dev.dry_run() || !packed.empty()) slot.positions = positions_of(s, packed);
  upload<std::int32_t>(dev, slot.positions, positions);
  s.positions = positions;
  s.documents = packed.empty() ? Documents() : Documents{positions, slot.positions};
  if (config_.attention.causal) return;
  const auto ahead = slot.frame.put(Keys::ahead, s.rows());
  if (packed.empty()) return;
  slot.ahead = share_of<std::int32_t>(s, tokens_ahead(documents, s.whole_length()), 0);
  upload<std::int32_t>(dev, slot.ahead, ahead);
  s.documents.ahead = ahead, s.documents.host_ahead = slot.ahead;
}

// The same of all tokens, and padding behind them.
void Chunk::place_whole(Device& dev, Slot& slot, std::span<const std::int32_t> documents) const {
  SequenceLayout& s = slot.sequences;
  if (!s.meets_other_queries()) return;
  const Index length = s.ranks * s.seq_length;
  const auto put = [&](const Key<Tensor1<std::int32_t>>& key, std::span<const std::int32_t> numbers, std::vector<std::int32_t>& padded) {
    const auto there = slot.frame.put(key, s.batch * length);
    padded.assign(numbers.empty() ? 0 : std::size_t(s.batch * length), 0);
    for (Index b = 0; b < s.batch && !numbers.empty(); ++b) std::copy_n(numbers.begin() + b * s.whole, s.whole, padded.begin() + b * length);
    upload<std::int32_t>(dev, padded, there);
    return there;
  };
  const auto positions = put(Keys::whole_positions, documents, slot.whole_positions);
  s.whole_documents = documents.empty() ? Documents() : Documents{positions, slot.whole_positions};
  if (config_.attention.causal) return;
  const auto ahead = put(Keys::whole_ahead, tokens_ahead(documents, s.whole), slot.whole_ahead);
  if (!documents.empty()) s.whole_documents.ahead = ahead, s.whole_documents.host_ahead = slot.whole_ahead;
}

Bundle Chunk::begin(Device& dev, Slot& slot, const SequenceLayout& sequences, const MicroBatch& batch) const {
  ensure(slot.frame.empty(), "the slot still holds a micro-batch");
  slot.sequences = sequences;
  const Index rows = slot.sequences.rows();
  slot.tokens = slot.frame.put(Keys::tokens, rows);
  label(dev, slot, last() ? share_of<Token>(sequences, batch.labels, ignored_label) : std::vector<Token>());
  if (first()) upload<Token>(dev, share_of<Token>(sequences, batch.tokens, 0), slot.tokens);
  const std::vector<std::int32_t> documents = documents_of(sequences, batch.positions);
  place(dev, slot, documents);
  place_whole(dev, slot, documents);
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

void Chunk::embed(Pass& a, Slot& slot) { slot.stream.x = embedding_->forward(a, frame_of(slot, -1), slot.tokens); }

void Chunk::run_and_keep(Pass& a, Slot& slot, Index part) {
  if (part == 0) slot.inputs.clear();
  const Index layer = part - Index(first());
  if (layer < 0) embed(a, slot);
  else {
    slot.inputs.push_back(slot.stream);
    layers_[layer]->forward(a, frame_of(slot, layer), slot.stream);
    if (const Recompute policy = recompute_of(layer)) frame_of(slot, layer).drop(*policy, slot.stream.x.data);
  }
  a.show(Observed::activation, stream_name(layer), slot.stream.x);
}

// What a layer has kept makes room for the next one's, and the stream stays in one place.
void Chunk::run(Pass& a, Slot& slot, Index part) {
  const Index layer = part - Index(first());
  if (layer < 0) return embed(a, slot);
  Bundle out = slot.stream;
  layers_[layer]->forward(a, frame_of(slot, layer), out);
  convert(a.dev, out.x, slot.stream.x);
  frame_of(slot, layer).clear();
}

void Chunk::run_through(Pass& a, Slot& slot) {
  for (Index part = 0; part < Index(first()) + Index(layers_.size()); ++part) run(a, slot, part);
}

void Chunk::forward(Pass& a, Slot& slot, const Span& parts, double scale, Tensor1<double> loss, std::vector<RowScore>* each) {
  for (Index part = parts.first; part < parts.last; ++part)
    if (last() && part == Index(groups_.size()) - 1) score(a, slot, scale, loss, each);
    else scale == 0 ? run(a, slot, part) : run_and_keep(a, slot, part);
}

void Chunk::score(Pass& a, Slot& slot, double scale, Tensor1<double> loss, std::vector<RowScore>* each) {
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

void Chunk::backward(Pass& a, Slot& slot, const Span& parts, MatrixGradients when) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    backward_part(a, slot, part, when);
    slot.frame.nested(int(part)).release(when == MatrixGradients::later ? Phase::input_gradients : Phase::weight_gradients);
  }
}

void Chunk::backward_weights(Pass& a, Slot& slot, const Span& parts) {
  for (Index part = parts.last - 1; part >= std::max(parts.first, lowest_); --part) {
    if (Layer* layer = layer_of(part)) layer->backward_weights(a, slot.frame.nested(int(part)));
    slot.frame.nested(int(part)).release(Phase::weight_gradients);
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
void Chunk::backward_part(Pass& a, Slot& slot, Index part, MatrixGradients when) {
  const Index layer = part - Index(first());
  if (layer == Index(layers_.size())) return;
  a.show(Observed::gradient, stream_name(layer), slot.gradient.x);
  if (layer >= 0 && recompute_of(layer)) forward_again(a, slot, layer);
  if (layer < 0) embedding_->backward(a, frame_of(slot, layer), slot.gradient.x);
  else layers_[layer]->backward(a, frame_of(slot, layer), slot.gradient, when);
}

}  // namespace gyr
