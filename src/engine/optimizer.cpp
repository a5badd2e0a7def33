// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/optimizer.hpp"

#include <cmath>

#include "kernels/sum.hpp"
#include "src/base/weight_pattern.hpp"

namespace gyr {

template <class T>
Optimizer<T>::Optimizer(const OptimizerConfig& c, Parameters<T>& parameters, Arena& arena) : c_(c), parameters_(parameters) {
  m_ = arena.tensor<A>(parameters.extent());
  v_ = arena.tensor<A>(parameters.extent());
  if (!std::is_same_v<T, A>) master_ = arena.tensor<A>(parameters.extent());
}

template <class T>
void Optimizer<T>::reset(Device& dev) {
  fill<A>(dev, m_, 0);
  fill<A>(dev, v_, 0);
  if (std::is_same_v<T, A>) return;
  fill<A>(dev, master_, 0);
  for (const auto& p : parameters_.all())
    if (has_master(*p)) {
      const auto value = p->template vector<T>();
      const auto wide = master(*p);
      convert<T, A>(dev, Matrix<const T>(value.data(), 1, p->size(), p->size()), Matrix<A>(wide.data(), 1, p->size(), p->size()));
    }
}

template <class T>
ParameterGroup Optimizer<T>::group(const Parameter& p) const {
  ParameterGroup found;
  for (const ParameterGroup& g : c_.groups)
    if (matches(g.pattern, p.weight.name)) found = g;
  return found;
}

template <class T>
void Optimizer<T>::add_gradient_squares(Device& dev, Tensor1<double> sum) const {
  for (const auto& p : parameters_.all()) {
    if (p->tied || !p->trained) continue;
    const auto g = p->template vector_gradient<A>();
    const std::vector<Held>& boxes = p->held.boxes;
    if (std::all_of(boxes.begin(), boxes.end(), [](const Held& held) { return held.first_copy(); })) {
      add_sum_of_squares<A>(dev, g, sum);
      continue;
    }
    stretches(*p, [&](Index, Index local, Index count, const Held& held) {
      if (held.first_copy()) add_sum_of_squares<A>(dev, rows(g, local, count), sum);
    });
  }
}

template <class T>
void Optimizer<T>::step(Device& dev, double lr, std::int64_t step, double gradient_scale) {
  for (const auto& p : parameters_.all()) {
    if (!p->trained) continue;
    const ParameterGroup g = group(*p);
    const AdamW update{lr * g.lr_factor,
                       c_.beta1,
                       c_.beta2,
                       c_.epsilon,
                       p->weight.decays ? c_.weight_decay * g.weight_decay_factor : 0,
                       1 - std::pow(c_.beta1, double(step)),
                       1 - std::pow(c_.beta2, double(step)),
                       gradient_scale};
    const auto gradient = p->template vector_gradient<const A>();
    if (p->dtype() == dtype_of<T>()) adamw<T>(dev, update, gradient, moment1(*p), moment2(*p), master(*p), p->template vector<T>());
    else adamw<A>(dev, update, gradient, moment1(*p), moment2(*p), {}, p->template vector<A>());
  }
}

template class Optimizer<double>;
template class Optimizer<float>;
template class Optimizer<bf16>;

}  // namespace gyr
