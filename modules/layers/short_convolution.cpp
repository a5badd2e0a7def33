// SPDX-License-Identifier: BSD-3-Clause
// Gated short convolution (LFM2): y = (c * conv(b * x)) out' with (b, c, x) = h in', where * multiplies element by
// element and conv is a causal depthwise convolution without an activation (kernels/ops/convolution.hpp). Sharded over the
// tensor-parallel ranks by channels.
// Context parallel: each rank receives the last elements of b * x before each of its blocks (context_scan.hpp).
#include <cmath>

#include "kernels/ops/convolution.hpp"
#include "kernels/ops/elementwise.hpp"
#include "modules/context/context_scan.hpp"
#include "modules/layers/projection.hpp"
#include "modules/layers/single_layer.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {
namespace {

// Run (weight.hpp) of the channels, which the tensor-parallel ranks shard.
Run short_channels(const ModelConfig& m) { return {m.hidden_size, m.hidden_size, false, "hidden_size"}; }

template <class T>
class ShortConvolution final : public Branch<T> {
 public:
  // Weights NAME.in_proj, .conv1d and .out_proj
  ShortConvolution(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr auto until_input = Phase::input_gradients;
    static constexpr Key<Tensor2<T>> projected{"projected", RecomputeCost::gemm, until_input, RowSplit::split},
        product{"b times x", RecomputeCost::pass, until_input}, convolved{"convolved", RecomputeCost::pass, until_input},
        gated{"gated", RecomputeCost::pass}, dprojected{"gradient of projected"};
    static constexpr Key<Tensor3<T>> convolution{"convolution state"}, before{"inputs before blocks", RecomputeCost::sum, until_input};
  };
  // Columns of the projected rows on this rank: b, c, x.
  template <class S>
  Matrix<S> b(const Tensor2<S>& p) const {
    return columns(p, 0, channels_);
  }
  template <class S>
  Matrix<S> c(const Tensor2<S>& p) const {
    return columns(p, channels_, channels_);
  }
  template <class S>
  Matrix<S> x(const Tensor2<S>& p) const {
    return columns(p, 2 * channels_, channels_);
  }
  Index blocks(const SequenceLayout& s) const { return s.batch * s.blocks(); }
  Tensor2<const A> conv_weight() const { return Tensor2<const A>(conv_->template vector<const A>().data(), channels_, c_.kernel); }
  Tensor1<const A> optional(const Parameter* p) const { return p ? p->template vector<const A>() : Tensor1<const A>(); }
  void convolve(Pass&, Frame&, Tensor2<T> product, Tensor2<T> conv);
  void convolve_backward(Pass&, Frame&, Tensor2<T> dconv, Tensor2<T> dproduct);

  ShortConvConfig c_;
  std::string name_;
  Index channels_;  // channels on this rank
  Parameter *in_, *conv_, *out_;
  Parameter *in_bias_ = nullptr, *conv_bias_ = nullptr, *out_bias_ = nullptr;
};

OperatorChain short_conv_operators(const ModelConfig& m, const std::string& name) {
  const Run run = short_channels(m);
  const Channels stream = undivided(m.hidden_size), projected = by_units({run, run, run}), inner = by_units({run});
  std::vector<OperatorWeight> conv{{name + ".conv1d.weight", {m.hidden_size, 1, m.short_conv.kernel}, {run}}};
  if (m.short_conv.bias) conv.push_back({name + ".conv1d.bias", {m.hidden_size}, {run}});
  return {gemm_operator("b, c, x", stream, projected, {name + ".in_proj"}, m.short_conv.bias),
          over_tokens("gated convolution", projected, inner, conv), gemm_operator("output", inner, stream, {name + ".out_proj"}, m.short_conv.bias)};
}

template <class T>
ShortConvolution<T>::ShortConvolution(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.short_conv), name_(name) {
  const Run run = short_channels(m);
  const Index D = m.hidden_size;
  const double bound = 1 / std::sqrt(double(c_.kernel));
  const auto vector = [&](const char* part, Index size, Shardings shardings, Init init) {
    return &parameters.declare({name + part, {size}, std::move(shardings), init, Storage::wide, false});
  };
  in_ = &parameters.declare(adapting({name + ".in_proj.weight", {3 * D, D}, by_rows({run, run, run}), normal(m.init_std), Storage::factor}));
  conv_ = &parameters.declare({name + ".conv1d.weight", {D, 1, c_.kernel}, by_rows({run}), uniform(bound), Storage::wide});
  out_ = &parameters.declare(adapting({name + ".out_proj.weight", {D, D}, by_columns({run}), normal(m.init_std), Storage::factor}));
  channels_ = conv_->rows();
  if (!c_.bias) return;
  in_bias_ = vector(".in_proj.bias", 3 * D, by_rows({run, run, run}), zeros());
  conv_bias_ = vector(".conv1d.bias", D, by_rows({run}), uniform(bound));
  out_bias_ = vector(".out_proj.bias", D, replicated(), zeros());
}

template <class T>
void ShortConvolution<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const auto p = frame.put(Keys::projected, rows, 3 * channels_);
  const auto product = frame.put(Keys::product, rows, channels_), conv = frame.put(Keys::convolved, rows, channels_);
  const auto gated = frame.put(Keys::gated, rows, channels_);
  if (frame.wants(Keys::projected)) {
    const Index first = frame.first_row_wanted(Keys::projected);
    const Tensor2<T> fresh = rows_from(p, first);
    adapted_linear<T>(a, {in_}, rows_from(h.gather(), first), fresh);
    bias_scale<T>(a.dev, optional(in_bias_), {}, fresh);
  }
  if (frame.wants(Keys::product)) multiply<T>(a.dev, b(p), x(p), product);
  convolve(a, frame, product, conv);
  if (frame.wants(Keys::gated)) {
    multiply<T>(a.dev, c(p), conv, gated);
    contribute_once<T>(a.dev, *out_, gated);
  }
  a.show(name_, ".product", product, *out_);
  a.show(name_, ".convolved", conv, *out_);
  a.show(name_, ".gated", gated, *out_);
  if (!y.data()) return;
  adapted_linear<T>(a, {out_}, gated, y, 1, beta(add));
  if (out_bias_ && a.holders(*out_).rank() == 0) add_bias<T>(a.dev, out_bias_->template vector<const A>(), 1, y);
}

