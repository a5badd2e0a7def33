// SPDX-License-Identifier: BSD-3-Clause
// Low-rank adapters (Hu et al., "LoRA", 2021): beside a linear layer's weight W (N,K), which stays as it is, W + s B A is computed with, s = alpha /
// r, A (r,K) and B (N,r) being trained. A is drawn as PEFT draws it, B is zero, so that a training begins at W.
//   ranks share     W (N,K)        A (r,K)      B (N,r)
//   rows of W       rows           all of it    the same rows
//   columns of W    columns        the same     all of it
// What all ranks have gets a part of its gradient on each of them.
#pragma once

#include <string>
#include <vector>

#include "modules/weights/weight.hpp"

namespace gyr {

class Section;

struct LoraConfig {
  Index rank = 0;  // 0: there are no adapters
  double alpha = 16;
  // Layers that have one: the last part of their names in front of .weight, as q_proj, or patterns of whole names.
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  std::vector<std::string> also;  // patterns of other weights that are trained beside them

  explicit operator bool() const { return rank > 0; }
  double scale() const { return alpha / double(rank); }
  bool targets_weight(const Weight&) const;
  bool operator==(const LoraConfig&) const = default;
};

// "model.layers.0.mlp.up_proj" of its .weight
std::string layer_of(const std::string& weight);
std::string adapter_a_of(const std::string& weight);  // names of its parts
std::string adapter_b_of(const std::string& weight);
Weight adapter_a(const Weight&, const LoraConfig&);
Weight adapter_b(const Weight&, const LoraConfig&);

// Keys finetune.lora.*
LoraConfig read_lora(Section&, const LoraConfig& defaults);
// Exit::config naming the first target that is no layer of the model which takes an adapter. `weights`: of the whole model.
void check_targets(const LoraConfig&, const std::vector<Weight>& weights);

}  // namespace gyr
