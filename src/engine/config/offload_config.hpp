// SPDX-License-Identifier: BSD-3-Clause
// Activation policy, keys activation.policy, alpha, swap_folder: where the activations are kept that layers save for the backward. Results are
// bit-identical, except with a fraction alpha of the rows: a GEMM library may add up few rows in another order than all rows.
//   keep        activations that activation.recompute saves stay on the device
//   recompute   the same, with activation.recompute = full as the default
//   swap        activations that activation.recompute saves are offloaded to host memory
//   memo        Results of elementwise passes are recomputed, because that is faster than a copy.
//               Results of GEMMs: the first rows of a micro-batch, a fraction alpha of all, are offloaded; the others are recomputed.
//               All else is offloaded: inputs of layers, results of attention and scans, and chunk states.
//               Without these no row could be recomputed independently of the rows before it.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct OffloadConfig {
  bool on = false;          // true: activations are offloaded
  double alpha = 1;         // fraction of the rows of GEMM results that is offloaded
  std::string folder = {};  // folder of a file for offloaded activations; empty: in host memory
  bool find_alpha = false;  // activation.alpha is auto, and `alpha` is not determined yet

  bool operator==(const OffloadConfig&) const = default;
};

inline constexpr const char* activation_policies[] = {"keep", "recompute", "swap", "memo"};

struct ActivationPolicy {
  OffloadConfig offload;
  std::string recompute;  // word that is the default of activation.recompute under this policy
};
ActivationPolicy read_activation_policy(Section&);

}  // namespace gyr
