// SPDX-License-Identifier: BSD-3-Clause
// A layer type of the tests only: two MLPs read one norm. It is declared in this file alone, as a new layer type is, and
// takes part in every test of all registered layer types.
#include "modules/layers/mlp.hpp"
#include "modules/layers/single_layer.hpp"

namespace gyr::testing {
namespace {

template <class T>
struct TwinLayer final : SingleLayer<T, Mlp> {
  TwinLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Mlp>(c, name, ".feed_forward", p) {
    this->residual_.add(std::make_unique<Mlp<T>>(c, name + ".second_feed_forward", p));
  }
};

LayerFlops twin_flops(const ModelConfig& m, const TextLengths& n) { return mlp_flops(m, n) + mlp_flops(m, n); }

ModelChains twin_chains(const ModelConfig& c, const std::string& name) {
  return {single_chain(c, name, {mlp_operators(c, name + ".feed_forward"), mlp_operators(c, name + ".second_feed_forward")})};
}

const Registered twin({'D',
                       "twin",
                       "two MLPs in parallel",
                       make_layer<TwinLayer>,
                       twin_flops,
                       twin_chains,
                       {mlp_section},
                       {.in_encoder = true, .same_launches = true}});

}  // namespace
}  // namespace gyr::testing
