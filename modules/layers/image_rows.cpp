// SPDX-License-Identifier: BSD-3-Clause
// Layer V, the end of a vision tower (LLaVA; Liu et al., "Visual Instruction Tuning", 2023): a projector maps the rows s of the
// images to the width of the text, and each takes the place of an image token.
//   e = W_2 a(W_1 s + b_1) + b_2,   y(r) = x(r) + e(row of the images that row r of the text stands for), or y(r) = x(r)
// x(r) is 0 before position embeddings where row r is an image token. W_1 is sharded by rows over the tensor-parallel ranks, W_2
// by columns. Each rank adds its part of e to the rows of the text, whose sum over the ranks is one reduction.
#include "modules/layers/mlp.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/operator_chain.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {
namespace {

Run projected_channels(const ModelConfig& c) { return {c.hidden_size, c.hidden_size, false, "hidden_size"}; }

template <class T>
class ImageRows final : public Layer {
 public:
  // Weights NAME.linear_1 and NAME.linear_2
  ImageRows(const ModelConfig& c, const std::string& name, Parameters& parameters)
      : v_(c.vision), width_(c.hidden_size),
        first_(&declare(parameters, {name + ".linear_1.weight", {width_, v_.hidden_size}, by_rows({projected_channels(c)}), normal(c.init_std)})),
        second_(&declare(parameters, {name + ".linear_2.weight", {width_, width_}, by_columns({projected_channels(c)}), normal(c.init_std)})),
        inner_(first_->rows()) {
    if (!v_.projector_bias) return;
    first_bias_ = &parameters.declare({name + ".linear_1.bias", {width_}, by_rows({projected_channels(c)}), zeros(), Storage::wide, false});
    second_bias_ = &parameters.declare({name + ".linear_2.bias", {width_}, replicated(), zeros(), Storage::wide, false});
  }

  // Without images, the text passes unchanged.
  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    if (!a.source) return;
    const Device::Purpose purpose(a.dev, "rows of images: rows x hidden");
    const auto x = bundle.x().as<T>(), source = a.encoded.values.template as<T>();
    const Index rows = a.source->stream.rows;
    frame.refer(Keys::source, source);
    const auto inner = frame.put(Keys::inner, rows, inner_), active = frame.put(Keys::active, rows, inner_);
    const auto y = frame.put(Keys::output, x.extent(0), x.extent(1));
    Scope scope(a.dev.scratch);
    linear<T>(a.dev, Matrix<const T>(AllRows<T>(*a.source, "images, all rows", source).gather()), first_->template factor<T>(), Matrix<T>(inner));
    if (first_bias_) bias_scale<T>(a.dev, first_bias_->template vector<const A>(), {}, Matrix<T>(inner));
    activate<T>(a.dev, v_.projector_activation, inner, 1, active);
    contribute_once<T>(a.dev, *second_, active);
    add_to_text(a, active, y);
    add<T>(a.dev, flat(x), flat(y));
    bundle.x() = y;
  }

  // The gradient of y is that of x.
  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients when) override {
    if (!a.source) return;
    const Device::Purpose purpose(a.dev, "rows of images, backward: rows x hidden");
    const Index rows = a.source->stream.rows;
    const auto de = frame.put(Keys::projected_gradient, rows, width_), dinner = frame.put(Keys::inner_gradient, rows, inner_);
    Scope scope(a.dev.scratch);
    const auto dy = AllRows<T>(a, "gradient, all rows", gradient.x().as<T>()).gather();
    embedding<T>(a.dev, a.source->sequences.spliced, dy, 0, 1, de);
    const auto dactive = a.scratch<T>("gradient of the projector's activation", rows, inner_);
    linear_backward_input<T>(a.dev, Matrix<const T>(de), second_->template matrix<const T>(), Matrix<T>(dactive));
    contribute_once<T>(a.dev, *second_, dactive);
    activate_backward<T>(a.dev, v_.projector_activation, dactive, frame.get(Keys::inner), 1, dinner);
    if (first_bias_)
      biases_backward<T>(a.dev, {first_bias_}, Matrix<const T>(dinner)), biases_backward<T>(a.dev, {second_bias_}, Matrix<const T>(de));
    AllRows<T> total(*a.source, "partial sums of the gradient of images", a.encoded.gradient.template as<T>());
    linear_backward_input<T>(a.dev, Matrix<const T>(dinner), first_->template matrix<const T>(), Matrix<T>(total.rows()));
    total.reduce();
    const auto source = AllRows<T>(*a.source, "images, all rows", frame.get(Keys::source)).gather();
    if (when == MatrixGradients::now) return weights_of(a, frame, source);
    // Deferred gradients read the rows longer than the output of a layer is kept.
    convert<T, T>(a.dev, Matrix<const T>(source), Matrix<T>(frame.put(Keys::kept_source, rows, v_.hidden_size)));
  }

  void backward_weights(Pass& a, Frame& frame) override {
    if (a.source) weights_of(a, frame, frame.get(Keys::kept_source));
  }

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr Key<Tensor2<T>> source{"rows of images", RecomputeCost::sum, Phase::input_gradients}, kept_source{"rows of images, all"},
        inner{"projector's first output", RecomputeCost::gemm, Phase::input_gradients}, active{"projector's activation"},
        output{"output", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor2<T>> projected_gradient{"gradient of projected rows"}, inner_gradient{"gradient of the projector's first output"};
  };

  static Parameter& declare(Parameters& parameters, Weight w) {
    w.storage = Storage::factor, w.of_source = true;
    return parameters.declare(std::move(w));
  }

  void weights_of(Pass& a, Frame& frame, Tensor2<const T> source) const {
    weights_backward<T>(a.dev, {second_}, Matrix<const T>(frame.get(Keys::projected_gradient)), Matrix<const T>(frame.get(Keys::active)));
    weights_backward<T>(a.dev, {first_}, Matrix<const T>(frame.get(Keys::inner_gradient)), Matrix<const T>(source));
  }

  // y = the sum over the ranks of W_2 active + b_2, in the rows of image tokens; 0 in the others.
  void add_to_text(Pass& a, Tensor2<T> active, Tensor2<T> y) const {
    const auto projected = a.scratch<T>("projected rows of images", Index(active.extent(0)), width_);
    linear<T>(a.dev, Matrix<const T>(active), second_->template factor<T>(), Matrix<T>(projected));
    if (second_bias_ && a.tensor.rank() == 0) bias_scale<T>(a.dev, second_bias_->template vector<const A>(), {}, Matrix<T>(projected));
    AllRows<T> sum(a, "partial sums", y);
    embedding<T>(a.dev, a.sequences.spliced, projected, 0, 1, sum.rows());
    sum.reduce();
  }

  VisionConfig v_;
  Index width_;
  Parameter *first_, *second_;
  Index inner_;  // channels of the projector's first output on this rank
  Parameter *first_bias_ = nullptr, *second_bias_ = nullptr;
};

