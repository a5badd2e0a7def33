// SPDX-License-Identifier: BSD-3-Clause
// Products of grouped rows by tensor cores of either kind, so wide and so deep that blocks go round through the places of their tiles, on machines
// that judge.
#include "regression/grouped.hpp"

#include <random>

#include "regression/cuda/machines.hpp"

using namespace gyr;
using namespace gyr::cuda;

namespace {

void expect_products(std::mt19937_64& random, Machine machine, int capability) {
  const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
  gyr::testing::GroupedCase c{{among(1, 60), 0, among(257, 300), among(65, 128)}, 8 * among(33, 36), 8 * among(33, 36), 100};
  std::shuffle(c.rows.begin(), c.rows.end(), random);
  SCOPED_TRACE(fmt::format("order {}, capability {}", int(machine.order), capability));
  machine.capability = capability;
  const With with(machine);
  gyr::testing::expect_bf16_follows_double(c);
}

}  // namespace

TEST(warpgroups, multiply_grouped_rows) {
  std::mt19937_64 random(seed_of_draws());
  for (const Machine& machine : machines_of_every_order)
    if (machine.checked) expect_products(random, machine, 90);
}

TEST(tensor_cores, multiply_grouped_rows) {
  std::mt19937_64 random(seed_of_draws());
  expect_products(random, {Order::random, 1, true}, 80);
}
