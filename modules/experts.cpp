// SPDX-License-Identifier: BSD-3-Clause
#include "modules/experts.hpp"

#include "kernels/balance.hpp"
#include "kernels/sum.hpp"
#include "modules/contribution.hpp"
#include "modules/trainable.hpp"

namespace gyr {

namespace {

// How many rows each expert has: the products of experts are called by the host, so that it has to know. In a dry run as even as can be, which costs
// as many flops as any other.
std::vector<Index> expert_counts(Device& dev, const ExpertRows& rows) {
  const Index experts = rows.count.extent(0), slots = rows.slot.extent(0);
  std::vector<Index> counts;
  if (dev.dry_run()) {
    for (Index e = 0; e < experts; ++e) counts.push_back(slots / experts + (e < slots % experts));
    return counts;
  }
  for (const std::int32_t n : to_host(dev, Tensor1<const std::int32_t>(rows.count))) counts.push_back(n);
  return counts;
}

}  // namespace

template <class T>
Experts<T>::Experts(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.moe), name_(name), hidden_size_(m.hidden_size) {
  router_ = &parameters.declare({name + ".gate.weight", {c_.experts, m.hidden_size}, replicated(), normal(m.init_std)});
  if (c_.bias) {
    Weight bias{name + ".gate.e_score_correction_bias", {c_.experts}, replicated(), zeros(), Storage::wide, false};
    bias.learns = false;
    bias_ = &parameters.declare(std::move(bias));
  }
  for (Index e = 0; e < c_.experts; ++e) experts_.push_back(declare(m, fmt::format("{}.experts.{}", name, e), parameters));
  intermediate_size_ = experts_[0].gate->rows();
}

template <class T>
auto Experts<T>::declare(const ModelConfig& m, const std::string& name, Parameters& parameters) const -> Expert {
  using P = Parameters;
  const Run inner{c_.intermediate_size, c_.intermediate_size, false, "moe.intermediate_size"};
  const auto matrix = [&](const char* part, Shape shape, Shardings shardings, P::Fit fit) {
    Weight weight{name + part + ".weight", std::move(shape), std::move(shardings), normal(m.init_std), Storage::factor};
    weight.tokens = double(c_.routing.top_k) / double(c_.experts);
    return &parameters.declare(std::move(weight), fit);
  };
  const Shape up{c_.intermediate_size, m.hidden_size}, down{m.hidden_size, c_.intermediate_size};
  Expert expert;
  expert.gate = matrix(".gate_proj", up, by_rows({inner}), P::Fit::aligned);
  expert.up = matrix(".up_proj", up, by_rows({inner}), P::Fit::adjacent);
  expert.down = matrix(".down_proj", down, by_columns({inner}), P::Fit::aligned);
  return expert;
}

// gate and up lie one behind the other: one product serves both.
template <class T>
Matrix<const T> Experts<T>::w_gate_up(const Expert& expert) const {
  return {expert.gate->template matrix<const T>().data(), 2 * intermediate_size_, hidden_size_, hidden_size_};
}

// Who has how many rows decides over the scratch memory of their products: a dry run also goes through what takes most of it, without counting that,
// all rows with one expert, and few of them.
template <class T>
template <class F>
void Experts<T>::for_experts(Device& dev, const ExpertRows& rows, const F& f) const {
  const Workspace workspace(dev.scratch, "products of experts");
  if (dev.dry_run()) {
    const Device::Repeat uncounted(dev, 0);
    const Index most = rows.place.extent(0);
    for (const Index n : {most, std::min(most, few_rows)}) f(experts_[0], n, Index(0));
  }
  Index e = 0, first = 0;
  for (const Index n : expert_counts(dev, rows)) {
    if (n > 0) f(experts_[e], n, first);
    ++e, first += n;
  }
}

template <class T>
ExpertRows Experts<T>::rows_of(const Frame& frame) const {
  return {frame.get(Keys::place), frame.get(Keys::slot), frame.get(Keys::count)};
}

// Each row's scores, choices and weights, and where the rows of each expert are.
template <class T>
ExpertRows Experts<T>::route_rows(Pass& a, Frame& frame, AllRows<T>& h) {
  const Index rows = a.stream.rows, k = c_.routing.top_k;
  const auto scores = frame.put(Keys::scores, rows, c_.experts);
  const auto weights = frame.put(Keys::weights, rows, k);
  const auto chosen = frame.put(Keys::chosen, rows, k);
  const auto lse = frame.put(Keys::lse, c_.z_loss > 0 ? rows : 0);
  const ExpertRows grouped{frame.put(Keys::place, rows, k), frame.put(Keys::slot, rows * k), frame.put(Keys::count, c_.experts)};
  if (!frame.wants(Keys::scores)) return grouped;
  linear<T, A>(a.dev, h.gather(), router_->template matrix<const T>(), scores);
  route<A>(a.dev, c_.routing, bias_ ? bias_->template vector<const A>() : Tensor1<const A>(), scores, chosen, weights,
           c_.z_loss > 0 ? lse : Tensor1<A>());
  group_rows(a.dev, chosen, grouped);
  return grouped;
}

template <class T>
void Experts<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const ExpertRows grouped = route_rows(a, frame, h);
  const Index slots = grouped.slot.extent(0);
  const auto gate_up = frame.put(Keys::gate_up, slots, 2 * intermediate_size_);
  const auto inner = frame.put(Keys::inner, slots, intermediate_size_);
  Scope scope(a.dev.scratch);
  const auto x = a.scratch<T>("rows by expert", slots, hidden_size_);
  if (frame.wants(Keys::gate_up)) {
    gather_rows<T>(a.dev, grouped, h.gather(), x);
    for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
      linear<T>(a.dev, rows(x, first, n), expert.gate->template factor<T>(2 * intermediate_size_), rows(gate_up, first, n));
    });
  }
  if (frame.wants(Keys::inner)) {
    weighted_swiglu<T>(a.dev, grouped, gate_up, frame.get(Keys::weights), inner);
    contribute_once<T>(a.dev, *experts_[0].down, inner);
  }
  if (!y.data()) return;
  for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
    linear<T>(a.dev, rows(inner, first, n), expert.down->template factor<T>(), rows(x, first, n));
  });
  combine_rows<T>(a.dev, grouped, x, add, y);
}

