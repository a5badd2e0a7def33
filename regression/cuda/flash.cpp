// SPDX-License-Identifier: BSD-3-Clause
// Attention of bf16 by tensor cores against that of double by single threads, on a machine that judges: ragged tiles, heads of every width that it
// takes, keys in one block and in two.
#include "kernels/attention.hpp"
#include "kernels/cuda/launch.hpp"
#include "regression/tensors.hpp"

using namespace gyr;
using namespace gyr::cuda;

namespace {

struct With {
  explicit With(const Machine& wanted) : before(Machine::instance()) { Machine::instance() = wanted; }
  ~With() { Machine::instance() = before; }
  Machine before;
};

template <class T>
struct Heads {
  AttentionShape shape;
  Tensor2<T> q, k, v, out;
  AttentionState<Acc<T>> state;
  Tensor2<Acc<T>> lse;

  Heads(Workbench& bench, const AttentionShape& s)
      : shape(s), q(bench.normal<T>(s.batch * s.queries, s.num_heads * s.head_dim)),
        k(bench.normal<T>(s.batch * s.keys, s.num_kv_heads * s.head_dim)), v(bench.normal<T>(s.batch * s.keys, s.num_kv_heads * s.v_head_dim)),
        out(bench.zeros<T>(s.batch * s.queries, s.num_heads * s.v_head_dim)), state{bench.zeros<Acc<T>>(s.batch * s.queries,
                                                                                                        s.num_heads * s.v_head_dim),
                                                                                    bench.zeros<Acc<T>>(s.batch * s.queries, s.num_heads),
                                                                                    bench.zeros<Acc<T>>(s.batch * s.queries, s.num_heads)},
        lse(bench.zeros<Acc<T>>(s.batch * s.queries, s.num_heads)) {}

  // The first `cut` keys, then the others; of one sequence where there is a cut.
  void attend(Device& dev, Index cut) const {
    const double scale = 1 / std::sqrt(double(shape.head_dim));
    const auto block = [&](Index first, Index count, Carry carry) {
      AttentionShape part = shape;
      part.keys = count;
      attention<T>(dev, part, {true, shape.keys - shape.queries, first, {}}, scale, q, rows(k, first * shape.batch, count * shape.batch),
                   rows(v, first * shape.batch, count * shape.batch), carry, state);
    };
    if (cut > 0) block(0, cut, Carry::fresh), block(cut, shape.keys - cut, Carry::continued);
    else block(0, shape.keys, Carry::fresh);
    attention_finish<T>(dev, shape, state, out, lse);
  }
};

}  // namespace

TEST(flash, equals_attention_in_double_in_every_order) {
  const std::vector<std::pair<AttentionShape, Index>> cases = {
      {{2, 70, 70, 2, 1, 16, 16}, 0}, {{1, 65, 130, 2, 2, 64, 8}, 0}, {{1, 3, 100, 1, 1, 72, 128}, 0}, {{1, 70, 80, 4, 2, 8, 24}, 33}};
  for (const auto& [shape, cut] : cases)
    for (const Machine& machine : {Machine{Order::forward, 1, true}, Machine{Order::backward, 1, false}, Machine{Order::random, 1, true}}) {
      SCOPED_TRACE(fmt::format("{} queries, {} keys, heads of {} and {}, order {}", shape.queries, shape.keys, shape.head_dim, shape.v_head_dim,
                               int(machine.order)));
      Workbench exact, rounded;  // they draw the same numbers
      const Heads<double> want(exact, shape);
      const Heads<bf16> run(rounded, shape);
      want.attend(exact.dev, cut);
      const With with(machine);
      const Index before = grids_run();
      run.attend(rounded.dev, cut);
      EXPECT_GT(grids_run(), before);
      EXPECT_LE(difference(numbers(run.out), numbers(want.out)), 1e-2);
      EXPECT_LE(difference(numbers(run.lse), numbers(want.lse)), 1e-5);
    }
}
