// SPDX-License-Identifier: BSD-3-Clause
// Tests of the bf16 scan on tensor cores against the single-threaded scan in double, on a checked machine: all
// supported head widths and state sizes, ragged tiles and chunks, groups, and documents.
#include "kernels/cuda/ssm/ssd_sm80.hpp"
#include "regression/cuda/machines.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::scan_suite {

using namespace gyr::cuda;

namespace {

struct Case {
  SsdShape shape;
  std::vector<std::int32_t> positions;
  bool initial, last;

  Case(std::mt19937_64& random, bool packed) {
    const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
    const Index groups = among(1, 2), seq_length = among(2, 220);
    shape = {among(1, 2), seq_length, groups * among(1, 3), groups, 8 * among(1, 16), 8 * among(1, 32), among(30, 220), 0, 1e30};
    initial = among(0, 1), last = among(0, 1);
    for (Index r = 0; packed && r < shape.batch * seq_length; ++r)
      positions.push_back(r % seq_length == 0 ? std::int32_t(among(0, 1)) : among(0, 30) == 0 ? 0 : positions.back() + 1);
  }
  std::string name() const {
    return fmt::format("batch {}, length {}, heads {}, groups {}, width {}, state {}, chunk {}, {}", shape.batch, shape.seq_length, shape.num_heads,
                       shape.num_groups, shape.head_dim, shape.state_size, shape.chunk_size, positions.empty() ? "no documents" : "documents");
  }
};

struct Result {
  const char* name;
  std::vector<double> values;
  double scale = 0;  // magnitude of the summands, if they have both signs
};

template <class T>
struct Scan {
  using A = Acc<T>;
  SsdShape s;
  Tensor2<T> x, b, c, raw, y, dy, dx, db, dc, draw;
  Tensor1<A> bias, a_log, d, dbias, da_log, dd;
  Tensor2<A> initial, last, dlast, dinitial, dt;
  Tensor3<A> states;
  Documents documents;

  Scan(Workbench& bench, const Case& k) : s(k.shape) {
    const Index rows = s.batch * s.seq_length, channels = s.num_heads * s.head_dim, width = s.num_groups * s.state_size,
                elements = channels * s.state_size;
    for (auto* t : {&x, &dy}) *t = bench.normal<T>(rows, channels);
    for (auto* t : {&b, &c}) *t = bench.normal<T>(rows, width);
    raw = bench.normal<T>(rows, s.num_heads);
    for (auto* t : {&bias, &a_log, &d}) *t = bench.normal<A>(s.num_heads);
    for (Index h = 0; h < s.num_heads; ++h) bias(h) -= 3;  // time steps of some hundredths, so that the state decays slowly across chunks
    for (auto* t : {&initial, &dlast}) *t = bench.normal<A>(s.batch, elements);
    for (auto* t : {&y, &dx}) *t = bench.zeros<T>(rows, channels);
    for (auto* t : {&db, &dc}) *t = bench.zeros<T>(rows, width);
    draw = bench.zeros<T>(rows, s.num_heads);
    for (auto* t : {&dbias, &da_log, &dd}) *t = bench.zeros<A>(s.num_heads);
    for (auto* t : {&last, &dinitial}) *t = bench.zeros<A>(s.batch, elements);
    dt = bench.zeros<A>(rows, s.num_heads);
    states = Tensor3<A>(bench.zeros<A>(s.batch * s.chunks() * elements).data(), s.batch, s.chunks(), elements);
    if (!k.initial) initial = {};
    if (!k.last) last = {}, dlast = {};
    if (!k.positions.empty()) documents = {Tensor1<const std::int32_t>(k.positions.data(), k.positions.size()), k.positions};
  }
  void run(Device& dev) const {
    const SsdInput<T> in{x, b, c, raw, documents};
    const SsdWeights<A> w{bias, a_log, d};
    ssd<T>(dev, s, in, w, initial, y, {dt, states}, last);
    ssd_backward<T>(dev, s, in, w, {dt, states}, dy, dlast, {dx, db, dc, draw}, {dbias, da_log, dd}, dinitial);
  }
  std::vector<Result> results() const {
    double squares = 0;
    for (const double v : values_of(draw)) squares += v * v;
    const double steps = std::sqrt(squares / double(s.num_heads));
    return {{"y", values_of(y)},
            {"last", values_of(last)},
            {"dx", values_of(dx)},
            {"db", values_of(db)},
            {"dc", values_of(dc)},
            {"d dt_raw", values_of(draw)},
            {"d initial", values_of(dinitial)},
            {"d dt_bias", values_of(dbias), steps},
            {"d a_log", values_of(da_log), steps},
            {"d d", values_of(dd)}};
  }
};

}  // namespace

TEST(scan, tensor_core_scan_matches_double_in_every_order) {
  const std::uint64_t seed = seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  const std::vector<Machine> machines = {{Order::forward, 1, true}, {Order::backward, 1, false}, {Order::random, 1, true}};
  for (int trial = 0; trial < 6; ++trial) {
    const Case k(random, trial % 2 == 0);
    SCOPED_TRACE(k.name());
    Workbench exact, rounded;  // both draw the same random values
    const Scan<double> want(exact, k);
    const Scan<bf16> have(rounded, k);
    EXPECT_TRUE(cuda::scan::fits_tensor_cores(cuda::scan::ChunkGrid(k.shape), Global<const bf16>(have.x), Global<const bf16>(have.b)));
    want.run(exact.dev);
    const With with(machines[std::size_t(trial) % machines.size()]);
    have.run(rounded.dev);
    const auto expected = want.results(), found = have.results();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::vector<double> a = found[i].values, b = expected[i].values;
      a.push_back(expected[i].scale), b.push_back(expected[i].scale);
      EXPECT_LE(difference(a, b), 1e-2) << expected[i].name;
    }
  }
}

}  // namespace gyr::testing::scan_suite
