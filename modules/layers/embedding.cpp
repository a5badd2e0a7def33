// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/embedding.hpp"

#include "modules/layers/norm.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

namespace {

Weight named(Weight w, const std::string& name) {
  w.name = name;
  return w;
}

}  // namespace

Weight embedding_weight(const ModelConfig& c) {
  return {"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, by_rows({{c.vocab_size, 0}}), normal(c.init_std)};
}

// Every rank knows all token ids and selects those of its vocabulary shard, so the chain may begin in the state `units`
// without communication.
ModelChains embedding_chains(const ModelConfig& c) {
  const Run tokens{c.vocab_size, 0}, positions{c.positions, 0};
  const Channels ids = by_units({tokens}), stream = undivided(c.hidden_size);
  const auto table = [&](const char* name, Index rows, std::vector<Run> runs) {
    return OperatorWeight{fmt::format("model.{}.weight", name), {rows, c.hidden_size}, {}, std::move(runs), 0, 0};
  };
  Operator embed{"tables", ids, stream, {{TensorState::full, TensorState::full}, {TensorState::units, TensorState::partial, WeightSplit::inputs}}};
  embed.weights = {table("embed_tokens", c.vocab_size, {tokens})};
  if (c.positions > 0) embed.weights.push_back(table("embed_positions", c.positions, {positions}));
  if (c.type_vocab_size > 0) embed.weights.push_back(table("embed_types", c.type_vocab_size, {}));
  ModelChain chain{"embedding", {embed}, {TensorState::full, TensorState::units}};
  if (c.has_embed_norm()) chain.operators.push_back(norm_operator(c, "model.embed_layernorm"));
  ModelChains chains = relative_bias_chains(c, "model.relative_bias");
  chains.insert(chains.begin(), chain);
  return chains;
}

namespace {

template <class T>
class TypedNorm final : public EmbeddingNorm {
 public:
  TypedNorm(const ModelConfig& c, const std::string& name, Parameters& parameters) : norm_(c, name, parameters) {}
  AnyTensor2 forward(Pass& a, Frame& frame, const AnyTensor2& x) override { return norm_.forward(a, frame, x.as<const T>()); }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dy, const AnyTensor2& dx) override {
    norm_.backward(a, frame, dy.as<const T>(), Add::no, dx.as<T>());
  }

 private:
  Norm<T> norm_;
};

}  // namespace

Embedding::Embedding(const ModelConfig& c, Parameters& parameters, const std::string& prefix)
    : c_(c), table_(parameters.declare(named(embedding_weight(c), prefix + "embed_tokens.weight"))) {
  if (shares_embedding(c)) {
    parameters.keep_unsharded();
    // The tied matrix must be sharded (ZeRO) identically on the first and the last stage. The other weights here go
    // into another group.
    if (c.positions > 0 || c.type_vocab_size > 0 || c.has_embed_norm() || has_relative_bias(c)) parameters.begin_group();
  }
  if (c.positions > 0)
    positions_ =
        &parameters.declare({prefix + "embed_positions.weight", {c.positions, c.hidden_size}, by_rows({{c.positions, 0}}), normal(c.init_std)});
  if (c.type_vocab_size > 0)
    types_ =
        &parameters.declare({prefix + "embed_types.weight", {c.type_vocab_size, c.hidden_size}, replicated(), normal(c.init_std), Storage::wide});
  if (c.has_embed_norm()) norm_ = make_typed<EmbeddingNorm, TypedNorm>(parameters.dtype(), c, prefix + "embed_layernorm", parameters);
  if (has_relative_bias(c)) relative_bias_.emplace(c, prefix + "relative_bias", parameters);
}