template <class T>
void Experts<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const ExpertRows grouped = rows_of(frame);
  const Index slots = grouped.slot.extent(0);
  const auto dgate_up = frame.put(Keys::dgate_up, slots, 2 * intermediate_size_);
  Scope scope(a.dev.scratch);
  const auto x = a.scratch<T>("rows by expert", slots, hidden_size_);
  const auto dinner = a.scratch<T>("gradient of inner", slots, intermediate_size_);
  const auto dweights = a.scratch<A>("gradient of routing weights", dy.extent(0), c_.routing.top_k);
  gather_rows<T>(a.dev, grouped, dy, x);
  for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
    linear_backward_input<T>(a.dev, rows(x, first, n), expert.down->template matrix<const T>(), rows(dinner, first, n));
  });
  contribute_once<T>(a.dev, *experts_[0].down, dinner);
  weighted_swiglu_backward<T>(a.dev, grouped, dinner, frame.get(Keys::gate_up), frame.get(Keys::weights), dgate_up, dweights);
  for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
    linear_backward_input<T>(a.dev, rows(dgate_up, first, n), w_gate_up(expert), rows(x, first, n));
  });
  combine_rows<T>(a.dev, grouped, x, add, dh);
  router_backward(a, frame, dweights, dh);
}

// What each rank knows of the weights' gradient is a part of it. Then all know the same of the router, and one adds its part of dh to the sum.
template <class T>
void Experts<T>::router_backward(Pass& a, Frame& frame, Tensor2<A> dweights, Tensor2<T> dh) {
  const Device::Purpose purpose(a.dev, "gradient of routing weights: rows x top_k");
  a.tensor.whole().all_reduce(a.dev, flat(dweights));
  const auto dlogits = frame.put(Keys::dlogits, Index(dweights.extent(0)), c_.experts);
  Tensor2<A> wide;
  if constexpr (std::is_same_v<T, A>) wide = dlogits;
  else wide = a.scratch<A>("gradient of the router", Index(dweights.extent(0)), c_.experts);
  route_backward<A>(a.dev, c_.routing, frame.get(Keys::scores), frame.get(Keys::chosen), dweights, wide);
  balance(a, frame, wide);
  if constexpr (!std::is_same_v<T, A>) convert<A, T>(a.dev, wide, dlogits);
  if (a.tensor.rank() == 0) linear_backward_input<T>(a.dev, dlogits, router_->template matrix<const T>(), dh, 1, 1);
}

// body(sequence, first row, count) for the blocks of neighbouring tokens of every sequence, without what only pads.
template <class Body>
void for_blocks(const SequenceLayout& s, const Body& body) {
  const Index length = s.block_length();
  for (Index block = 0; block < s.batch * s.blocks(); ++block) {
    const Index first = block * length, token = s.place(first % s.seq_length);
    const Index count = s.shared() ? std::min(length, s.whole - token) : length;
    if (count > 0) body(first / s.seq_length, first, count);
  }
}

