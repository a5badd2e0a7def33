// SPDX-License-Identifier: BSD-3-Clause
// Gated delta net (Yang et al., "Gated Delta Networks", 2024; Qwen3-Next): projections of h to q, k, v, the output gate z,
// beta and the decay; causal convolution of (q, k, v); the gated delta rule (kernels/ops/delta/gated_delta.hpp); an RMSNorm of
// each head, with weights that all heads share, times silu(z); output projection. Sharded over the tensor-parallel ranks
// by heads, q and k by key heads. If there are more ranks than heads, each rank has some of a head's value channels.
// Context parallel: each rank computes the effect of its blocks on the state, S <- S M + L with M (K, K) and L (V, K) of
// each head. An all-gather distributes these, and each rank combines those of the blocks before its own.
#include <cmath>

#include "kernels/ops/convolution.hpp"
#include "kernels/ops/delta/gated_delta.hpp"
#include "kernels/ops/gate.hpp"
#include "modules/context/context_scan.hpp"
#include "modules/layers/projection.hpp"
#include "modules/layers/single_layer.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {
namespace {

// Runs (weight.hpp) that the tensor-parallel ranks shard: value channels by heads or, with more ranks than heads, within
// a head; channels of q or k by key heads; heads.
struct DeltaRuns {
  Run by_head, by_key_head, heads;
};
DeltaRuns delta_runs(const DeltaConfig& c) {
  const char* by_heads = "delta.num_heads";
  return {{c.inner(), c.num_heads, true, by_heads},
          {c.num_key_heads * c.key_dim, c.num_key_heads, false, "delta.num_key_heads"},
          {c.num_heads, c.num_heads, false, by_heads}};
}

template <class T>
class GatedDeltaNet final : public Branch<T> {
 public:
  // Weights NAME.q_proj, .k_proj, .v_proj, .z_proj, .b_proj, .a_proj, .conv1d, .A_log, .dt_bias, .norm and .out_proj
  GatedDeltaNet(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr auto until_input = Phase::input_gradients;
    static constexpr Key<Tensor2<T>> projected{"projected", RecomputeCost::gemm, until_input, RowSplit::split},
        convolved{"convolved", RecomputeCost::pass, until_input}, scan{"scan", RecomputeCost::mixing, until_input},
        gated{"gated", RecomputeCost::pass}, dprojected{"gradient of projected"};
    static constexpr Key<Tensor1<A>> magnitudes{"magnitudes of gated"};  // with ternary layers only
    static constexpr Key<Tensor2<A>> squares{"squares of heads", RecomputeCost::sum, until_input};
    static constexpr Key<Tensor3<A>> states{"states of chunks", RecomputeCost::mixing, until_input}, state{"delta rule state"};
    static constexpr Key<Tensor3<T>> convolution{"convolution state"}, before{"inputs before blocks", RecomputeCost::sum, until_input};
    // Saved with context parallelism only, for each block of contiguous tokens.
    static constexpr Key<Tensor2<A>> entering{"states that enter blocks", RecomputeCost::sum, until_input},
        transition{"transitions of blocks", RecomputeCost::sum, until_input};
  };
  // Column widths of the projected rows on this rank: q, k, v, z, b, a.
  Index inner() const { return num_heads_ * head_dim_; }
  Index key_width() const { return num_key_heads_ * c_.key_dim; }
  Index channels() const { return inner() + 2 * key_width(); }
  Index projected() const { return channels() + inner() + 2 * num_heads_; }
  template <class S>
  Matrix<S> qkv(const Tensor2<S>& p) const {
    return columns(p, 0, channels());
  }
  template <class S>
  Matrix<S> z(const Tensor2<S>& p) const {
    return columns(p, channels(), inner());
  }
  DeltaInput<T> input(const Tensor2<T>& p, const Tensor2<T>& conv, const Documents& documents) const {
    const Matrix<const T> all(conv), raw(p);
    const Index scalars = channels() + inner();
    return {columns(all, 0, key_width()),      columns(all, key_width(), key_width()),         columns(all, 2 * key_width(), inner()),
            columns(raw, scalars, num_heads_), columns(raw, scalars + num_heads_, num_heads_), documents};
  }
  DeltaShape shape(const SequenceLayout& s) const {
    const Index length = s.block_length();
    return {s.batch * s.blocks(), length, num_heads_, num_key_heads_, head_dim_, c_.key_dim, std::min(c_.chunk_size, length)};
  }
  DeltaWeights<A> weights() const { return {dt_bias_->template vector<const A>(), a_log_->template vector<const A>()}; }
  Tensor2<const A> conv_weight() const { return Tensor2<const A>(conv_->template vector<const A>().data(), channels(), c_.conv_kernel); }
  Communicator& head_ranks(Pass& a) const {
    BlockedCommunicator& ranks = a.holders(*out_);
    return ranks.block(std::max(1, ranks.size() / int(c_.num_heads)));
  }
  Tensor1<A> norm_of_all_heads(Pass&) const;
  void mix(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, Tensor3<A> states);
  void mix_with_past(Pass&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan);
  void mix_shared(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, Tensor3<A> states);
  void combine_blocks(Pass&, Tensor2<const A> transition, Tensor2<const A> local, Tensor2<A> state, bool from_the_end) const;
  void gate_and_norm(Pass&, Frame&, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> gated);
  void gate_and_norm_backward(Pass&, Frame&, Tensor2<T> dgated, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> dscan, Tensor2<T> dp);
  void mix_backward(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> dscan, Tensor2<T> dconv, Tensor2<T> dp);
  void convolution_backward_of(Pass&, Frame&, Tensor2<T> p, Tensor2<T> dconv, Tensor2<T> dp);

