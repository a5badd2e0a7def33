// SPDX-License-Identifier: BSD-3-Clause
// The operators of a model, chain by chain: of its ends and of every layer type. Those of a branch stand beside its weights; where these are few,
// here.
#pragma once

#include "modules/model/model_config.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

struct ModelChain {
  std::string name;
  OperatorChain operators;
  // States it may begin and end in; where none is said, that of the residual stream.
  std::vector<TensorState> begin = {}, end = {};
  bool of_source = false;  // its rows are those of the source
  bool at_once = false;    // forward and backward are one: nothing is gathered again
};
using ModelChains = std::vector<ModelChain>;

ModelChains embedding_chains(const ModelConfig&);
// The table of relative positions NAME, if the model has one: what layers read by heads.
ModelChains relative_bias_chains(const ModelConfig&, const std::string& name);
ModelChains head_chains(const ModelConfig&);                          // of tokens, or of classes
ModelChains mtp_chains(const ModelConfig&, const std::string& name);  // of a module that tells tokens further ahead, but for its layers
ModelChains layer_chains(const ModelConfig&, char symbol, const std::string& name);
Operator norm_operator(const ModelConfig&, const std::string& name);
OperatorChain mlp_operators(const ModelConfig&, const std::string& name);

// The cheapest layout of a chain, the stream being whole or, with `sequence`, shared out by rows. Every chain has one where all passages are allowed.
std::optional<ChainLayout> try_lay_out(const ModelChain&, LayoutRules, bool sequence);
ChainLayout lay_out(const ModelChain&, const LayoutRules&, bool sequence);

}  // namespace gyr
