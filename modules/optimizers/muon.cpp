// SPDX-License-Identifier: BSD-3-Clause
// Muon (Jordan et al. 2024): matrices of layers move along their orthogonalised momentum, all other weights by a rule of
// their own. A stored matrix may consist of several that are orthogonalised apart: in_proj of Mamba of z, x, B, C and dt.
#include <cmath>

#include "kernels/ops/updates/muon.hpp"
#include "modules/optimizers/matrix_rule.hpp"
#include "modules/optimizers/newton_schulz.hpp"

namespace gyr {
namespace {

enum class Scale { match_rms_adamw, original, spectral, unit_rms };
constexpr std::array<const char*, 4> scale_names{"match_rms_adamw", "original", "spectral", "unit_rms"};
enum class Split { segments, heads, whole };
constexpr std::array<const char*, 3> split_names{"segments", "heads", "whole"};

template <class Choice, std::size_t N>
Choice choice_of(const std::string& name, const std::array<const char*, N>& names) {
  return Choice(std::find(names.begin(), names.end(), name) - names.begin());
}

double factor_of(Scale scale, double outputs, double inputs) {
  switch (scale) {
    case Scale::match_rms_adamw: return 0.2 * std::sqrt(std::max(outputs, inputs));
    case Scale::original: return std::sqrt(std::max(1.0, outputs / inputs));
    case Scale::spectral: return std::sqrt(std::max(outputs, inputs));
    case Scale::unit_rms: return std::sqrt(outputs / inputs);
  }
  return 1;
}

struct MuonSettings {
  Muon momentum;
  PolynomialSteps steps;
  Scale scale;
  Split split;
  bool on_all_ranks;
  Rule scalar;       // rule of the other weights
  double scalar_lr;  // factor on their learning rate
};

class MuonRule final : public MatrixRule {
 public:
  explicit MuonRule(MuonSettings settings) : s_(std::move(settings)) {}

  std::string_view name() const override { return "muon"; }
  std::vector<std::string_view> states() const override { return {"muon_momentum"}; }
  double values_moved() const override { return 9; }
  UpdateValues values(const StepOfWeight& step) const override { return s_.momentum.values(step); }

  RuleOfWeight of(const Weight& w) const override {
    const bool matrix = w.storage == Storage::factor && w.shape.size() == 2 && w.decays && !w.of_adapter && !w.of_output;
    return matrix ? RuleOfWeight{this, 1} : RuleOfWeight{s_.scalar.get(), s_.scalar_lr};
  }
  std::vector<const UpdateRule*> rules() const override { return {this, s_.scalar.get()}; }

  // Segments are the runs of rows of a stored matrix, which are sharded one by one.
  std::vector<Box> matrices(const Weight& w) const override {
    const Sharding* const sharding = w.sharding(Axis::tensor);
    if (s_.split == Split::whole || !sharding || sharding->dim != 0) return {full_box(w.shape)};
    std::vector<Box> all;
    Index first = 0;
    for (const Run& run : sharding->runs) {
      const bool by_head = s_.split == Split::heads && std::string_view(run.key).ends_with("heads") && run.extent > run.units;
      const Index each = by_head ? run.extent / run.units : run.extent;
      for (const Index end = first + run.extent; first < end; first += each) all.push_back({{first, 0}, {each, w.shape[1]}});
    }
    return all;
  }
  double flops(Index rows, Index columns) const override { return newton_schulz_flops(rows, columns, int(s_.steps.size())); }
  bool on_all_ranks() const override { return s_.on_all_ranks; }

  void update(Device& dev, const WeightUpdate& u) const override {
    with_type(u.exact().dtype, [&]<class A>(std::type_identity<A>) {
      if constexpr (std::is_same_v<A, Acc<A>>)
        muon_momentum<A>(dev, s_.momentum, u.values.as<const A>(), u.gradient.as<const A>(), u.states[0].as<A>());
    });
  }
  void direction(Device& dev, const WeightUpdate& u, const StridedBlock& here, const AnyTensor& to, const StridedBlock& there) const override {
    with_type(to.dtype, [&]<class A>(std::type_identity<A>) {
      if constexpr (std::is_same_v<A, Acc<A>>)
        muon_direction<A>(dev, s_.momentum, u.values.as<const A>(), here.in<const A>(u.gradient), here.in<const A>(u.states[0]), there.in<A>(to));
    });
  }
  void transform(Device& dev, const AnyTensor2& matrix) const override {
    const double scale = factor_of(s_.scale, double(matrix.rows), double(matrix.columns));
    with_type(matrix.dtype, [&]<class A>(std::type_identity<A>) {
      if constexpr (std::is_same_v<A, Acc<A>>) newton_schulz<A>(dev, s_.steps, scale, matrix.as<A>());
    });
  }
  void apply(Device& dev, const WeightUpdate& u, const StridedBlock& here, const AnyTensor& from, const StridedBlock& there) const override {
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      const Matrix<A> master = u.master ? here.in<A>(u.master) : Matrix<A>();
      muon_step<T>(dev, s_.momentum, u.values.as<const A>(), there.in<const A>(from), master, here.in<T>(u.weight));
    });
  }

 private:
  MuonSettings s_;
};

template <std::size_t N>
std::vector<std::string> all_of(const std::array<const char*, N>& names) {
  return {names.begin(), names.end()};
}

Rule read_muon(Section& optimizer, const NamedRule& rule) {
  Section& s = optimizer.section("muon", "settings of optimizer.name = muon");
  MuonSettings m{};
  m.momentum.momentum = s.get("momentum", 0.95, "decay rate of the momentum").at_least(0).below(1);
  m.momentum.nesterov = s.get("nesterov", true, "Nesterov's momentum: the update looks one step ahead");
  const int steps = s.get("ns_steps", 5, "steps of the Newton-Schulz iteration, which orthogonalises").at_least(1).at_most(20);
  m.steps = polynomials(s.get("coefficients", "simple", "coefficients of these steps").one_of(polynomial_names()), steps);
  m.scale = choice_of<Scale>(s.get("scale", scale_names[0],
                                   "factor on the update of an r x c matrix (r outputs); match_rms_adamw: 0.2 sqrt(max(r, c)), so that learning "
                                   "rate and weight decay of AdamW fit; original: sqrt(max(1, r/c)); spectral: sqrt(max(r, c)); unit_rms: sqrt(r/c)")
                                 .one_of(all_of(scale_names)),
                             scale_names);
  m.split = choice_of<Split>(s.get("split", split_names[0],
                                   "parts of a stored matrix that are orthogonalised apart; segments: z, x, B, C and dt of in_proj; heads: also each "
                                   "head of q, k, v, z and x, and of the heads of MLA; whole: none")
                                 .one_of(all_of(split_names)),
                             split_names);
  m.on_all_ranks = s.get("distribute", "owner",
                         "ranks that orthogonalise a matrix; owner: one of those that hold it, and another for the next; gather: all of them")
                       .one_of({"owner", "gather"})
                       .effect(Effect::none)
                       .value() == "gather";
  m.scalar = rule(s.get("scalar", "adamw", "rule of all other weights: embeddings, output matrices, routers, vectors, convolutions and adapters")
                      .one_of({"adamw", "lamb", "lion", "sgd"}));
  m.scalar_lr = s.get("scalar_lr", 1.0, "factor on the learning rate of these weights").positive().finite();
  return std::make_shared<MuonRule>(m);
}

const RegisteredRule registered_muon({"muon", "orthogonalised momentum for the matrices of layers, another rule for all other weights", read_muon});

}  // namespace
}  // namespace gyr