  DeltaConfig c_;
  std::string name_;
  double eps_;
  Index num_heads_, num_key_heads_, head_dim_;  // on this rank: heads, key heads, value channels per head
  Index first_channel_;                         // first of this rank's value channels of a head
  Parameter *q_, *k_, *v_, *z_, *b_, *a_, *conv_, *a_log_, *dt_bias_, *norm_, *out_;
};

OperatorChain delta_operators(const ModelConfig& m, const std::string& name) {
  const DeltaConfig& c = m.delta;
  const auto [by_head, by_key_head, heads] = delta_runs(c);
  const Channels stream = undivided(m.hidden_size), inner = by_units({by_head}), mixed = by_units({by_head, by_head});
  const Channels projected = by_units({by_key_head, by_key_head, by_head, by_head, heads, heads});
  std::vector<std::string> in;
  for (const char* part : {".q_proj", ".k_proj", ".v_proj", ".z_proj", ".b_proj", ".a_proj"}) in.push_back(name + part);
  const OperatorWeight conv{name + ".conv1d.weight", {c.channels(), 1, c.conv_kernel}, {by_key_head, by_key_head, by_head}};
  return {gemm_operator("q, k, v, z, b, a", stream, projected, in), over_tokens("convolution", projected, projected, {conv}),
          over_tokens("gated delta rule", projected, mixed, {{name + ".A_log", {c.num_heads}, {heads}}, {name + ".dt_bias", {c.num_heads}, {heads}}}),
          over_units("gated norm", mixed, inner, {{name + ".norm.weight", {c.head_dim}}}, {{heads, 1, 1, 1}}),
          gemm_operator("output", inner, stream, {name + ".out_proj"})};
}

template <class T>
GatedDeltaNet<T>::GatedDeltaNet(const ModelConfig& m, const std::string& name, Parameters& parameters)
    : c_(m.delta), name_(name), eps_(m.rms_norm_eps) {
  const auto [by_head, by_key_head, heads] = delta_runs(c_);
  const auto projection = [&](const char* part, const Run& run, Parameters::Fit fit = Parameters::Fit::adjacent) {
    return &parameters.declare(adapting({name + part + ".weight", {run.extent, m.hidden_size}, by_rows({run}), normal(m.init_std), Storage::factor}),
                               fit);
  };
  const auto of_heads = [&, &heads = heads](const char* part, Init init) {
    return &parameters.declare({name + part, {c_.num_heads}, by_rows({heads}), init, Storage::wide, false});
  };
  q_ = projection(".q_proj", by_key_head, Parameters::Fit::aligned);
  k_ = projection(".k_proj", by_key_head);
  v_ = projection(".v_proj", by_head);
  z_ = projection(".z_proj", by_head);
  b_ = projection(".b_proj", heads);
  a_ = projection(".a_proj", heads);
  conv_ = &parameters.declare({name + ".conv1d.weight",
                               {c_.channels(), 1, c_.conv_kernel},
                               by_rows({by_key_head, by_key_head, by_head}),
                               uniform(1 / std::sqrt(double(c_.conv_kernel))),
                               Storage::wide});
  a_log_ = of_heads(".A_log", log_of_uniform(1, 16));
  dt_bias_ = of_heads(".dt_bias", step_bias(1e-3, 0.1));  // as in Mamba-2
  norm_ = &parameters.declare({name + ".norm.weight", {c_.head_dim}, replicated(), ones(), Storage::wide, false, true});
  out_ = &parameters.declare(
      adapting({name + ".out_proj.weight", {m.hidden_size, c_.inner()}, by_columns({by_head}), normal(m.init_std), Storage::factor}));
  num_heads_ = a_log_->rows();
  head_dim_ = out_->columns() / num_heads_;
  num_key_heads_ = q_->rows() / c_.key_dim;
  first_channel_ = out_->first(1) % c_.head_dim;
  require(num_heads_ % num_key_heads_ == 0, Exit::config,
          "{}: {} heads do not split over {} key heads on each of {} tensor ranks; change model.delta.num_heads, model.delta.num_key_heads or "
          "parallel.tensor",
          name, num_heads_, num_key_heads_, parameters.coordinates()[Axis::tensor].ranks);
}

template <class T>
void GatedDeltaNet<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const DeltaShape s = shape(a.sequences);
  const auto p = frame.put(Keys::projected, rows, projected());
  const auto conv = frame.put(Keys::convolved, rows, channels()), scan = frame.put(Keys::scan, rows, inner());
  const auto states = frame.put(Keys::states, s.batch, a.state ? 0 : s.chunks(), s.state_elements());
  const auto gated = frame.put(Keys::gated, rows, inner());
  if (frame.wants(Keys::projected)) {
    const Index first = frame.first_row_wanted(Keys::projected);
    adapted_linear<T>(a, {q_, k_, v_, z_, b_, a_}, rows_from(h.gather(), first), rows_from(p, first), 1, 0, {}, h.gather());
  }
  if (a.state) mix_with_past(a, p, conv, scan);
  else if (a.context) mix_shared(a, frame, p, conv, scan, states);
  else mix(a, frame, p, conv, scan, states);
  if (frame.wants(Keys::scan)) contribute_once<T>(a.dev, *out_, scan);
  gate_and_norm(a, frame, p, scan, gated);
  a.show(name_, ".convolved", conv, *conv_);
  a.show(name_, ".scan", scan, *out_);
  a.show(name_, ".gated", gated, *out_);
  const auto largest = save_magnitudes<T>(a, frame, Keys::magnitudes, *out_, gated);
  if (y.data()) adapted_linear<T>(a, {out_}, gated, y, 1, beta(add), largest);
}

