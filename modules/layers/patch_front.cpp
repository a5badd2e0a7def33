// SPDX-License-Identifier: BSD-3-Clause
// Front patches: the first rows of a vision tower (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020).
//   x(r) = W patch(r) + b + table(position of r in its image),   W (D, 3, p, p)
// CLIP has no b. Row 0 of its images has no patch but the class embedding, and a LayerNorm follows. SigLIP has neither.
// Its patches are rows of a GEMM, which equals a convolution whose stride is its kernel size.
#include <optional>

#include "modules/layers/norm.hpp"
#include "modules/model/front.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {
namespace {

const ValueName<std::uint8_t> pixels{"pixels"};
const std::string prefix = "model.vision.";

// With sequence parallelism, each rank embeds the patches of its own rows.
Weight of_rows(Weight w) {
  w.of_rows = true;
  return w;
}

template <class T>
class PatchFront final : public Front {
 public:
  PatchFront(const ModelConfig& c, Parameters& parameters)
      : v_(c.vision),
        w_(parameters.declare(of_rows(
            {prefix + "patch_embedding.weight", {v_.hidden_size, image_channels, v_.patch_size, v_.patch_size}, replicated(), normal(c.init_std)}))),
        table_(parameters.declare(
            of_rows({prefix + "position_embedding.weight", {v_.rows(), v_.hidden_size}, replicated(), normal(c.init_std), Storage::narrow}))) {
    if (v_.has_class_row()) {
      class_ = &parameters.declare(of_rows({prefix + "class_embedding", {v_.hidden_size}, replicated(), normal(c.init_std), Storage::narrow, false}));
      norm_.emplace(c, prefix + "pre_layernorm", parameters);
    } else {
      b_ = &parameters.declare(of_rows({prefix + "patch_embedding.bias", {v_.hidden_size}, replicated(), zeros(), Storage::wide, false}));
    }
    declare_unused(c, parameters);
  }

  AnyTensor2 forward(Pass& a, Frame& frame, const FrontInput& input) override {
    const Device::Purpose purpose(a.dev, "patch embedding: rows x hidden");
    const bool split = a.stream.split();
    const Index first = split ? a.stream.first() : 0, rows = split ? a.stream.count() : a.stream.rows;
    const Index kept = a.stream.rows_per_part(), width = v_.hidden_size;
    const auto positions = gyr::rows(a.sequences.positions, first, rows);
    const auto bytes = gyr::rows(input.values.at(pixels), first * v_.patch_values(), rows * v_.patch_values());
    const auto patch = frame.put(Keys::patches, rows, v_.patch_values());
    const auto all = frame.put(Keys::embedded, kept, width), x = gyr::rows(all, 0, rows);
    frame.refer(Keys::positions, positions);
    if (kept > rows) fill<T>(a.dev, flat(gyr::rows(all, rows, kept - rows)), 0);
    patches<T>(a.dev, v_.pixels, bytes, positions, Index(v_.has_class_row()), patch);
    linear<T>(a.dev, Matrix<const T>(patch), w_.template factor<T>(), Matrix<T>(x));
    if (b_) bias_scale<T>(a.dev, b_->template vector<const Acc<T>>(), {}, Matrix<T>(x));
    add_rows_of(a, table_.template matrix<const T>(), positions, x);
    if (class_) add_rows_of(a, Tensor2<const T>(class_->template vector<const T>().data(), 1, width), positions, x);
    return norm_ ? AnyTensor2(norm_->forward(a, frame, all)) : AnyTensor2(all);
  }

  void backward(Pass& a, Frame& frame, const AnyTensor2& dy) override {
    const Device::Purpose purpose(a.dev, "patch embedding backward: rows x hidden");
    using A = Acc<T>;
    Scope scope(a.dev.scratch);
    const auto positions = frame.get(Keys::positions);
    const Index rows = positions.extent(0), width = v_.hidden_size;
    Tensor2<T> all = dy.as<T>();
    if (norm_) {
      all = a.scratch<T>("gradient of embedded patches", dy.rows, width);
      norm_->backward(a, frame, dy.as<const T>(), Add::no, all);
    }
    const Tensor2<const T> dx = gyr::rows(all, 0, rows);
    weights_backward<T>(a.dev, {&w_}, Matrix<const T>(dx), Matrix<const T>(frame.get(Keys::patches)));
    if (b_) biases_backward<T>(a.dev, {b_}, Matrix<const T>(dx));
    if (table_.trained) embedding_backward<T>(a.dev, positions, dx, 0, 1, -1, table_.template matrix_gradient<A>());
    if (class_ && class_->trained)
      embedding_backward<T>(a.dev, positions, dx, 0, 1, -1, Tensor2<A>(class_->template vector_gradient<A>().data(), 1, width));
  }

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> patches{"patches"}, embedded{"embedded patches", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor1<const std::int32_t>> positions{"positions in images"};
  };

  // x(r) += table(position of r); rows at positions after the end of the table get nothing.
  void add_rows_of(Pass& a, Tensor2<const T> table, Tensor1<const std::int32_t> positions, Tensor2<T> x) const {
    Scope scope(a.dev.scratch);
    const auto rows = a.scratch<T>("rows of a position table", Index(x.extent(0)), Index(x.extent(1)));
    embedding<T>(a.dev, positions, table, 0, 1, rows);
    add<T>(a.dev, flat(rows), flat(x));
  }

  // Weights that a folder of transformers has and no row passes: layers after those of the pattern, and the norm after the last one.
  void declare_unused(const ModelConfig& c, Parameters& parameters) const {
    const auto declare = [&](const std::string& name, Shape shape, const Init& init) {
      Weight w{prefix + "unused." + name, std::move(shape), replicated(), init, init.kind == Init::normal ? Storage::narrow : Storage::wide, false};
      w.learns = false;
      parameters.declare(std::move(w));
    };
    const auto declare_linear = [&](const std::string& name, Index outputs, Index inputs) {
      declare(name + ".weight", {outputs, inputs}, normal(c.init_std)), declare(name + ".bias", {outputs}, zeros());
    };
    const auto declare_norm = [&](const std::string& name) {
      declare(name + ".weight", {v_.hidden_size}, ones()), declare(name + ".bias", {v_.hidden_size}, zeros());
    };
    for (Index i = 0; i < v_.unused_layers; ++i) {
      const std::string layer = fmt::format("layers.{}.", i);
      for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) declare_linear(layer + name, v_.hidden_size, v_.hidden_size);
      declare_linear(layer + "up_proj", v_.intermediate_size, v_.hidden_size);
      declare_linear(layer + "down_proj", v_.hidden_size, v_.intermediate_size);
      declare_norm(layer + "attention_norm"), declare_norm(layer + "mlp_norm");
    }
    declare_norm("post_layernorm");
  }

  VisionConfig v_;
  Parameter &w_, &table_;
  Parameter *b_ = nullptr, *class_ = nullptr;
  std::optional<Norm<T>> norm_;
};

std::unique_ptr<Front> make(const ModelConfig& c, Parameters& parameters, Embedding&) {
  return make_typed<Front, PatchFront>(parameters.dtype(), c, parameters);
}

std::vector<NamedField> fields(const ModelConfig& c, Index) {
  return {ValueField<std::uint8_t>{pixels, 0, 0, 0, ValueReader::embedding, c.vision.patch_values()}};
}

double flops(const ModelConfig& c) { return 2.0 * double(c.vision.patch_values() * c.vision.hidden_size); }

const RegisteredFront patch_front({"patches", make, fields, flops});

}  // namespace
}  // namespace gyr
