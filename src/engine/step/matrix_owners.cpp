// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/matrix_owners.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/ops/elementwise.hpp"

namespace gyr {

HeldBy holders_of(const Weight& w) { return w.expert ? HeldBy::expert_ranks : w.team.size() > 0 ? HeldBy::team : HeldBy::all; }

namespace {

const MatrixRule* matrix_rule(const UpdateRule& rule) { return dynamic_cast<const MatrixRule*>(&rule); }

}  // namespace

MatrixOwners::MatrixOwners(const OptimizerConfig& config, const Parameters& parameters, Grid& grid) : dtype_(accumulator_of(parameters.dtype())) {
  for (const bool on_all_ranks : {false, true}) {
    const std::vector<const UpdateRule*> rules = config.rules();
    if (std::none_of(rules.begin(), rules.end(),
                     [&](const UpdateRule* rule) { return matrix_rule(*rule) && matrix_rule(*rule)->on_all_ranks() == on_all_ranks; }))
      continue;
    add(HeldBy::all, on_all_ranks, config, parameters, grid);
    if (grid.layout().attention_ranks > 0) add(HeldBy::team, on_all_ranks, config, parameters, grid);
    add(HeldBy::expert_ranks, on_all_ranks, config, parameters, grid);
  }
}

void MatrixOwners::add(HeldBy by, bool on_all_ranks, const OptimizerConfig& config, const Parameters& parameters, Grid& grid) {
  const Layout& layout = grid.layout();
  const HeldBy ranks = by == HeldBy::expert_ranks && layout.expert == 1 ? HeldBy::all : by;
  Shared shared{&grid.holders(ranks), on_all_ranks, layout.size(Axis::tensor) > 1 || layout.zero_shard() != Shard::none, {}, {}, {}};
  std::vector<PlacedTensor> weights;
  std::vector<WholeMatrix> matrices;
  for (const auto& p : parameters.all()) {
    const MatrixRule* const rule = matrix_rule(config.rule_of(p->weight));
    if (!p->trained || holders_of(p->weight) != by || !rule || rule->on_all_ranks() != on_all_ranks) continue;
    for (const Box& box : rule->matrices(p->weight)) {
      const Index rows = box.count[0], columns = box.count[1];
      shared.matrices.push_back({p.get(), rule, rows, columns});
      matrices.push_back({weights.size(), box, rule->flops(rows, columns)});
    }
    weights.push_back({p->weight, grid.coordinate(Axis::pipeline), true, p->flat_shard()});
  }
  const Index bucket = layout.bucket_bytes / Index(size_of(dtype_)) * layout.size(Axis::tensor);
  shared.rounds = matrix_rounds(weights, matrices, layout, by, grid.position(), bucket, on_all_ranks);
  shared.largest = largest_round(weights, matrices, layout, by, grid.position(), bucket, on_all_ranks);
  shared_.push_back(std::move(shared));
}

// The rounds of matrices that the same ranks share. Three rounds are in work at a time: parts of the next one arrive,
// this one is transformed, the previous one returns.
class MatrixOwners::Exchange {
 public:
  Exchange(Device& dev, Shared& shared, DType dtype, const OperandsOf& operands) : dev_(dev), shared_(shared), operands_(operands) {
    for (std::size_t i = 0; i < std::min<std::size_t>(in_work, shared.rounds.size()); ++i)
      buffers_.push_back({take(dev.scratch, dtype, shared.largest.parts), take(dev.scratch, dtype, shared.largest.whole), {}, {}});
    Index matrix = 0;
    for (const Matrix& m : shared.matrices) matrix = std::max(matrix, m.rows * m.columns);
    matrix_ = take(dev.scratch, dtype, matrix);
    if (dev.dry_run()) reserve_workspaces();
  }

  void run() {
    if (shared_.rounds.empty()) return;
    const std::size_t rounds = shared_.rounds.size();
    send(0);
    for (std::size_t r = 0; r < rounds; ++r) {
      if (r + 1 < rounds) send(r + 1);
      transform(r);
      if (r > 0) receive_back(r - 1);
    }
    receive_back(rounds - 1);
  }

