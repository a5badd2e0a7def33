// SPDX-License-Identifier: BSD-3-Clause
// A layer type of the tests only, which passes a further tensor on: the first layer keeps its output, and the later ones
// add it to theirs. It is declared in this file alone. Pipeline messages, memory, predictions and the gradients of all
// registered layer types include it.
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/elementwise.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/layers/single_layer.hpp"
#include "modules/model/bundle_shapes.hpp"

namespace gyr::testing {
namespace {

constexpr BundleTensor memo{{"memo"}, {"gradient of the memo"}, "memo: rows x hidden", "gradient of the memo: rows x hidden"};

BundleShape memo_shape(const ModelConfig& c, DType dtype, const BundleRows& rows) { return {&memo, dtype, rows.text, c.hidden_size}; }

template <class T>
class MemoLayer final : public SingleLayer<T, Mlp> {
 public:
  MemoLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Mlp>(c, name, ".feed_forward", p) {}

  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    SingleLayer<T, Mlp>::forward(a, frame, bundle);
    const Tensor2<T> y = bundle.x().template as<T>(), other = frame.put(copy, y.extent(0), y.extent(1));
    convert<T, T>(a.dev, Matrix<const T>(y), Matrix<T>(other));
    AnyTensor2& kept = bundle[memo];
    is_first_ = kept.rows == 0;
    if (is_first_) {
      kept = other;
      return;
    }
    add<T>(a.dev, flat(kept.template as<T>()), flat(other));
    bundle.x() = other;
  }

  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients when) override {
    if (const AnyTensor2 kept = gradient.find(memo); kept.rows > 0) {
      const auto dy = flat(gradient.x().template as<T>()), dmemo = flat(kept.template as<T>());
      if (is_first_) add<T>(a.dev, dmemo, dy);
      else add<T>(a.dev, dy, dmemo);
    }
    SingleLayer<T, Mlp>::backward(a, frame, gradient, when);
  }

 private:
  static constexpr Key<Tensor2<T>> copy{"copy of the output"};
  bool is_first_ = false;
};

ModelChains memo_chains(const ModelConfig& c, const std::string& name) { return {single_chain(c, name, {mlp_operators(c, name + ".feed_forward")})}; }

const Registered memo_layer({'K',
                             "memo",
                             "MLP that keeps its output for later layers of this type",
                             make_layer<MemoLayer>,
                             mlp_flops,
                             memo_chains,
                             {mlp_section},
                             {.read_later = true, .carried = memo_shape, .same_launches = true}});

}  // namespace
}  // namespace gyr::testing