// Mixing over the tokens: convolution and gated delta rule.
template <class T>
void GatedDeltaNet<T>::mix(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, Tensor3<A> states) {
  const DeltaShape s = shape(a.sequences);
  if (frame.wants(Keys::convolved)) convolution<T>(a.dev, s.batch, qkv(p), conv_weight(), {}, {}, conv, a.sequences.documents);
  if (frame.wants(Keys::scan)) gated_delta<T>(a.dev, s, input(p, conv, a.sequences.documents), weights(), {}, scan, states, {});
}

template <class T>
void GatedDeltaNet<T>::mix_with_past(Pass& a, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan) {
  const DeltaShape s = shape(a.sequences);
  const auto before = part(a.state->tensor(a.dev, this, Keys::convolution, c_.conv_kernel - 1, channels()), a.sequences.first_sequence, s.batch);
  const auto state = part(a.state->tensor(a.dev, this, Keys::state, Index(1), s.state_elements()), a.sequences.first_sequence, s.batch);
  const Tensor2<A> carried(state.data(), s.batch, s.state_elements());
  convolution<T>(a.dev, s.batch, qkv(p), conv_weight(), {}, before, conv);
  convolution_tail<T>(a.dev, s.batch, qkv(p), before, before);
  gated_delta<T>(a.dev, s, input(p, conv, {}), weights(), carried, scan, {}, carried);
}

