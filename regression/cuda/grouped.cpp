// SPDX-License-Identifier: BSD-3-Clause
// Products of grouped rows by tensor cores of either kind, so wide and so deep that blocks go round through the places of their tiles, against those
// of double; on machines that judge.
#include <numeric>
#include <random>

#include "kernels/grouped_products.hpp"
#include "regression/cuda/machines.hpp"
#include "regression/tensors.hpp"

using namespace gyr;
using namespace gyr::cuda;

namespace {

struct Case {
  std::vector<Index> rows;  // of each group
  Index n, k;

  explicit Case(std::mt19937_64& random) {
    const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
    n = 8 * among(33, 36), k = 8 * among(33, 36);
    rows = {among(1, 60), 0, among(257, 300), among(65, 128)};
    std::shuffle(rows.begin(), rows.end(), random);
  }
  Index all() const { return std::accumulate(rows.begin(), rows.end(), Index(0)); }
};

// y, dx and, one behind the other, the groups' dw.
template <class T>
struct Products {
  Tensor2<T> x, dy, y, dx;
  Tensor2<Acc<T>> dw;
  Tensor2<T> w;
  Tensor1<std::int32_t> count;

  Products(Workbench& bench, const Case& c) {
    const Index groups = Index(c.rows.size());
    x = bench.normal<T>(c.all(), c.k), dy = bench.normal<T>(c.all(), c.n), w = bench.normal<T>(groups * c.n, c.k);
    dw = bench.normal<Acc<T>>(groups * c.n, c.k), y = bench.zeros<T>(c.all(), c.n), dx = bench.zeros<T>(c.all(), c.k);
    count = bench.zeros<std::int32_t>(groups);
    std::copy(c.rows.begin(), c.rows.end(), count.data());
    const RowGroups rows{count, 100, c.all()};
    GroupMatrices<const T> weights{{}, c.n, c.k};
    GroupMatrices<Acc<T>> gradients{{}, c.n, c.k};
    for (Index g = 0; g < groups; ++g) weights.data.push_back(w.data() + g * c.n * c.k), gradients.data.push_back(dw.data() + g * c.n * c.k);
    grouped_linear<T>(bench.dev, rows, x, weights, y);
    grouped_linear_backward_input<T>(bench.dev, rows, dy, weights, dx);
    grouped_linear_backward_weight<T>(bench.dev, rows, dy, x, gradients);
  }
};

void expect_products(std::mt19937_64& random, Machine machine, int capability) {
  const Case c(random);
  SCOPED_TRACE(fmt::format("order {}, capability {}: ({},{}), rows {} {} {} {}", int(machine.order), capability, c.n, c.k, c.rows[0], c.rows[1],
                           c.rows[2], c.rows[3]));
  machine.capability = capability;
  Workbench of_double, of_bf16;
  const Products<double> wanted(of_double, c);
  const With with(machine);
  const Products<bf16> found(of_bf16, c);
  EXPECT_LE(difference(numbers(found.y), numbers(wanted.y)), tolerance<bf16>);
  EXPECT_LE(difference(numbers(found.dx), numbers(wanted.dx)), tolerance<bf16>);
  EXPECT_LE(difference(numbers(found.dw), numbers(wanted.dw)), tolerance<float>);
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
