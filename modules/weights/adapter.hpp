// SPDX-License-Identifier: BSD-3-Clause
// Low-rank adapters (Hu et al., "LoRA", 2021). A linear layer with the frozen weight W computes with
//   W + s B A,   s = alpha / r
//   W (N,K) frozen; A (r,K) and B (N,r) trained; r LoRA rank
// A is initialised as in PEFT and B is zero, so that training starts from W. Sharding over the tensor-parallel ranks:
//   W                    A                    B
//   sharded by rows      replicated           sharded by rows
//   sharded by columns   sharded by columns   replicated
// Each rank has a partial gradient of a replicated matrix; these are summed.
#pragma once

#include <string>
#include <vector>

#include "modules/weights/weight.hpp"

namespace gyr {

class Section;

struct LoraConfig {
  Index rank = 0;  // LoRA rank r; 0: no adapters
  double alpha = 16;
  // Linear layers that get an adapter: last part of the layer's name, e.g. q_proj, or a pattern of full names.
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  std::vector<std::string> also;  // patterns of other weights that are trained in full

  explicit operator bool() const { return rank > 0; }
  double scale() const { return alpha / double(rank); }
  bool targets_weight(const Weight&) const;
  bool operator==(const LoraConfig&) const = default;
};

// Layer name of a weight: the name without .weight, e.g. "model.layers.0.mlp.up_proj".
std::string layer_of(const std::string& weight);
std::string adapter_a_of(const std::string& weight);  // weight name of the adapter's matrix A; below, that of B
std::string adapter_b_of(const std::string& weight);
Weight adapter_a(const Weight&, const LoraConfig&);
Weight adapter_b(const Weight&, const LoraConfig&);

// Keys finetune.lora.*
LoraConfig read_lora(Section&, const LoraConfig& defaults);
// Checks rank and targets. Exit::config naming the first target that matches no layer which can have an adapter.
// `weights`: all weights of the unsharded model.
void check_targets(const LoraConfig&, const std::vector<Weight>& weights);

}  // namespace gyr