template <class T>
void GatedDeltaNet<T>::mix_shared(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, Tensor3<A> states) {
  const DeltaShape s = shape(a.sequences);
  const auto before = frame.put(Keys::before, s.batch, c_.conv_kernel - 1, channels());
  const auto entering = frame.put(Keys::entering, s.batch, s.state_elements());
  const auto transition = frame.put(Keys::transition, s.batch, num_heads_ * c_.key_dim * c_.key_dim);
  const DeltaInput<T> in = input(p, conv, a.sequences.documents);
  if (frame.wants(Keys::before)) ContextScan<T>(a).inputs_before(qkv(p), before);
  if (frame.wants(Keys::convolved)) convolution<T>(a.dev, s.batch, qkv(p), conv_weight(), {}, before, conv, a.sequences.documents);
  if (frame.wants(Keys::entering)) {
    Scope scope(a.dev.scratch);
    const auto local = a.scratch<A>("states of own blocks", s.batch, s.state_elements());
    gated_delta_block<T>(a.dev, s, in, weights(), transition, local);
    combine_blocks(a, transition, local, entering, false);
  }
  if (frame.wants(Keys::scan)) gated_delta<T>(a.dev, s, in, weights(), entering, scan, states, {});
}

// State that enters each block of this rank (from_the_end: gradient of the state that leaves it). Gathers the effects of
// all blocks on the state, and combines those on one side of a block, from far to near: S <- S M + L, or S M' + L.
template <class T>
void GatedDeltaNet<T>::combine_blocks(Pass& a, Tensor2<const A> transition, Tensor2<const A> local, Tensor2<A> state, bool from_the_end) const {
  Scope scope(a.dev.scratch);
  const ContextScan<T> blocks(a);
  const Index here = blocks.blocks(), square = Index(transition.extent(1)), width = Index(local.extent(1)), each = here * (square + width);
  const auto mine = a.scratch<A>("effects of blocks", each), all = a.scratch<A>("effects of blocks of all ranks", a.sequences.ranks * each);
  const auto next = a.scratch<A>("state after a block", width);
  const auto row = [](A* x, Index count) { return Matrix<A>(x, 1, count, count); };
  const auto copy = [&](const A* from, A* to, Index count) { convert<A, A>(a.dev, Matrix<const A>(from, 1, count, count), row(to, count)); };
  copy(transition.data(), mine.data(), here * square), copy(local.data(), mine.data() + here * square, here * width);
  const Device::Purpose purpose(a.dev, from_the_end ? "gated delta rule, backward: transition and state of each block"
                                                    : "gated delta rule: transition and state of each block");
  a.context->all_gather<A>(a.dev, mine, all);
  const auto head = [&](A* x, Index h, Index rows) { return Matrix<A>(x + h * rows * c_.key_dim, rows, c_.key_dim, c_.key_dim); };
  for (Index i = 0; i < here; ++i) {
    A* const s = &state(i, 0);
    fill<A>(a.dev, Tensor1<A>(s, width), 0);
    for (Index n = from_the_end ? blocks.last() : 0; n != blocks.number(i); from_the_end ? --n : ++n) {
      const Index from = blocks.gathered(i / a.sequences.blocks(), n);
      A* const rank = all.data() + from / here * each;
      copy(rank + here * square + from % here * width, next.data(), width);
      for (Index h = 0; h < num_heads_; ++h)
        gemm<A>(a.dev, MatrixOp::none, head(s, h, head_dim_), from_the_end ? MatrixOp::transpose : MatrixOp::none,
                head(rank + from % here * square, h, c_.key_dim), head(next.data(), h, head_dim_), 1, 1, "gated_delta_gemm");
      copy(next.data(), s, width);
    }
  }
}

// The norm weights of this rank's channels, for each of its heads, in scratch memory.
template <class T>
Tensor1<Acc<T>> GatedDeltaNet<T>::norm_of_all_heads(Pass& a) const {
  const auto all = a.scratch<A>("norm weights of all heads", inner());
  fill<A>(a.dev, all, 0);
  add_bias<A>(a.dev, rows(norm_->template vector<const A>(), first_channel_, head_dim_), 1, Matrix<A>(all.data(), num_heads_, head_dim_, head_dim_));
  return all;
}

