// SPDX-License-Identifier: BSD-3-Clause
// Operator chains of a model: those of its embedding and head, and the residual blocks of layers. A layer type registers
// its own chains (layer.hpp).
#pragma once

#include "modules/model/model_config.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

struct ModelChain {
  std::string name;
  OperatorChain operators;
  // Allowed states of the first and the last tensor. If empty, the state of the residual stream.
  std::vector<TensorState> begin = {}, end = {};
  bool of_source = false;  // true: its rows are those of the encoder input
  bool at_once = false;    // true: forward and backward are one pass, in which nothing is gathered again
};
using ModelChains = std::vector<ModelChain>;

ModelChains embedding_chains(const ModelConfig&);
// Chain of the relative position bias table NAME, which layers read by heads; empty if the model has none.
ModelChains relative_bias_chains(const ModelConfig&, const std::string& name);
ModelChains head_chains(const ModelConfig&);                          // chains of the output head for tokens or classes; none for a scalar head
ModelChains mtp_chains(const ModelConfig&, const std::string& name);  // module of multi-token prediction (MTP), without its layers
Operator norm_operator(const ModelConfig&, const std::string& name);
// A residual block: the branches, the norms before and after them with these names, and the residual sum.
ModelChain residual_chain(const ModelConfig&, const char* what, const std::string& norm, const std::string& second_norm,
                          std::vector<OperatorChain> branches);
// The only residual block of the layer `name`.
ModelChain single_chain(const ModelConfig&, const std::string& name, std::vector<OperatorChain> branches);

// The layout of least cost. The residual stream is replicated or, with `sequence`, sharded by rows (sequence parallel).
// Every chain has a layout if all passages are allowed. If there is none, try_lay_out() returns nothing and lay_out()
// is an internal error.
std::optional<ChainLayout> try_lay_out(const ModelChain&, LayoutRules, bool sequence);
ChainLayout lay_out(const ModelChain&, const LayoutRules&, bool sequence);

}  // namespace gyr
