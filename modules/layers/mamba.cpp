// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/mamba.hpp"

#include <cmath>

#include "kernels/ops/convolution.hpp"
#include "modules/context/context_scan.hpp"
#include "modules/layers/projection.hpp"
#include "modules/weights/contribution.hpp"

namespace gyr {

namespace {

// Runs (weight.hpp) that the tensor-parallel ranks shard: channels by heads or, with more ranks than heads, within a
// head; channels of B or C by groups; heads.
struct SsmRuns {
  Run by_head, by_group, heads;
};
SsmRuns ssm_runs(const MambaConfig& c) {
  const char* by_heads = "mamba.num_heads";
  return {{c.inner(), c.num_heads, true, by_heads},
          {c.num_groups * c.state_size, c.num_groups, false, "mamba.num_groups"},
          {c.num_heads, c.num_heads, false, by_heads}};
}

}  // namespace

OperatorChain mamba_operators(const ModelConfig& m, const std::string& name) {
  const MambaConfig& c = m.mamba;
  const auto [by_head, by_group, heads] = ssm_runs(c);
  const Channels stream = undivided(m.hidden_size), inner = by_units({by_head}), scanned = by_units({by_head, by_head});
  const Channels projected = by_units({by_head, by_head, by_group, by_group, heads});
  std::vector<OperatorWeight> conv{{name + ".conv1d.weight", {c.channels(), 1, c.conv_kernel}, {by_head, by_group, by_group}}};
  if (c.conv_bias) conv.push_back({name + ".conv1d.bias", {c.channels()}, {by_head, by_group, by_group}});
  std::vector<OperatorWeight> of_heads, norm;
  for (const char* vector : {".A_log", ".D", ".dt_bias"}) of_heads.push_back({name + vector, {c.num_heads}, {heads}});
  if (c.norm != SsmNorm::none) norm = {{name + ".norm.weight", {c.inner()}, {by_head}}};
  std::vector<InnerSum> squares;
  if (c.norm != SsmNorm::none) squares = {{by_group, 1, 1, 1}};
  return {gemm_operator("z, x, B, C, dt", stream, projected, {name + ".in_proj"}, c.in_bias), over_tokens("convolution", projected, projected, conv),
          over_tokens("scan", projected, scanned, of_heads), over_units(norm.empty() ? "gate" : "gated norm", scanned, inner, norm, squares),
          gemm_operator("output", inner, stream, {name + ".out_proj"}, c.out_bias)};
}

template <class T>
Mamba<T>::Mamba(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.mamba), name_(name), rms_norm_eps_(m.rms_norm_eps) {
  const Index inner = c_.inner();
  const auto [by_head, by_group, heads] = ssm_runs(c_);
  const auto vector = [&](const char* part, Index size, std::vector<Run> runs, Init init) {
    return &parameters.declare({name + part, {size}, by_rows(std::move(runs)), init, Storage::wide, false});
  };
  const double bound = 1 / std::sqrt(double(c_.conv_kernel));
  in_ = &parameters.declare(adapting({name + ".in_proj.weight",
                                      {c_.projected(), m.hidden_size},
                                      by_rows({by_head, by_head, by_group, by_group, heads}),
                                      normal(m.init_std),
                                      Storage::factor}));
  if (c_.in_bias) in_bias_ = vector(".in_proj.bias", c_.projected(), {by_head, by_head, by_group, by_group, heads}, zeros());
  conv_ = &parameters.declare({name + ".conv1d.weight",
                               {c_.channels(), 1, c_.conv_kernel},
                               by_rows({by_head, by_group, by_group}),
                               uniform(bound),
                               Storage::wide,
                               c_.decay_conv});
  if (c_.conv_bias) conv_bias_ = vector(".conv1d.bias", c_.channels(), {by_head, by_group, by_group}, uniform(bound));
  a_log_ = vector(".A_log", c_.num_heads, {heads}, log_of_uniform(1, 16));
  d_ = vector(".D", c_.num_heads, {heads}, ones());
  dt_bias_ = vector(".dt_bias", c_.num_heads, {heads}, step_bias(c_.dt_init_low, c_.dt_init_high));
  if (c_.norm != SsmNorm::none) norm_ = vector(".norm.weight", inner, {by_head}, ones());
  out_ =
      &parameters.declare(adapting({name + ".out_proj.weight", {m.hidden_size, inner}, by_columns({by_head}), normal(m.init_std), Storage::factor}));
  if (c_.out_bias) out_bias_ = &parameters.declare({name + ".out_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
  num_heads_ = a_log_->rows();
  head_dim_ = out_->columns() / num_heads_;
  num_groups_ = (conv_->rows() - num_heads_ * head_dim_) / (2 * c_.state_size);
  require(
      num_heads_ % num_groups_ == 0, Exit::config,
      "{}: {} heads do not split over {} groups on each of {} tensor ranks; change model.mamba.num_heads, model.mamba.num_groups or parallel.tensor",
      name, num_heads_, num_groups_, parameters.coordinates()[Axis::tensor].ranks);
}

template <class T>
Tensor1<Acc<T>> Mamba<T>::multipliers(Device& dev) const {
  auto all = dev.scratch.named("multipliers").tensor<A>(projected());
  Index at = 0, section = 0;
  for (const Index width : {inner(), inner(), group_width(), group_width(), num_heads_}) {
    fill<A>(dev, rows(all, at, width), c_.multipliers[section++]);
    at += width;
  }
  return all;
}

template <class T>
SsdShape Mamba<T>::scan_shape(const SequenceLayout& s) const {
  const Index batch = s.batch * s.blocks(), length = s.block_length();
  return {batch, length, num_heads_, num_groups_, head_dim_, c_.state_size, std::min(c_.chunk_size, length), c_.dt_low, c_.dt_high};
}

template <class T>
SsdWeights<Acc<T>> Mamba<T>::scan_weights() const {
  return {dt_bias_->vector<const A>(), a_log_->vector<const A>(), d_->vector<const A>()};
}

template <class T>
void Mamba<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const SsdShape shape = scan_shape(a.sequences);
  const auto p = frame.put(Keys::projected, rows, projected());
  const auto conv = frame.put(Keys::convolved, rows, channels()), scan = frame.put(Keys::scan, rows, inner());
  const SsdSaved<A> states{frame.put(Keys::dt, rows, num_heads_), frame.put(Keys::states, shape.batch, shape.chunks(), inner() * c_.state_size)};
  const auto gated = frame.put(Keys::gated, rows, inner());

  if (frame.wants(Keys::projected)) {
    const Index first = frame.first_row_wanted(Keys::projected);
    const Tensor2<T> fresh = rows_from(p, first);
    adapted_linear<T>(a, {in_}, rows_from(h.gather(), first), fresh, c_.in_multiplier, 0, {}, h.gather());
    Scope scope(a.dev.scratch);
    bias_scale<T>(a.dev, optional(in_bias_), multipliers(a.dev), fresh);
  }
  if (a.state) scan_with_past(a, p, conv, scan, states);
  else if (a.context) mix_shared(a, frame, p, conv, scan, states);
  else mix(a, frame, p, conv, scan, states);
  if (frame.wants(Keys::scan)) contribute_once<T>(a.dev, *out_, scan);
  gate_and_norm(a, frame, p, scan, gated);
  a.show(name_, ".projected", p, *in_);
  a.show(name_, ".convolved", conv, *conv_);
  a.show(name_, ".scan", scan, *out_);
  a.show(name_, ".gated", gated, *out_);
  const auto largest = save_magnitudes<T>(a, frame, Keys::magnitudes, *out_, gated);
  if (!y.data()) return;
  adapted_linear<T>(a, {out_}, gated, y, c_.out_multiplier, beta(add), largest);
  if (out_bias_ && a.holders(*out_).rank() == 0) add_bias<T>(a.dev, out_bias_->vector<const A>(), c_.out_multiplier, y);
}

// Mixing over the tokens: convolution and SSD scan.
template <class T>
void Mamba<T>::mix(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A> states) {
  const SsdShape shape = scan_shape(a.sequences);
  if (frame.wants(Keys::convolved)) convolution<T>(a.dev, shape.batch, xbc(p), conv_weight(), optional(conv_bias_), {}, conv, a.sequences.documents);
  if (frame.wants(Keys::scan)) ssd<T>(a.dev, shape, {x(conv), b(conv), c(conv), dt(p), a.sequences.documents}, scan_weights(), {}, scan, states, {});
}

// mix() with context parallelism: each rank scans its own blocks, then adds the states that arrive from the blocks
// before them.
template <class T>
void Mamba<T>::mix_shared(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A> states) {
  const SsdShape shape = scan_shape(a.sequences);
  ContextScan<T> shared(a);
  const auto before = frame.put(Keys::before, shape.batch, c_.conv_kernel - 1, channels());
  const auto entering = frame.put(Keys::entering, shape.batch, inner() * c_.state_size), total = frame.put(Keys::total, shape.batch, num_heads_);
  const auto decay = frame.put(Keys::decay, shape.batch, shape.chunks(), num_heads_);
  if (frame.wants(Keys::before)) shared.inputs_before(xbc(p), before);
  if (frame.wants(Keys::convolved))
    convolution<T>(a.dev, shape.batch, xbc(p), conv_weight(), optional(conv_bias_), before, conv, a.sequences.documents);
  if (!frame.wants(Keys::scan)) return;
  Scope scope(a.dev.scratch);
  const SsdInput<T> input{x(conv), b(conv), c(conv), dt(p), a.sequences.documents};
  const auto last = a.scratch<A>("states of last chunks", shape.batch, inner() * c_.state_size);
  ssd_chunk_states<T>(a.dev, shape, input, scan_weights(), states, last, decay);
  if (frame.wants(Keys::entering)) {
    const auto local = a.scratch<A>("states of own blocks", shape.batch, inner() * c_.state_size);
    ssd_local_state<A>(a.dev, shape, decay, states.states, last, total, local);
    shared.entering(shape, total, local, entering);
  }
  ssd_pass_states<A>(a.dev, shape, decay, entering, states.states, {});
  ssd_outputs<T>(a.dev, shape, input, scan_weights(), states, scan);
}

template <class T>
void Mamba<T>::gate_and_norm(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> gated) {
  if (c_.norm == SsmNorm::none) {
    if (frame.wants(Keys::gated)) gate<T>(a.dev, scan, z(p), gated);
    return;
  }
  const auto squares = frame.put(Keys::squares, Index(p.extent(0)), num_groups_);
  if (frame.wants(Keys::squares)) {
    gated_norm_squares<T>(a.dev, order(), scan, z(p), squares);
    const Device::Purpose purpose(a.dev, "gated norm: rows x groups");
    norm_ranks(a).all_reduce(a.dev, flat(squares));
  }
  if (frame.wants(Keys::gated)) gated_norm<T>(a.dev, order(), scan, z(p), norm_->vector<const A>(), squares, norm_width(), rms_norm_eps_, gated);
}

template <class T>
void Mamba<T>::scan_with_past(Pass& a, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A> states) {
  const SsdShape shape = scan_shape(a.sequences);
  const Index size = inner() * c_.state_size;
  const auto before = part(a.state->tensor(a.dev, this, Keys::convolution, c_.conv_kernel - 1, channels()), a.sequences.first_sequence, shape.batch);
  const auto state = part(a.state->tensor(a.dev, this, Keys::state, Index(1), size), a.sequences.first_sequence, shape.batch);
  const Tensor2<A> carried(state.data(), shape.batch, size);
  convolution<T>(a.dev, shape.batch, xbc(p), conv_weight(), optional(conv_bias_), before, conv);
  convolution_tail<T>(a.dev, shape.batch, xbc(p), before, before);
  const SsdInput<T> input{x(conv), b(conv), c(conv), dt(p)};
  if (shape.seq_length == 1) ssd_step<T>(a.dev, shape, input, scan_weights(), carried, scan);
  else ssd<T>(a.dev, shape, input, scan_weights(), carried, scan, states, carried);
}

template <class T>
void Mamba<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const auto p = frame.get(Keys::projected), conv = frame.get(Keys::convolved), scan = frame.get(Keys::scan);
  const SsdSaved<A> states{frame.get(Keys::dt), frame.get(Keys::states)};
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);