template <class T>
void GatedDeltaNet<T>::gate_and_norm(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> gated) {
  const auto squares = frame.put(Keys::squares, Index(p.extent(0)), num_heads_);
  if (frame.wants(Keys::squares)) {
    gated_norm_squares<T>(a.dev, GateOrder::norm_first, scan, z(p), squares);
    const Device::Purpose purpose(a.dev, "gated norm: rows x heads");
    head_ranks(a).all_reduce(a.dev, flat(squares));
  }
  if (!frame.wants(Keys::gated)) return;
  Scope scope(a.dev.scratch);
  gated_norm<T>(a.dev, GateOrder::norm_first, scan, z(p), norm_of_all_heads(a), squares, c_.head_dim, eps_, gated);
}

template <class T>
void GatedDeltaNet<T>::gate_and_norm_backward(Pass& a, Frame& frame, Tensor2<T> dgated, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> dscan,
                                              Tensor2<T> dp) {
  Scope scope(a.dev.scratch);
  const auto squares = frame.get(Keys::squares);
  const auto dots = a.scratch<A>("dot products of heads", Index(p.extent(0)), num_heads_);
  const auto norm = norm_of_all_heads(a), dnorm = a.scratch<A>("gradient of norm weights of all heads", inner());
  fill<A>(a.dev, dnorm, 0);
  gated_norm_dots<T>(a.dev, GateOrder::norm_first, dgated, scan, z(p), norm, squares, c_.head_dim, eps_, dots, dnorm);
  if (norm_->trained)
    bias_backward<A>(a.dev, Matrix<const A>(dnorm.data(), num_heads_, head_dim_, head_dim_), 1,
                     rows(norm_->template vector_gradient<A>(), first_channel_, head_dim_));
  const Device::Purpose purpose(a.dev, "gated norm backward: rows x heads");
  head_ranks(a).all_reduce(a.dev, flat(dots));
  gated_norm_backward<T>(a.dev, GateOrder::norm_first, dgated, scan, z(p), norm, squares, dots, c_.head_dim, eps_, dscan, z(dp));
}

template <class T>
void GatedDeltaNet<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const auto p = frame.get(Keys::projected), conv = frame.get(Keys::convolved), scan = frame.get(Keys::scan);
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);
  const auto dgated = a.scratch<T>("gradient of gated", rows, inner());
  adapted_linear_backward_input<T>(a, {out_}, dy, dgated);
  contribute_once<T>(a.dev, *out_, dgated);
  const auto dp = frame.put(Keys::dprojected, rows, projected());
  const auto dscan = a.scratch<T>("gradient of scan", rows, inner()), dconv = a.scratch<T>("gradient of convolved", rows, channels());
  gate_and_norm_backward(a, frame, dgated, p, scan, dscan, dp);
  mix_backward(a, frame, p, conv, dscan, dconv, dp);
  convolution_backward_of(a, frame, p, dconv, dp);
  adapted_linear_backward_input<T>(a, {q_, k_, v_, z_, b_, a_}, dp, dh, 1, beta(add));
}

template <class T>
void GatedDeltaNet<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  adapted_weights_backward<T>(a, {out_}, dy, frame.get(Keys::gated), 1, frame.get(Keys::magnitudes));
  adapted_weights_backward<T>(a, {q_, k_, v_, z_, b_, a_}, frame.get(Keys::dprojected), h);
}

