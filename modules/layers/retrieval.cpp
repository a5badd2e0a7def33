// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/retrieval.hpp"

#include "modules/layers/attention.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/layers/single_layer.hpp"

namespace gyr {

namespace {

CrossRule retrieval_rule(const ModelConfig& c, SourceRows seen, bool first = false) {
  return {seen, c.retrieval.chunk, c.retrieval.neighbours, c.retrieval.chunk, first};
}

template <class T>
struct ChunkAttention final : CrossAttention<T> {
  ChunkAttention(const ModelConfig& c, const std::string& name, Parameters& p)
      : CrossAttention<T>(c, name, p, retrieval_rule(c, SourceRows::chunk)) {}
};
template <class T>
struct ChunkLayer final : SingleLayer<T, ChunkAttention> {
  ChunkLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, ChunkAttention>(c, name, ".cross_attn", p) {}
};

bool reads_chunk_of_text(char symbol) { return layer_type(symbol).traits.reads_source(); }

std::string encoder_layer(const std::string& encoder, std::size_t layer) { return fmt::format("{}.layers.{}", encoder, layer); }

// The configuration of the encoder. Its layers X attend to rows of the text, whose width is that of their own "encoder".
ModelConfig config_of_neighbours(const ModelConfig& model) {
  ModelConfig c = encoder_config(model);
  c.encoder = StackConfig{model.hidden_size, c.norm, c.rms_norm_eps, c.attention, c.mlp};
  c.dropout.residual = c.dropout.attention = c.retrieval.dropout;
  return c;
}

bool has_encoder_of_neighbours(const ModelConfig& c, const std::string& name) {
  return name == fmt::format("model.layers.{}", retrieval_layers(c).first);
}

}  // namespace

template <class T>
NeighbourEncoder<T>::NeighbourEncoder(const ModelConfig& model, const std::string& name, Parameters& parameters) {
  const ModelConfig c = config_of_neighbours(model);
  const std::string& pattern = c.retrieval.encoder;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::size_t declared = parameters.all().size();
    if (reads_chunk_of_text(pattern[i])) {
      layers_.push_back(std::make_unique<ChunkLayer<T>>(c, encoder_layer(name, i), parameters));
      continue;
    }
    layers_.push_back(layer_type(pattern[i]).make(c, encoder_layer(name, i), parameters));
    for (std::size_t w = declared; w < parameters.all().size(); ++w) parameters.all()[w]->weight.of_source = true;
  }
}

// The pass over the neighbours, whose source is the text.
template <class T>
Pass NeighbourEncoder<T>::pass_of(Pass& text, const EncoderState& h) const {
  Pass pass = *text.source;
  pass.source = &text, pass.encoded = h;
  return pass;
}

// E is a copy, because deferred weight gradients read it longer than the output of a layer is kept.
template <class T>
Tensor2<T> NeighbourEncoder<T>::forward(Pass& text, Frame& frame, Tensor2<T> x, Tensor2<T> h) {
  Pass pass = pass_of(text, {h, {}});
  Bundle stream{AnyTensor2(x)};
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i]->forward(pass, frame.nested(int(i), "layer"), stream);
  const auto e = frame.put(encoded, x.extent(0), x.extent(1));
  if (!frame.wants(encoded)) return e;
  convert(text.dev, stream.x(), AnyTensor2(e));
  frame.release(stream.x().data);
  return e;
}

template <class T>
void NeighbourEncoder<T>::backward(Pass& text, Frame& frame, Tensor2<T> d, Tensor2<T> dh) {
  Pass pass = pass_of(text, {{}, dh});
  Bundle gradient{AnyTensor2(d)};
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i]->backward(pass, frame.nested(int(i)), gradient, MatrixGradients::later);
    frame.nested(int(i)).release(Phase::input_gradients);
  }
}

template <class T>
void NeighbourEncoder<T>::backward_weights(Pass& text, Frame& frame, Tensor2<const T> h) {
  const AnyTensor2 rows(const_cast<T*>(h.data()), dtype_of<T>(), Index(h.extent(0)), Index(h.extent(1)));
  Pass pass = pass_of(text, {rows, {}});
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i]->backward_weights(pass, frame.nested(int(i)));
    frame.nested(int(i)).release(Phase::weight_gradients);
  }
}

template <class T>
Retrieval<T>::Retrieval(const ModelConfig& c, const std::string& name, Parameters& parameters)
    : chunk_(c.retrieval.chunk),
      attention_(c, name + ".cross_attn", parameters, retrieval_rule(c, SourceRows::neighbours, has_encoder_of_neighbours(c, name))) {
  if (has_encoder_of_neighbours(c, name)) encoder_.emplace(c, name + ".encoder", parameters);
}

template <class T>
void Retrieval<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  ensure(a.source || a.state, "a micro-batch has no neighbours for layers R");
  if (encoder_ && a.state) encode_in_generation(a, encoder_frame(frame), h.gather());
  else if (encoder_) a.encoded.values = encoder_->forward(a, encoder_frame(frame), a.encoded.values.template as<T>(), h.gather());
  attention_.forward(a, attention_frame(frame), h, add, y);
}