  auto dgated = a.scratch<T>("gradient of gated", rows, inner());
  adapted_linear_backward_input<T>(a, {out_}, dy, dgated, c_.out_multiplier);
  contribute_once<T>(a.dev, *out_, dgated);
  if (out_bias_) biases_backward<T>(a.dev, {out_bias_}, dy, c_.out_multiplier);

  const auto dp = frame.put(Keys::dprojected, rows, projected());
  auto dscan = a.scratch<T>("gradient of scan", rows, inner());
  if (c_.norm == SsmNorm::none) {
    gate_backward<T>(a.dev, dgated, scan, z(p), dscan, z(dp));
  } else {
    Scope inside(a.dev.scratch);
    const auto squares = frame.get(Keys::squares);
    auto dots = a.scratch<A>("dot products of norm groups", rows, num_groups_);
    gated_norm_dots<T>(a.dev, order(), dgated, scan, z(p), norm_->vector<const A>(), squares, norm_width(), rms_norm_eps_, dots,
                       norm_->vector_gradient<A>());
    const Device::Purpose purpose(a.dev, "gated norm backward: rows x groups");
    norm_ranks(a).all_reduce(a.dev, flat(dots));
    gated_norm_backward<T>(a.dev, order(), dgated, scan, z(p), norm_->vector<const A>(), squares, dots, norm_width(), rms_norm_eps_, dscan, z(dp));
  }
  auto dconv = a.scratch<T>("gradient of convolved", rows, channels());
  scan_backward(a, frame, p, conv, states, dscan, dconv, dp);
  convolution_backward_of(a, frame, p, dconv, dp);
  bias_scale<T>(a.dev, {}, multipliers(a.dev), dp);
  if (in_bias_) biases_backward<T>(a.dev, {in_bias_}, dp);
  adapted_linear_backward_input<T>(a, {in_}, dp, dh, c_.in_multiplier, beta(add));
}