LayerFlops flops(const ModelConfig& c, const TextLengths& lengths) {
  LayerFlops f;
  f.gemms = 2.0 * double(c.hidden_size) * double(c.vision.hidden_size + c.hidden_size) * double(lengths.source) / double(lengths.text);
  return f;
}

ModelChains chains(const ModelConfig& c, const std::string& name) {
  const Channels inner = by_units({projected_channels(c)});
  const bool bias = c.vision.projector_bias;
  return {{"projector",
           {gemm_operator("linear_1", undivided(c.vision.hidden_size), inner, {name + ".linear_1"}, bias), over_units("activation", inner, inner),
            gemm_operator("linear_2", inner, undivided(c.hidden_size), {name + ".linear_2"}, bias)},
           {},
           {},
           true}};
}

void read_vision(Section& s, ModelConfig& m) {
  VisionConfig& v = m.vision;
  const VisionTower tower =
      get_word(s, "tower", v.tower, {"clip", "siglip"}, "vision tower: clip (class row, norm in front) or siglip; sets the other defaults");
  if (tower != v.tower) v = vision_defaults(tower);
  const auto size = [&](const char* key, Index& field, Index most, const char* help) { field = s.get(key, field, help).positive().at_most(most); };
  size("hidden_size", v.hidden_size, widest, "channels of the tower's residual stream");
  size("num_heads", v.num_heads, widest, "attention heads of the tower");
  size("intermediate_size", v.intermediate_size, widest, "inner channels of the tower's MLPs");
  size("image_size", v.image_size, 4096, "pixels per side of an image");
  size("patch_size", v.patch_size, 4096, "pixels per side of a patch");
  v.activation = get_word(s, "activation", v.activation, activation_words, "activation of the tower's MLPs (hidden_act)");
  v.norm_eps = s.get("norm_eps", v.norm_eps, "epsilon of the tower's LayerNorms").at_least(0);
  v.drops_first_row = s.get("drop_first_row", v.drops_first_row,
                            "the first row of an image does not enter the text (vision_feature_select_strategy: true is default, false is full)");
  v.projector_activation =
      get_word(s, "projector_activation", v.projector_activation, activation_words, "activation of the projector (projector_hidden_act)");
  v.projector_bias = s.get("projector_bias", v.projector_bias, "biases of the projector (multimodal_projector_bias)");
  v.image_token =
      s.get("image_token", v.image_token, "token whose places in the text the rows of images take (image_token_id)").at_least(0).at_most(most_tokens);
  v.images =
      s.get("images", v.images, "largest number of images of a sequence, for which memory is planned").positive().at_most(4096).effect(Effect::none);
  const auto of_channels = [&](const char* key, std::array<double, image_channels>& values, const char* help) {
    const std::vector<double> given = s.get(key, std::vector<double>(values.begin(), values.end()), help).finite();
    require(Index(given.size()) == image_channels, Exit::config, "model.vision.{} takes three numbers (red, green, blue), not {}", key, given.size());
    std::copy(given.begin(), given.end(), values.begin());
  };
  of_channels("mean", v.pixels.mean, "mean of each channel of pixels in [0, 1], which is subtracted (image_mean)");
  of_channels("std", v.pixels.std, "standard deviation of each channel, by which pixels are divided (image_std)");
  for (const double std : v.pixels.std) require(std > 0, Exit::config, "model.vision.std has {}; take numbers above 0", std);
  v.unused_layers = s.get("unused_layers", v.unused_layers,
                          "layers after those of the pattern, which are kept for export and not computed (vision_feature_layer: -1 - this number)")
                        .at_least(0)
                        .at_most(most_layers);
}

const LayerSection vision_section{"vision", "vision tower before the symbol V, and its projector", read_vision};

const Registered image_rows({tower_end,
                             "images",
                             "end of the vision tower; layers before it read images, whose rows take the places of image tokens in the text",
                             make_layer<ImageRows>,
                             flops,
                             chains,
                             {vision_section},
                             {.read_later = true}});

}  // namespace
}  // namespace gyr