 private:
  static constexpr std::size_t in_work = 3;
  // `mine` holds parts of this rank's weights, `owned` parts of matrices that it owns.
  struct Buffers {
    AnyTensor mine, owned;
    Event there, back;
  };
  // Plans the workspaces of all transforms, of which another rank may own the largest: a plan of one rank holds for all.
  void reserve_workspaces() {
    const Device::Repeat not_counted(dev_, 0);
    std::set<std::tuple<const MatrixRule*, Index, Index>> known;
    for (const Matrix& m : shared_.matrices)
      if (known.emplace(m.rule, m.rows, m.columns).second) m.rule->transform(dev_, {matrix_.data, matrix_.dtype, m.rows, m.columns});
  }
  Buffers& buffers(std::size_t round) { return buffers_[round % in_work]; }
  static StridedBlock in_buffer(const MatrixPart& p) { return {p.at, p.rows, p.columns, p.columns}; }
  StridedBlock in_matrix(const MatrixPart& p) const {
    const Index columns = shared_.matrices[p.matrix].columns;
    return {p.row * columns + p.column, p.rows, p.columns, columns};
  }
  StridedBlock in_weight(const MatrixPart& p) const {
    return {p.first - shared_.matrices[p.matrix].parameter->updated().first, p.rows, p.columns, p.stride};
  }

  void direction(const MatrixPart& p, const AnyTensor& to, const StridedBlock& there) {
    const Matrix& m = shared_.matrices[p.matrix];
    m.rule->direction(dev_, operands_(*m.parameter), in_weight(p), to, there);
  }
  void apply(const MatrixPart& p, const AnyTensor& from, const StridedBlock& there) {
    const Matrix& m = shared_.matrices[p.matrix];
    m.rule->apply(dev_, operands_(*m.parameter), in_weight(p), from, there);
  }
  void copy(const AnyTensor& from, const StridedBlock& here, const AnyTensor& to, const StridedBlock& there) {
    with_type(to.dtype, [&]<class A>(std::type_identity<A>) { convert<A, A>(dev_, here.in<const A>(from), there.in<A>(to)); });
  }
  Event exchange(const MatrixExchange& e, const AnyTensor& from, const AnyTensor& to) {
    return with_type(to.dtype, [&]<class A>(std::type_identity<A>) {
      return shared_.ranks->start_all_to_all<A>(dev_, rows(from.as<const A>(), 0, e.sent_size()), e.sent, rows(to.as<A>(), 0, e.received_size()),
                                                e.received);
    });
  }

  void send(std::size_t r) {
    const MatrixRound& round = shared_.rounds[r];
    for (const MatrixPart& part : round.there.out) direction(part, buffers(r).mine, in_buffer(part));
    const Device::Purpose purpose(dev_, "directions of matrices to their owners: parts of matrices");
    if (shared_.parts_differ) buffers(r).there = exchange(round.there, buffers(r).mine, buffers(r).owned);
  }
  void transform(std::size_t r) {
    const MatrixRound& round = shared_.rounds[r];
    buffers(r).there.device_wait(dev_);
    for (const std::size_t m : round.mine) {
      const Matrix& matrix = shared_.matrices[m];
      for (const MatrixPart& part : round.there.in) copy(buffers(r).owned, in_buffer(part), matrix_, in_matrix(part));
      for (const MatrixPart& part : round.held) direction(part, matrix_, in_matrix(part));
      matrix.rule->transform(dev_, {matrix_.data, matrix_.dtype, matrix.rows, matrix.columns});
      for (const MatrixPart& part : round.back.out) copy(matrix_, in_matrix(part), buffers(r).owned, in_buffer(part));
      for (const MatrixPart& part : round.held) apply(part, matrix_, in_matrix(part));
    }
    const Device::Purpose purpose(dev_, "transformed matrices from their owners: parts of matrices");
    if (!shared_.on_all_ranks) buffers(r).back = exchange(round.back, buffers(r).owned, buffers(r).mine);
  }
  void receive_back(std::size_t r) {
    buffers(r).back.device_wait(dev_);
    for (const MatrixPart& part : shared_.rounds[r].back.in) apply(part, buffers(r).mine, in_buffer(part));
  }

  Device& dev_;
  Shared& shared_;
  const OperandsOf& operands_;
  std::vector<Buffers> buffers_;
  AnyTensor matrix_;
};

void MatrixOwners::run(Device& dev, const OperandsOf& operands) {
  for (Shared& shared : shared_) {
    Scope scope(dev.scratch);
    Exchange(dev, shared, dtype_, operands).run();
  }
}

}  // namespace gyr