template <class T>
void Mamba<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  adapted_weights_backward<T>(a, {out_}, dy, frame.get(Keys::gated), c_.out_multiplier, frame.get(Keys::magnitudes));
  adapted_weights_backward<T>(a, {in_}, frame.get(Keys::dprojected), h, c_.in_multiplier);
}

template <class T>
void Mamba<T>::scan_backward(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> conv, SsdSaved<A> states, Tensor2<T> dscan, Tensor2<T> dconv,
                             Tensor2<T> dp) {
  const SsdInput<T> input{x(conv), b(conv), c(conv), dt(p), a.sequences.documents};
  const SsdInputGradient<T> dinput{x(dconv), b(dconv), c(dconv), dt(dp)};
  const SsdWeightGradient<A> dw{dt_bias_->vector_gradient<A>(), a_log_->vector_gradient<A>(), d_->vector_gradient<A>()};
  if (a.context) scan_backward_shared(a, frame, input, states, dscan, dinput, dw);
  else ssd_backward<T>(a.dev, scan_shape(a.sequences), input, scan_weights(), states, dscan, {}, dinput, dw, {});
}

// Backward of the scan with context parallelism: from the outputs to the states that enter the chunks, with the
// gradients that arrive from all later blocks, and then to the tokens.
template <class T>
void Mamba<T>::scan_backward_shared(Pass& a, Frame& frame, const SsdInput<T>& input, SsdSaved<A> states, Tensor2<T> dscan,
                                    const SsdInputGradient<T>& dinput, const SsdWeightGradient<A>& dw) {
  Scope scope(a.dev.scratch);
  const SsdShape shape = scan_shape(a.sequences);
  const Index size = inner() * c_.state_size;
  const auto decay = frame.get(Keys::decay);
  const auto dstates = a.dev.scratch.named("gradient of states").tensor<A>(shape.batch, shape.chunks(), size);
  const auto local = a.scratch<A>("gradient of states, own blocks", shape.batch, size),
             dlast = a.scratch<A>("gradient of states, later blocks", shape.batch, size);
  ssd_outputs_backward<T>(a.dev, shape, input, scan_weights(), states, dscan, dstates);
  ssd_local_state_backward<A>(a.dev, shape, decay, dstates, local);
  ContextScan<T>(a).leaving_gradient(shape, frame.get(Keys::total), local, dlast);
  ssd_pass_states_backward<A>(a.dev, shape, decay, dlast, dstates);
  ssd_chunk_states_backward<T>(a.dev, shape, input, scan_weights(), states, dscan, dstates, dlast, dinput, dw);
}

