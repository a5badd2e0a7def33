// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/device/upload.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr {

namespace {

// Elements of a weight or gradient that this rank updates, out of those that it keeps.
AnyTensor updated_rows(const Piece& kept, const Parameter& p) { return rows(kept.values, p.updated().first - kept.of.first, p.updated().size()); }

// Calls visit(first element, count, counted) for stretches of `of`, the part of a parameter's shard that this rank has.
// Elements that another tensor-parallel rank holds too are counted by the first of these ranks. One call if there are
// none.
template <class Visit>
void counted_stretches(const Parameter& p, const Span& of, Visit&& visit) {
  const std::vector<Held>& boxes = p.held.boxes;
  if (std::all_of(boxes.begin(), boxes.end(), [](const Held& held) { return held.first_copy(); })) return visit(0, of.size(), true);
  stretches(p, of, [&](Index, Index local, Index count, const Held& held) { visit(local, count, held.first_copy()); });
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& c, Parameters& parameters, Grid& grid, Arena& arena, Arena& weights)
    : c_(c), parameters_(parameters), grid_(grid), matrices_(c, parameters, grid) {
  const DType wide = accumulator_of(parameters.dtype());
  Index trained = 0;  // number of trained parameters, equal on all replicas although each updates other weights
  for (const auto& p : parameters.all()) {
    trained += p->trained;
    if (!p->trained || p->updated().size() == 0) continue;
    const ParameterGroup g = c.group_of(p->weight);
    updated_.push_back({p.get(), &c_.rule_of(p->weight), g.lr_factor, p->weight.decays ? g.weight_decay_factor : 0, {}});
  }
  allocate_states(arena);
  if (wide != parameters.dtype()) master_ = take(arena, wide, parameters.kept_extent());
  values_ = take(weights, wide, trained * update_values);
  allocate_sums(weights);
  for (std::size_t i = 0; i < updated_.size(); ++i) {
    Updated& u = updated_[i];
    u.update.master = master(*u.parameter).values;
    for (const std::string_view name : u.rule->states()) u.update.states.push_back(state(*u.parameter, name).values);
    u.update.values = rows(values_, Index(i) * update_values, update_values);
  }
}

// A run of a state has the order of the elements in memory that this rank updates. Elements whose rule does not keep the
// state take no space, up to alignment.
void Optimizer::allocate_states(Arena& arena) {
  constexpr Index grain = 64;
  std::vector<const Parameter*> kept;
  for (const auto& p : parameters_.all())
    if (p->trained) kept.push_back(p.get());
  std::stable_sort(kept.begin(), kept.end(), [](const Parameter* a, const Parameter* b) { return a->kept_offset() < b->kept_offset(); });
  for (const UpdateRule* rule : c_.rules())
    for (const std::string_view name : rule->states()) states_[name];
  for (auto& [name, pieces] : states_) {
    Index left_out = 0;
    std::vector<std::pair<const Parameter*, Index>> places;
    for (const Parameter* p : kept) {
      const std::vector<std::string_view> states = c_.rule_of(p->weight).states();
      if (std::find(states.begin(), states.end(), name) == states.end()) left_out += p->updated().size() / grain * grain;
      else places.emplace_back(p, p->kept_offset() - left_out);
    }
    if (places.empty()) continue;
    const AnyTensor run = take(arena, accumulator_of(parameters_.dtype()), parameters_.kept_extent() - left_out);
    for (const auto& [p, offset] : places) pieces[p] = {rows(run, offset, p->updated().size()), p->updated()};
    runs_.push_back(run);
  }
}

// All ranks that add up the sums of a weight have the same trained weights in the same order.
void Optimizer::allocate_sums(Arena& weights) {
  std::array<Index, 3> counts{};
  std::map<const Parameter*, Index> numbers;
  for (const auto& p : parameters_.all())
    if (p->trained && c_.rule_of(p->weight).needs_sums(p->weight)) numbers[p.get()] = counts[std::size_t(holders_of(p->weight))]++;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) sums_[i] = weights.tensor<double>(2 * counts[i]);
  for (Updated& u : updated_)
    if (const auto number = numbers.find(u.parameter); number != numbers.end())
      u.update.sums = rows(sums_[std::size_t(holders_of(u.parameter->weight))], 2 * number->second, 2);
}