template <class T>
void Retrieval<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  attention_.backward(a, attention_frame(frame), dy, add, dh);
  attention_frame(frame).release(Phase::input_gradients);
  if (encoder_) encoder_->backward(a, encoder_frame(frame), a.encoded.gradient.template as<T>(), dh);
}

template <class T>
void Retrieval<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  attention_.backward_weights(a, attention_frame(frame), h, dy);
  if (encoder_) encoder_->backward_weights(a, encoder_frame(frame), h);
}

namespace {

template <class T>
class RetrievalLayer final : public SingleLayer<T, Retrieval> {
 public:
  RetrievalLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Retrieval>(c, name, "", p) {}
  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    SingleLayer<T, Retrieval>::forward(a, frame, bundle);
    bundle[encoder_stream] = a.encoded.values;
    if (a.encoded_before.values.rows > 0) bundle[neighbours_before] = a.encoded_before.values;
  }
};

// Tokens of all neighbours of a chunk per token of the chunk.
double neighbour_tokens(const ModelConfig& c) {
  return double(c.retrieval.neighbours) * double(c.retrieval.neighbour_length()) / double(c.retrieval.chunk);
}

// Queries of `rows` tokens see `keys` tokens each, and keys and values of `sources` tokens are projected, per token of the
// text.
LayerFlops neighbour_attention_flops(const ModelConfig& c, double rows, double keys, double sources) {
  const double q = double(c.attention.num_heads) * double(c.attention.head_dim), k = double(c.attention.num_kv_heads) * double(c.attention.head_dim);
  LayerFlops f;
  f.gemms = 4.0 * (double(c.hidden_size) * q * rows + double(encoder_config(c).hidden_size) * k * sources);
  f.attention = 4.0 * rows * keys * q;
  return f;
}

LayerFlops retrieval_flops(const ModelConfig& c, const TextLengths&) {
  const double keys = double(c.retrieval.neighbours) * double(c.retrieval.neighbour_length());
  return neighbour_attention_flops(c, 1, keys, neighbour_tokens(c));
}

LayerFlops neighbour_encoder_flops(const ModelConfig& model, const TextLengths&) {
  const ModelConfig c = config_of_neighbours(model);
  const double tokens = neighbour_tokens(c);
  LayerFlops sum;
  for (const char symbol : c.retrieval.encoder)
    sum = sum + (reads_chunk_of_text(symbol) ? neighbour_attention_flops(c, tokens, double(c.retrieval.chunk), 1)
                                             : tokens * layer_type(symbol).flops(c, c.retrieval.neighbour_length()));
  return sum;
}

ModelChains neighbour_chains(const ModelConfig& c, const std::string& name) {
  return {single_chain(c, name, {cross_attention_operators(c, name + ".cross_attn")}),
          {"source", source_operators(c, name + ".cross_attn"), {}, {TensorState::units, TensorState::shared}, true}};
}

ModelChains retrieval_chains(const ModelConfig& model, const std::string& name) {
  ModelChains chains = neighbour_chains(model, name);
  if (!has_encoder_of_neighbours(model, name)) return chains;
  const ModelConfig c = config_of_neighbours(model);
  for (std::size_t i = 0; i < c.retrieval.encoder.size(); ++i) {
    const char symbol = c.retrieval.encoder[i];
    const std::string layer = encoder_layer(name + ".encoder", i);
    for (ModelChain& chain : reads_chunk_of_text(symbol) ? neighbour_chains(c, layer) : layer_type(symbol).chains(c, layer)) {
      chain.of_source = true;
      chains.push_back(chain);
    }
  }
  return chains;
}

void read_retrieval(Section& s, ModelConfig& m) {
  RetrievalConfig& c = m.retrieval;
  c.chunk = s.get("chunk", c.chunk, "tokens of a chunk of the text (m), that of the retrieval project; a neighbour has up to twice as many")
                .positive()
                .at_most(4096);
  c.neighbours = s.get("neighbors", c.neighbours, "neighbours of each chunk that layers R read (k)").positive().at_most(1024);
  c.encoder = s.get("encoder", c.encoder,
                    "layers of the encoder of neighbours, which the first layer R has: * (attention), X (attention to the chunk) and - (MLP)")
                  .not_empty()
                  .value();
  c.dropout = s.get("encoder_dropout", c.dropout,
                    "dropout probability of attention weights and of what layers add to the stream, in the encoder of neighbours only")
                  .at_least(0)
                  .at_most(0.99)
                  .effect(Effect::course);
}

const LayerSection retrieval_section{"retrieval", "layers R: attention to retrieved neighbours (RETRO)", read_retrieval};

const Registered retrieval({'R',
                            "retrieval",
                            "attention to the neighbours of the last chunk (RETRO)",
                            make_layer<RetrievalLayer>,
                            retrieval_flops,
                            retrieval_chains,
                            {attention_section, mlp_section, retrieval_section},
                            {.attention = AttentionKind::neighbours, .flops_of_first = neighbour_encoder_flops}});

}  // namespace

template class NeighbourEncoder<double>;
template class NeighbourEncoder<float>;
template class NeighbourEncoder<bf16>;
template class Retrieval<double>;
template class Retrieval<float>;
template class Retrieval<bf16>;

}  // namespace gyr