template <class T>
void ShortConvolution<T>::convolve(Pass& a, Frame& frame, Tensor2<T> product, Tensor2<T> conv) {
  const SequenceLayout& s = a.sequences;
  const Index taps = c_.kernel - 1;
  Tensor3<T> before;
  if (a.state) before = part(a.state->tensor(a.dev, this, Keys::convolution, taps, channels_), s.first_sequence, blocks(s));
  else if (a.context) before = frame.put(Keys::before, blocks(s), taps, channels_);
  if (!a.state && a.context && frame.wants(Keys::before)) ContextScan<T>(a).inputs_before(product, before);
  if (frame.wants(Keys::convolved))
    convolution<T>(a.dev, blocks(s), product, conv_weight(), optional(conv_bias_), before, conv, s.documents, ConvolutionEnd::linear);
  if (a.state) convolution_tail<T>(a.dev, blocks(s), product, before, before);
}

template <class T>
void ShortConvolution<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const auto p = frame.get(Keys::projected), conv = frame.get(Keys::convolved);
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);
  const auto dgated = a.scratch<T>("gradient of gated", rows, channels_), dconv = a.scratch<T>("gradient of convolved", rows, channels_),
             dproduct = a.scratch<T>("gradient of b times x", rows, channels_);
  adapted_linear_backward_input<T>(a, {out_}, dy, dgated);
  contribute_once<T>(a.dev, *out_, dgated);
  if (out_bias_) biases_backward<T>(a.dev, {out_bias_}, dy);
  const auto dp = frame.put(Keys::dprojected, rows, 3 * channels_);
  multiply<T>(a.dev, dgated, conv, c(dp));
  multiply<T>(a.dev, dgated, c(p), dconv);
  convolve_backward(a, frame, dconv, dproduct);
  multiply<T>(a.dev, dproduct, x(p), b(dp));
  multiply<T>(a.dev, dproduct, b(p), x(dp));
  if (in_bias_) biases_backward<T>(a.dev, {in_bias_}, dp);
  adapted_linear_backward_input<T>(a, {in_}, dp, dh, 1, beta(add));
}

template <class T>
void ShortConvolution<T>::convolve_backward(Pass& a, Frame& frame, Tensor2<T> dconv, Tensor2<T> dproduct) {
  const Index batch = blocks(a.sequences);
  Scope scope(a.dev.scratch);
  Tensor3<T> before, dbefore;
  if (a.context) {
    before = frame.get(Keys::before);
    dbefore = a.scratch<T>("gradient of inputs before blocks", batch, c_.kernel - 1, channels_);
  }
  convolution_backward<T>(a.dev, batch, dconv, frame.get(Keys::product), conv_weight(), optional(conv_bias_), before, dproduct,
                          conv_->trained ? Tensor2<A>(conv_->template vector_gradient<A>().data(), channels_, c_.kernel) : Tensor2<A>(),
                          conv_bias_ ? conv_bias_->template vector_gradient<A>() : Tensor1<A>(), dbefore, a.sequences.documents,
                          ConvolutionEnd::linear);
  if (a.context) ContextScan<T>(a).inputs_before_backward(dbefore, dproduct);
}

template <class T>
void ShortConvolution<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  adapted_weights_backward<T>(a, {out_}, dy, frame.get(Keys::gated));
  adapted_weights_backward<T>(a, {in_}, frame.get(Keys::dprojected), h);
}

void read_short_conv(Section& s, ModelConfig& m) {
  ShortConvConfig& c = m.short_conv;
  c.kernel = s.get("kernel", c.kernel, "width of the causal convolution (conv_L_cache)").unit("tokens").at_least(2).at_most(largest_conv_kernel);
  c.bias = s.get("bias", c.bias, "biases of in_proj, the convolution and out_proj (conv_bias)");
}

LayerFlops short_conv_flops(const ModelConfig& m, const TextLengths&) {
  const double D = double(m.hidden_size);
  LayerFlops f;
  f.gemms = 8 * D * D;
  f.convolution = 2.0 * double(m.short_conv.kernel) * D;
  return f;
}

template <class T>
struct ShortConvLayer final : SingleLayer<T, ShortConvolution> {
  ShortConvLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, ShortConvolution>(c, name, ".conv", p) {}
};

constexpr char short_conv_name[] = ".conv";

const Registered short_conv({'C',
                             "conv",
                             "gated short convolution (LFM2)",
                             make_layer<ShortConvLayer>,
                             short_conv_flops,
                             chains_of<short_conv_operators, short_conv_name>,
                             {{"short_conv", "gated short convolution", read_short_conv}},
                             {.convolution = {[](const ModelConfig& m) { return m.short_conv.kernel; }, "short_conv.kernel"},
                              .same_launches = true}});

}  // namespace
}  // namespace gyr
