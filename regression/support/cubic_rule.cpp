// SPDX-License-Identifier: BSD-3-Clause
// An update rule of the tests only that needs whole matrices: the direction x of each half of the columns of a matrix
// becomes x x' x. It is declared in this file alone and takes part in every test of all registered rules.
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/updates/muon.hpp"
#include "modules/optimizers/matrix_rule.hpp"

namespace gyr::testing {
namespace {

class CubicRule final : public MatrixRule {
 public:
  std::string_view name() const override { return "cubic"; }
  std::vector<std::string_view> states() const override { return {"cubic_momentum"}; }
  double values_moved() const override { return 9; }
  UpdateValues values(const StepOfWeight& step) const override { return formula_.values(step); }
  RuleOfWeight of(const Weight& w) const override { return {w.shape.size() == 2 && w.shape[1] > 1 ? this : others_.get(), 1}; }
  std::vector<const UpdateRule*> rules() const override { return {this, others_.get()}; }
  std::vector<Box> matrices(const Weight& w) const override {
    const Index half = w.shape[1] / 2;
    return {{{0, 0}, {w.shape[0], half}}, {{0, half}, {w.shape[0], w.shape[1] - half}}};
  }
  double flops(Index rows, Index columns) const override { return 4.0 * double(rows) * double(rows) * double(columns); }

  void update(Device& dev, const WeightUpdate& u) const override {
    with_accumulator(u.gradient, [&]<class A>(std::type_identity<A>) {
      muon_momentum<A>(dev, formula_, u.values.as<const A>(), u.gradient.as<const A>(), u.states[0].as<A>());
    });
  }
  void direction(Device& dev, const WeightUpdate& u, const StridedBlock& here, const AnyTensor& to, const StridedBlock& there) const override {
    with_accumulator(to, [&]<class A>(std::type_identity<A>) {
      muon_direction<A>(dev, formula_, u.values.as<const A>(), here.in<const A>(u.gradient), here.in<const A>(u.states[0]), there.in<A>(to));
    });
  }
  void transform(Device& dev, const AnyTensor2& matrix) const override {
    with_accumulator(matrix.flat(), [&]<class A>(std::type_identity<A>) {
      Scope scope(dev.scratch);
      const auto x = dev.scratch.tensor<A>(matrix.rows, matrix.columns), square = dev.scratch.tensor<A>(matrix.rows, matrix.rows);
      convert<A, A>(dev, matrix.as<A>(), x);
      gemm<A, A>(dev, MatrixOp::none, x, MatrixOp::transpose, x, square);
      gemm<A, A>(dev, MatrixOp::none, square, MatrixOp::none, x, matrix.as<A>());
    });
  }
  void apply(Device& dev, const WeightUpdate& u, const StridedBlock& here, const AnyTensor& from, const StridedBlock& there) const override {
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      muon_step<T>(dev, formula_, u.values.as<const A>(), there.in<const A>(from), u.master ? here.in<A>(u.master) : Matrix<A>(),
                   here.in<T>(u.weight));
    });
  }

 private:
  template <class F>
  static void with_accumulator(const AnyTensor& x, const F& f) {
    if (x.dtype == DType::f64) f(std::type_identity<double>());
    else f(std::type_identity<float>());
  }
  Muon formula_{0.5, true};
  Rule others_ = adamw();
};

const RegisteredRule cubic({"cubic", "momentum times its square, for whole matrices",
                            [](Section&, const NamedRule&) -> Rule { return std::make_shared<CubicRule>(); }});

}  // namespace
}  // namespace gyr::testing
