// SPDX-License-Identifier: BSD-3-Clause
// Gradients against central differences, in double.
#pragma once

#include <gtest/gtest.h>

#include "src/engine/engine.hpp"

namespace gyr::testing {

// Some elements of the gradient of every weight, as the engine holds it, are differences of loss().
template <class Loss>
void expect_differences(Engine& engine, const Loss& loss) {
  for (const auto& p : engine.stage().parameters().all())
    for (const Index at : {p->size() / 3, p->size() - 1}) {
      const auto w = p->vector<double>();
      const double gradient = p->vector_gradient<double>()(at), kept = w(at), h = 1e-5;
      w(at) = kept + h;
      const double above = loss();
      w(at) = kept - h;
      const double below = loss();
      w(at) = kept;
      EXPECT_NEAR(gradient, (above - below) / (2 * h), 2e-8) << p->weight.name << " " << at;
    }
}

// The same of the step of one micro-batch, of its mean loss over labels.
inline void expect_differences_of(Engine& engine, const MicroBatch& batch) {
  const auto source = [&](int) { return batch; };
  engine.gradients(source, 1, 1);
  expect_differences(engine, [&] {
    const auto [sum, labels] = engine.evaluate(source, 1);
    return sum / double(labels);
  });
}

}  // namespace gyr::testing