// x(r) += types(type of token r). Without `types`, all tokens have type 0.
template <class T>
void Embedding::add_types(Pass& a, Tensor1<const Token> types, Tensor2<T> x) const {
  using A = Acc<T>;
  const Index rows = Index(x.extent(0)), width = c_.hidden_size;
  if (types.extent(0) == 0) return add_bias<T>(a.dev, Tensor1<const A>(types_->vector<const A>().data(), width), 1, x);
  const auto wide = a.scratch<A>("token types (accumulator precision)", rows, width);
  const auto here = a.scratch<T>("token types", rows, width);
  embedding<A>(a.dev, types, types_->matrix<const A>(), 0, 1, wide);
  convert<A, T>(a.dev, Matrix<const A>(wide), here);
  add<T>(a.dev, flat(here), flat(x));
}

AnyTensor2 Embedding::forward(Pass& a, Frame& frame, Tensor1<const Token> tokens, const NamedDeviceValues& values) {
  const Device::Purpose purpose(a.dev, "embedding: rows x hidden");
  frame.refer(input, tokens);
  const auto* const given = values.find(token_types);
  const Tensor1<const Token> types = given ? *given : Tensor1<const Token>();
  if (given) frame.refer(input_types, types);
  const AnyTensor2 x = frame.put(embedded, table_.dtype(), a.stream.rows_per_part(), c_.hidden_size);
  with_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    Scope scope(a.dev.scratch);
    AllRows<T> sum(a, "partial sums of the embedding", x.as<T>());
    embedding<T>(a.dev, tokens, table_.matrix<const T>(), table_.first(0), c_.embedding_multiplier, sum.rows());
    if (positions_) {
      const auto here = a.scratch<T>("positions", a.stream.rows, c_.hidden_size);
      embedding<T>(a.dev, a.sequences.positions, positions_->matrix<const T>(), positions_->first(0), 1, here);
      add<T>(a.dev, flat(here), flat(sum.rows()));
    }
    if (types_ && a.tensor.rank() == 0) add_types<T>(a, types, sum.rows());
    sum.reduce();
  });
  const AnyTensor2 y = norm_ ? norm_->forward(a, frame, x) : x;
  drop(a, y);
  return y;
}

void Embedding::drop(Pass& a, const AnyTensor2& x) const {
  with_type(x.dtype, [&]<class T>(std::type_identity<T>) { a.drop<T>(a.dropout("model.embed_tokens", c_.dropout.embedding), x.as<T>(), x.as<T>()); });
}

void Embedding::backward(Pass& a, Frame& frame, const AnyTensor2& dx) {
  const Device::Purpose purpose(a.dev, "embedding backward: rows x hidden");
  drop(a, dx);
  if (!norm_) return sum_backward(a, frame, dx);
  Scope scope(a.dev.scratch);
  const AnyTensor2 dsum = take(a.dev.scratch.named("gradient of embedding output"), dx.dtype, dx.rows, dx.columns);
  norm_->backward(a, frame, dx, dsum);
  sum_backward(a, frame, dsum);
}

void Embedding::sum_backward(Pass& a, Frame& frame, const AnyTensor2& dx) {
  const auto trains = [](const Parameter* p) { return p && p->trained; };
  if (!table_.trained && !trains(positions_) && !trains(types_)) return;
  const auto tokens = frame.get(input);
  with_type(dx.dtype, [&]<class T>(std::type_identity<T>) {
    Scope scope(a.dev.scratch);
    const Tensor2<T> all = AllRows<T>(a, "gradient of embedding output, all rows", dx.as<T>()).gather();
    if (table_.trained)
      embedding_backward<T>(a.dev, tokens, all, table_.first(0), c_.embedding_multiplier, c_.pad_token_id, table_.matrix_gradient<Acc<T>>());
    if (trains(positions_))
      embedding_backward<T>(a.dev, a.sequences.positions, all, positions_->first(0), 1, -1, positions_->matrix_gradient<Acc<T>>());
    if (!trains(types_)) return;
    if (reads_types(c_)) embedding_backward<T>(a.dev, frame.get(input_types), all, 0, 1, -1, types_->matrix_gradient<Acc<T>>());
    else bias_backward<T>(a.dev, all, 1, Tensor1<Acc<T>>(types_->vector_gradient<Acc<T>>().data(), c_.hidden_size));
  });
}

}  // namespace gyr
