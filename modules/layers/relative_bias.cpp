// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/relative_bias.hpp"

#include "kernels/ops/elementwise.hpp"
#include "modules/model/model_chains.hpp"

namespace gyr {

namespace {

Run by_heads(const ModelConfig& c) { return {c.attention.num_heads, c.attention.num_heads, false, "attention.num_heads"}; }

Weight table_of(const ModelConfig& c, const std::string& name) {
  const Index heads = c.attention.num_heads;
  return {name + ".weight", {c.attention.relative_bias.buckets, heads}, by_columns({by_heads(c)}), normal(c.init_std), Storage::wide, false};
}

DistanceBuckets buckets_of(const Pass& a, const RelativeBiasConfig& c) { return {c.buckets, c.max_distance, !a.mask.causal}; }

// Maximum distance in tokens between a query and a key of this pass, plus one.
Index reach_of(const Pass& a) {
  if (a.state) return 2 * a.state->capacity();  // in a sliding-window KV cache, entries that are still empty count as up to this far back
  return a.sequences.shared() ? a.sequences.ranks * a.sequences.seq_length : a.sequences.seq_length;
}

}  // namespace

ModelChains relative_bias_chains(const ModelConfig& c, const std::string& name) {
  if (!has_relative_bias(c)) return {};
  const Index buckets = c.attention.relative_bias.buckets;
  Operator table{"table",
                 undivided(buckets),
                 by_units({by_heads(c)}),
                 {{TensorState::shared, TensorState::shared}, {TensorState::shared, TensorState::units, WeightSplit::outputs}}};
  table.weights = {{name + ".weight", {buckets, c.attention.num_heads}, {by_heads(c)}, {}, 1}};
  return {{"relative bias", {table}, {TensorState::shared}, {TensorState::shared, TensorState::units}}};
}

RelativeBias::RelativeBias(const ModelConfig& c, const std::string& name, Parameters& parameters) : weight_(parameters.declare(table_of(c, name))) {}

AnyTensor2 RelativeBias::forward(Pass& a, Frame& frame) const {
  const DType dtype = accumulator_of(weight_.dtype());
  const AnyTensor2 here = frame.put(table, dtype, weight_.rows(), weight_.columns());
  with_type(dtype, [&]<class A>(std::type_identity<A>) {
    if constexpr (std::is_same_v<A, Acc<A>>) convert<A, A>(a.dev, Matrix<const A>(weight_.matrix<const A>()), Matrix<A>(here.as<A>()));
  });
  return here;
}

void RelativeBias::backward(Pass& a, const AnyTensor2& gradient) const {
  if (!weight_.trained) return;
  with_type(gradient.dtype, [&]<class A>(std::type_identity<A>) {
    if constexpr (std::is_same_v<A, Acc<A>>) add<A>(a.dev, Matrix<const A>(gradient.as<A>()), Matrix<A>(weight_.matrix_gradient<A>()));
  });
}

template <class A>
DistanceBias distance_bias_of(Pass& a, const RelativeBiasConfig& c, bool backward) {
  if (!a.bias) return {};
  const Index reach = reach_of(a), heads = a.bias.values.columns;
  const auto scratch_of = [&](const char* name) { return a.scratch<A>(name, heads, 2 * reach - 1); };
  const Tensor2<A> values = scratch_of("bias by distance");
  distance_bias<A>(a.dev, buckets_of(a, c), a.bias.values.as<const A>(), reach - 1, values);
  DistanceBias bias{values, {}, reach - 1};
  if (!backward) return bias;
  const Tensor2<A> gradient = scratch_of("gradient of the bias by distance");
  fill<A>(a.dev, flat(gradient), 0);
  bias.gradient = gradient;
  return bias;
}

template <class A>
void add_to_table(Pass& a, const RelativeBiasConfig& c, const DistanceBias& bias) {
  if (bias) distance_bias_backward<A>(a.dev, buckets_of(a, c), bias.gradient.as<const A>(), bias.zero, a.bias.gradient.as<A>());
}

template DistanceBias distance_bias_of<double>(Pass&, const RelativeBiasConfig&, bool);
template DistanceBias distance_bias_of<float>(Pass&, const RelativeBiasConfig&, bool);
template void add_to_table<double>(Pass&, const RelativeBiasConfig&, const DistanceBias&);
template void add_to_table<float>(Pass&, const RelativeBiasConfig&, const DistanceBias&);

}  // namespace gyr
