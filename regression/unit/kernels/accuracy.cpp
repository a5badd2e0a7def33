// SPDX-License-Identifier: BSD-3-Clause
// Single-precision gradients of every golden model are as close to double precision as PyTorch's are. Some of these
// models have the published chunk size of 256.
#include "regression/support/accuracy.hpp"

#include "regression/support/testing.hpp"

namespace gyr::testing::accuracy_suite {
namespace {

class accuracy : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(golden, accuracy, ::testing::ValuesIn(golden_names()), [](const auto& info) { return info.param; });

TEST_P(accuracy, gradients_are_as_accurate_as_pytorch) {
  const Golden& g = golden(GetParam());
  const auto list = accuracies(g);
  EXPECT_GE(list.size(), 18u);
  for (const Accuracy& a : list) EXPECT_LE(a.ours, accuracy_limit(a)) << g.name << " " << a.what << ", PyTorch " << a.torch;
}

}  // namespace
}  // namespace gyr::testing::accuracy_suite