template <class T>
void Mamba<T>::convolution_backward_of(Pass& a, Frame& frame, Tensor2<T> p, Tensor2<T> dconv, Tensor2<T> dp) {
  Scope scope(a.dev.scratch);
  const Index batch = scan_shape(a.sequences).batch;
  Tensor3<T> before, dbefore;
  if (a.context) {
    before = frame.get(Keys::before);
    dbefore = a.dev.scratch.named("gradient of inputs before blocks").tensor<T>(batch, c_.conv_kernel - 1, channels());
  }
  convolution_backward<T>(a.dev, batch, dconv, xbc(p), conv_weight(), optional(conv_bias_), before, xbc(dp),
                          conv_->trained ? Tensor2<A>(conv_->vector_gradient<A>().data(), channels(), c_.conv_kernel) : Tensor2<A>(),
                          conv_bias_ ? conv_bias_->vector_gradient<A>() : Tensor1<A>(), dbefore, a.sequences.documents);
  if (a.context) ContextScan<T>(a).inputs_before_backward(dbefore, xbc(dp));
}

namespace {
const char* name_of(SsmNorm norm) { return norm == SsmNorm::none ? "none" : norm == SsmNorm::gate_first ? "gate_first" : "norm_first"; }
}  // namespace

void read_mamba(Section& s, ModelConfig& m) {
  MambaConfig& c = m.mamba;
  c.num_heads = s.get("num_heads", c.num_heads, "SSM heads (mamba_n_heads), sharded over the tensor-parallel ranks").positive().at_most(widest);
  c.head_dim = s.get("head_dim", c.head_dim, "channels per head (mamba_d_head)").positive().at_most(widest);
  c.num_groups = s.get("num_groups", c.num_groups, "groups of heads that share B and C (mamba_n_groups)").positive().at_most(widest);
  c.state_size = s.get("state_size", c.state_size, "SSM state size per channel (mamba_d_state)").positive().at_most(widest);
  c.conv_kernel =
      s.get("conv_kernel", c.conv_kernel, "width of the causal convolution (mamba_d_conv)").unit("tokens").at_least(2).at_most(largest_conv_kernel);
  c.chunk_size = s.get("chunk_size", c.chunk_size, "chunk length of the SSD scan (mamba_chunk_size); changes rounding only")
                     .unit("tokens")
                     .positive()
                     .at_most(longest)
                     .effect(Effect::none);
  const std::string norm =
      s.get("norm", name_of(c.norm),
            "gated RMSNorm (mamba_rms_norm): gate_first: norm(y silu(z)); norm_first: norm(y) silu(z) (mamba_norm_before_gate); none: y silu(z)")
          .one_of({"none", "gate_first", "norm_first"});
  c.norm = norm == "none" ? SsmNorm::none : norm == "gate_first" ? SsmNorm::gate_first : SsmNorm::norm_first;
  c.conv_bias = s.get("conv_bias", c.conv_bias, "bias of the convolution (mamba_conv_bias)");
  c.in_bias = s.get("in_bias", c.in_bias, "bias of in_proj (mamba_proj_bias)");
  c.out_bias = s.get("out_bias", c.out_bias, "bias of out_proj (mamba_proj_bias)");
  const std::vector<double> limit =
      s.get("dt_limit", std::vector<double>{c.dt_low, c.dt_high}, "clamp of the time step: [minimum, maximum] (time_step_limit)");
  require(limit.size() == 2, Exit::config, "model.mamba.dt_limit takes two numbers, not {}", limit.size());
  c.dt_low = limit[0], c.dt_high = limit[1];
  c.dt_init_low = s.get("dt_init_low", c.dt_init_low, "minimum of the initial time steps (time_step_min)").positive().effect(Effect::none);
  c.dt_init_high = s.get("dt_init_high", c.dt_init_high, "maximum of the initial time steps (time_step_max)").positive().effect(Effect::none);
  c.in_multiplier = s.get("in_multiplier", c.in_multiplier, "factor on the normed input (ssm_in_multiplier)");
  c.out_multiplier = s.get("out_multiplier", c.out_multiplier, "factor on the output (ssm_out_multiplier)");
  const std::vector<double> factors = s.get("multipliers", std::vector<double>(c.multipliers.begin(), c.multipliers.end()),
                                            "factors on the projected z, x, B, C and dt (ssm_multipliers)");
  require(factors.size() == 5, Exit::config, "model.mamba.multipliers takes five numbers (z, x, B, C, dt), not {}", factors.size());
  std::copy(factors.begin(), factors.end(), c.multipliers.begin());
  c.decay_conv = s.get("decay_conv", c.decay_conv, "apply weight decay to the convolution's weights").effect(Effect::course);
}

LayerFlops mamba_flops(const ModelConfig& m, const TextLengths&) {
  const MambaConfig& c = m.mamba;
  const double e = double(c.inner()), gn = double(c.num_groups * c.state_size);
  LayerFlops f;
  f.gemms = 2.0 * m.hidden_size * double(c.projected()) + 2.0 * e * m.hidden_size;
  f.convolution = 2.0 * c.conv_kernel * double(c.channels());
  f.recurrence = 5.0 * e * c.state_size;
  f.scan = 2.0 * c.chunk_size * (gn + e) + 4.0 * e * c.state_size;
  return f;
}

template class Mamba<double>;
template class Mamba<float>;
template class Mamba<bf16>;

}  // namespace gyr