// With context parallelism, the gradient of the state that leaves each block is known once those of the initial states of
// the later blocks are.
template <class T>
void GatedDeltaNet<T>::mix_backward(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> dscan, Tensor2<T> dconv, Tensor2<T> dp) {
  Scope scope(a.dev.scratch);
  const DeltaShape s = shape(a.sequences);
  const auto states = frame.get(Keys::states);
  const DeltaInput<T> in = input(p, conv, a.sequences.documents);
  const Index scalars = channels() + inner();
  const DeltaInputGradient<T> din{columns(dconv, 0, key_width()), columns(dconv, key_width(), key_width()), columns(dconv, 2 * key_width(), inner()),
                                  columns(dp, scalars, num_heads_), columns(dp, scalars + num_heads_, num_heads_)};
  Tensor2<A> dlast;
  if (a.context) {
    dlast = a.scratch<A>("gradient of states, later blocks", s.batch, s.state_elements());
    const auto local = a.scratch<A>("gradient of states, own blocks", s.batch, s.state_elements());
    gated_delta_backward<T>(a.dev, s, in, weights(), states, dscan, {}, {}, {}, local);
    combine_blocks(a, frame.get(Keys::transition), local, dlast, true);
  }
  gated_delta_backward<T>(a.dev, s, in, weights(), states, dscan, dlast, din,
                          {dt_bias_->template vector_gradient<A>(), a_log_->template vector_gradient<A>()}, {});
}

template <class T>
void GatedDeltaNet<T>::convolution_backward_of(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> dconv, Tensor2<T> dp) {
  Scope scope(a.dev.scratch);
  const Index batch = shape(a.sequences).batch;
  Tensor3<T> before, dbefore;
  if (a.context) {
    before = frame.get(Keys::before);
    dbefore = a.scratch<T>("gradient of inputs before blocks", batch, c_.conv_kernel - 1, channels());
  }
  convolution_backward<T>(a.dev, batch, dconv, qkv(p), conv_weight(), {}, before, qkv(dp),
                          conv_->trained ? Tensor2<A>(conv_->template vector_gradient<A>().data(), channels(), c_.conv_kernel) : Tensor2<A>(), {},
                          dbefore, a.sequences.documents);
  if (a.context) ContextScan<T>(a).inputs_before_backward(dbefore, qkv(dp));
}

void read_delta(Section& s, ModelConfig& m) {
  DeltaConfig& c = m.delta;
  c.num_heads =
      s.get("num_heads", c.num_heads, "heads of values (linear_num_value_heads), sharded over the tensor-parallel ranks").positive().at_most(widest);
  c.num_key_heads = s.get("num_key_heads", c.num_key_heads, "heads of queries and keys (linear_num_key_heads), each for several heads of values")
                        .positive()
                        .at_most(widest);
  c.head_dim = s.get("head_dim", c.head_dim, "value channels per head (linear_value_head_dim)").positive().at_most(widest);
  c.key_dim = s.get("key_dim", c.key_dim, "query and key channels per head (linear_key_head_dim)").positive().at_most(widest);
  c.conv_kernel = s.get("conv_kernel", c.conv_kernel, "width of the causal convolution (linear_conv_kernel_dim)")
                      .unit("tokens")
                      .at_least(2)
                      .at_most(largest_conv_kernel);
  c.chunk_size = s.get("chunk_size", c.chunk_size, "chunk length of the gated delta rule; changes rounding only")
                     .unit("tokens")
                     .positive()
                     .at_most(longest)
                     .effect(Effect::none);
}

LayerFlops delta_flops(const ModelConfig& m, const TextLengths& lengths) {
  const DeltaConfig& c = m.delta;
  const double e = double(c.inner()), T = double(lengths.text);
  LayerFlops f;
  f.gemms = 2.0 * m.hidden_size * (double(c.channels()) + e + 2.0 * double(c.num_heads)) + 2.0 * e * m.hidden_size;
  f.convolution = 2.0 * c.conv_kernel * double(c.channels());
  f.recurrence = 7.0 * e * double(c.key_dim);
  f.scan = delta::flops_of({1, lengths.text, c.num_heads, c.num_key_heads, c.head_dim, c.key_dim, c.chunk_size}, false) / T;
  return f;
}

template <class T>
struct DeltaLayer final : SingleLayer<T, GatedDeltaNet> {
  DeltaLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, GatedDeltaNet>(c, name, ".linear_attn", p) {}
};

constexpr char delta_name[] = ".linear_attn";

const Registered delta_net(
    {'G',
     "delta",
     "gated delta net",
     make_layer<DeltaLayer>,
     delta_flops,
     chains_of<delta_operators, delta_name>,
     {{"delta", "gated delta net", read_delta}},
     {.convolution = {[](const ModelConfig& m) { return m.delta.conv_kernel; }, "delta.conv_kernel"}, .same_launches = true, .ternary = true}});

}  // namespace
}  // namespace gyr