// Adds the gradients of the terms that balance the router. Of a shared sequence all ranks count together.
template <class T>
void Experts<T>::balance(Pass& a, Frame& frame, Tensor2<A> dlogits) const {
  if (c_.aux_loss == 0 && c_.z_loss == 0) return;
  const SequenceLayout& s = a.sequences;
  const auto n = a.scratch<A>("rows of experts by sequence", s.batch, c_.experts);
  const auto of = [&](Index sequence) { return Tensor1<A>(n.data() + sequence * c_.experts, c_.experts); };
  const auto scores = frame.get(Keys::scores);
  const auto lse = frame.get(Keys::lse);
  fill<A>(a.dev, flat(n), 0);
  for_blocks(s, [&](Index sequence, Index first, Index count) { add_choices<A>(a.dev, rows(frame.get(Keys::chosen), first, count), of(sequence)); });
  const Device::Purpose purpose(a.dev, "rows of experts: sequences x experts");
  if (a.context) a.context->all_reduce(a.dev, flat(n));
  const double tokens = double(s.shared() ? s.whole : s.seq_length), each = a.sequence_weight / tokens;
  const double even = double(c_.experts) / (double(c_.routing.top_k) * tokens);
  for_blocks(s, [&](Index sequence, Index first, Index count) {
    add_balance_gradient<A>(a.dev, c_.routing, rows(scores, first, count), c_.z_loss > 0 ? rows(lse, first, count) : Tensor1<A>(), of(sequence),
                            c_.aux_loss * even * each, c_.z_loss * each, rows(dlogits, first, count));
  });
}

template <class T>
void Experts<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  const ExpertRows grouped = rows_of(frame);
  Scope scope(a.dev.scratch);
  const auto x = a.scratch<T>("rows by expert", Index(grouped.slot.extent(0)), hidden_size_);
  const auto inner = frame.get(Keys::inner), dgate_up = frame.get(Keys::dgate_up);
  gather_rows<T>(a.dev, grouped, dy, x);
  for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
    weights_backward<T>(a.dev, {expert.down}, rows(x, first, n), rows(inner, first, n));
  });
  gather_rows<T>(a.dev, grouped, h, x);
  for_experts(a.dev, grouped, [&](const Expert& expert, Index n, Index first) {
    weights_backward<T>(a.dev, {expert.gate, expert.up}, rows(dgate_up, first, n), rows(x, first, n));
  });
  weights_backward<T>(a.dev, {router_}, frame.get(Keys::dlogits), h);
}

void read_moe(Section& s, ModelConfig& m) {
  MoeConfig& c = m.moe;
  Routing& r = c.routing;
  c.experts = s.get("experts", c.experts, "experts of a layer").positive().at_most(most_experts);
  r.top_k = s.get("top_k", r.top_k, "experts that each token is sent to").positive().at_most(most_experts);
  c.intermediate_size =
      s.get("intermediate_size", c.intermediate_size, "inner channels of an expert, sharded over the tensor axis").positive().at_most(widest);
  c.shared_intermediate_size = s.get("shared_intermediate_size", c.shared_intermediate_size, "inner channels of an expert for all tokens; 0: none")
                                   .at_least(0)
                                   .at_most(widest);
  const std::string score =
      s.get("score", r.score == Routing::softmax ? "softmax" : "sigmoid", "what the router makes of its logits").one_of({"softmax", "sigmoid"});
  r.score = score == "softmax" ? Routing::softmax : Routing::sigmoid;
  r.normalize = s.get("normalize_top_k", r.normalize, "weights of the chosen experts are divided by their sum");
  r.scale = s.get("routed_scale", r.scale, "scales the weights of the chosen experts").finite();
  r.groups = s.get("groups", r.groups, "equal groups of experts of which the best are chosen first").positive().at_most(most_experts);
  r.top_groups = s.get("top_groups", r.top_groups, "groups that a token's experts are chosen from").positive().at_most(most_experts);
  c.bias = s.get("bias", c.bias, "a bias of each expert's score, for the choice alone; no gradient trains it");
  c.aux_loss = s.get("aux_loss", c.aux_loss, "times the imbalance of experts in each sequence, added to the loss; in training alone")
                   .at_least(0)
                   .finite()
                   .effect(Effect::course);
  c.z_loss = s.get("z_loss", c.z_loss, "times the mean square of the router's log-sum-exp, added to the loss; in training alone")
                 .at_least(0)
                 .finite()
                 .effect(Effect::course);
}

ModelConfig with_shared_expert(const ModelConfig& m) {
  ModelConfig shared = m;
  shared.mlp = {.intermediate_size = m.moe.shared_intermediate_size};
  return shared;
}

LayerFlops experts_flops(const ModelConfig& m, Index) {
  const MoeConfig& c = m.moe;
  LayerFlops f;
  f.products = 2.0 * m.hidden_size * double(c.experts) +
               6.0 * m.hidden_size * (double(c.routing.top_k) * double(c.intermediate_size) + double(c.shared_intermediate_size));
  return f;
}

template class Experts<double>;
template class Experts<float>;
template class Experts<bf16>;

}  // namespace gyr
