// SPDX-License-Identifier: BSD-3-Clause
// Checks gradients against central differences, in double.
#pragma once

#include <gtest/gtest.h>

#include "src/engine/step/engine.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing {

// Expects that gradient(parameter, element) equals the central difference of loss(), for two elements of every trained
// weight.
template <class Gradient, class Loss>
void expect_differences(Engine& engine, const Gradient& gradient, const Loss& loss, double tolerance) {
  for (const auto& p : engine.stage().parameters().all())
    for (const Index at : {p->size() / 3, p->size() - 1}) {
      if (!p->trained) continue;
      const auto w = p->vector<double>();
      const double found = gradient(*p, at), kept = w(at), h = 1e-5;
      w(at) = kept + h;
      const double above = loss();
      w(at) = kept - h;
      const double below = loss();
      w(at) = kept;
      EXPECT_NEAR(found, (above - below) / (2 * h), tolerance) << p->weight.name << " " << at;
    }
}

// Checks the gradients that the engine holds.
template <class Loss>
void expect_differences(Engine& engine, const Loss& loss) {
  expect_differences(
      engine, [](Parameter& p, Index at) { return p.vector_gradient<double>()(at); }, loss, 2e-8);
}

// Checks given gradients, for a loss() that runs a training step itself and so overwrites the engine's gradients.
template <class Loss>
void expect_differences(Engine& engine, const NamedGradients& gradients, const Loss& loss) {
  expect_differences(
      engine, [&](const Parameter& p, Index at) { return gradients.at(p.weight.name)[std::size_t(at)]; }, loss, 5e-8);
}

// Checks the gradients of a step with one micro-batch; the loss is the mean over labels.
inline void expect_differences_of(Engine& engine, const MicroBatch& batch) {
  const auto source = [&](int) { return batch; };
  engine.gradients(source, 1, 1);
  expect_differences(engine, [&] {
    const auto [sum, labels] = engine.evaluate(source, 1);
    return sum / double(labels);
  });
}

}  // namespace gyr::testing