void Optimizer::reset(Device& dev) {
  for (const AnyTensor& run : runs_) fill(dev, run, 0);
  if (!master_) return;
  fill(dev, master_, 0);
  const auto row = [](const AnyTensor& x) { return AnyTensor2(x.data, x.dtype, 1, x.size); };
  for (const auto& p : parameters_.all())
    if (has_master(*p) && p->updated().size() > 0) convert(dev, row(updated_rows(p->kept_value(), *p)), row(master(*p).values));
}

Piece Optimizer::state(const Parameter& p, std::string_view name) const {
  ensure(p.trained, "{} is frozen and has no optimizer state", p.weight.name);
  const auto state = states_.find(name);
  if (state == states_.end()) return {};
  const auto piece = state->second.find(&p);
  return piece == state->second.end() ? Piece() : piece->second;
}

void Optimizer::add_gradient_squares(Device& dev, Tensor1<double> sum) const {
  for (const auto& p : parameters_.all()) {
    if (p->tied || !p->trained || !parameters_.counts(*p)) continue;
    const Piece kept = p->kept_gradient();
    with_type(kept.values, [&]<class Gradient>(const Gradient& g) {
      counted_stretches(*p, kept.of, [&](Index first, Index count, bool counted) {
        if (counted) add_sum_of_squares<typename Gradient::value_type>(dev, rows(g, first, count), sum);
      });
    });
  }
}

void Optimizer::step(Device& dev, const StepOfWeight& step) {
  upload_values(dev, step);
  add_sums(dev);
  updates_.run(dev, [&] {
    for (const Updated& u : updated_) u.rule->update(dev, update_of(u));
  });
  std::map<const Parameter*, WeightUpdate> operands;
  for (const Updated& u : updated_) operands[u.parameter] = update_of(u);
  matrices_.run(dev, [&](const Parameter& p) -> const WeightUpdate& { return operands.at(&p); });
}

WeightUpdate Optimizer::update_of(const Updated& u) const {
  WeightUpdate update = u.update;
  update.gradient = updated_rows(u.parameter->kept_gradient(), *u.parameter);
  update.weight = updated_rows(u.parameter->kept_value(), *u.parameter);
  return update;
}

// Uploads the values of the step to where kernels read them.
void Optimizer::upload_values(Device& dev, const StepOfWeight& step) {
  if (dev.dry_run() || updated_.empty()) return;
  with_type(values_.dtype, [&]<class A>(std::type_identity<A>) {
    std::vector<A> all;
    for (const Updated& u : updated_)
      for (const double value : u.rule->values({step.lr * u.lr_factor, step.weight_decay * u.weight_decay_factor, step.gradient_scale, step.number}))
        all.push_back(A(value));
    backend::upload(dev.queue, all.data(), values_.data, Index(all.size() * sizeof(A)));
  });
}

// First pass of the rules that need sums over whole weights: sums on this rank, then over the tensor-parallel ranks that
// hold parts of the same weights, and over the ranks that shard these parts (ZeRO).
void Optimizer::add_sums(Device& dev) {
  if (std::all_of(sums_.begin(), sums_.end(), [](const auto& sums) { return !sums.data(); })) return;
  first_pass_.run(dev, [&] {
    for (const auto& sums : sums_)
      if (sums.data()) fill<double>(dev, sums, 0);
    for (const Updated& u : updated_) {
      if (!u.update.sums.data()) continue;
      const WeightUpdate update = update_of(u);
      counted_stretches(*u.parameter, u.parameter->updated(), [&](Index first, Index count, bool counted) {
        u.rule->add_sums(dev, update.part(first, count), counted ? u.update.sums : Tensor1<double>());
      });
    }
  });
  const Device::Purpose purpose(dev, "sums over weights for the optimizer: two per weight");
  for (const HeldBy by : {HeldBy::all, HeldBy::team, HeldBy::expert_ranks}) {
    const Tensor1<double>& sums = sums_[std::size_t(by)];
    if (!sums.data()) continue;
    (by == HeldBy::team ? grid_.team()->full() : grid_.tensor().full()).all_reduce(dev, sums);
    if (parameters_.shard() != Shard::none) grid_.replicas(by == HeldBy::expert_ranks).all_reduce(dev, sums);
  }
}

}  // namespace gyr
