// SPDX-License-Identifier: BSD-3-Clause
// Every gradient in single precision is as near to double as PyTorch's, whatever the model, and in chunks as long as published ones.
#include "regression/support/accuracy.hpp"

#include "regression/support/testing.hpp"

namespace gyr::testing::accuracy_suite {
namespace {

class accuracy : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(golden, accuracy, ::testing::ValuesIn(golden_names()), [](const auto& info) { return info.param; });

TEST_P(accuracy, of_gradients_is_that_of_pytorch) {
  const Golden& g = golden(GetParam());
  const auto list = accuracies(g);
  EXPECT_GE(list.size(), 18u);
  for (const Accuracy& a : list) EXPECT_LE(a.ours, accuracy_limit(a)) << g.name << " " << a.what << ", PyTorch " << a.torch;
}

}  // namespace
}  // namespace gyr::testing::accuracy_suite
