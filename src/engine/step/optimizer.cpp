// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/optimizer.hpp"

#include <cmath>

#include "kernels/device/upload.hpp"
#include "kernels/ops/sum.hpp"
#include "modules/settings/weight_pattern.hpp"

namespace gyr {

namespace {

// Elements of a weight or gradient that this rank updates, out of those that it keeps.
AnyTensor updated_rows(const Piece& kept, const Parameter& p) { return rows(kept.values, p.updated().first - kept.of.first, p.updated().size()); }

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& c, Parameters& parameters, Arena& arena, Arena& weights) : c_(c), parameters_(parameters) {
  const DType wide = accumulator_of(parameters.dtype());
  m_ = take(arena, wide, parameters.kept_extent());
  v_ = take(arena, wide, parameters.kept_extent());
  if (wide != parameters.dtype()) master_ = take(arena, wide, parameters.kept_extent());
  Index trained = 0;  // number of trained parameters, equal on all replicas although each updates other weights
  for (const auto& p : parameters.all()) {
    trained += p->trained;
    if (p->trained && p->updated().size() > 0) updated_.push_back(p.get());
  }
  steps_ = take(weights, wide, trained * Index(AdamWStepValues<float>().size()));
}

void Optimizer::reset(Device& dev) {
  fill(dev, m_, 0);
  fill(dev, v_, 0);
  if (!master_) return;
  fill(dev, master_, 0);
  const auto row = [](const AnyTensor& x) { return AnyTensor2(x.data, x.dtype, 1, x.size); };
  for (const auto& p : parameters_.all())
    if (has_master(*p) && p->updated().size() > 0) convert(dev, row(updated_rows(p->kept_value(), *p)), row(master(*p).values));
}

ParameterGroup Optimizer::group(const Parameter& p) const {
  ParameterGroup found;
  for (const ParameterGroup& g : c_.groups)
    if (matches(g.pattern, p.weight.name)) found = g;
  return found;
}

void Optimizer::add_gradient_squares(Device& dev, Tensor1<double> sum) const {
  for (const auto& p : parameters_.all()) {
    if (p->tied || !p->trained || !parameters_.counts(*p)) continue;
    const Piece kept = p->kept_gradient();
    with_type(kept.values, [&]<class Gradient>(const Gradient& g) {
      using A = typename Gradient::value_type;
      const std::vector<Held>& boxes = p->held.boxes;
      if (std::all_of(boxes.begin(), boxes.end(), [](const Held& held) { return held.first_copy(); })) return add_sum_of_squares<A>(dev, g, sum);
      stretches(*p, kept.of, [&](Index, Index local, Index count, const Held& held) {
        if (held.first_copy()) add_sum_of_squares<A>(dev, rows(g, local, count), sum);
      });
    });
  }
}

void Optimizer::step(Device& dev, double lr, std::int64_t step, double gradient_scale) {
  upload_inputs(dev, lr, step, gradient_scale);
  updates_.run(dev, [&] { update(dev); });
}

AnyTensor Optimizer::step_of(std::size_t i) const {
  constexpr Index values = AdamWStepValues<float>().size();
  return rows(steps_, Index(i) * values, values);
}

// Uploads the AdamW coefficients of the step to where kernels read them.
void Optimizer::upload_inputs(Device& dev, double lr, std::int64_t step, double gradient_scale) {
  if (dev.dry_run()) return;
  with_type(parameters_.dtype(), [&]<class T>(std::type_identity<T>) {
    using A = Acc<T>;
    std::vector<AdamWStepValues<A>> all;
    for (const Parameter* p : updated_) {
      const ParameterGroup g = group(*p);
      all.push_back(step_values<A>({lr * g.lr_factor, p->weight.decays ? c_.weight_decay * g.weight_decay_factor : 0,
                                    1 - std::pow(c_.beta1, double(step)), 1 - std::pow(c_.beta2, double(step)), gradient_scale}));
    }
    if (!all.empty()) backend::upload(dev.queue, all.data(), steps_.data, Index(all.size() * sizeof all[0]));
  });
}

void Optimizer::update(Device& dev) {
  for (std::size_t i = 0; i < updated_.size(); ++i) {
    const Parameter& p = *updated_[i];
    with_type(p.dtype(), [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      const Tensor1<A> wide = has_master(p) ? master(p).values.as<A>() : Tensor1<A>();
      adamw<T>(dev, {c_.beta1, c_.beta2, c_.epsilon}, step_of(i).as<const A>(), updated_rows(p.kept_gradient(), p).as<const A>(),
               moment1(p).values.as<A>(), moment2(p).values.as<A>(), wide, updated_rows(p.kept_value(), p).as<T>());
    });
  }
}

}  // namespace gyr
