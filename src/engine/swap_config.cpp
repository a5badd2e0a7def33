// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/swap_config.hpp"

namespace gyr {

ActivationPolicy read_activation_policy(Section& s) {
  const std::vector<std::string> names(std::begin(activation_policies), std::end(activation_policies));
  const std::string policy =
      s.get(
           "policy", "keep",
           "what layers keep for their backward stays on the device; or is recomputed, all of it; or lies on the host meanwhile; memo: what products "
           "make is swapped for the first tokens (activation.alpha) and made again for the others, what norms and gates make is made again")
          .one_of(names)
          .value();
  ActivationPolicy p;
  p.swap.on = policy == "swap" || policy == "memo";
  p.recompute = policy == "recompute" ? "full" : policy == "memo" ? "selective" : "none";
  p.swap.alpha =
      s.get("alpha", 1.0, "memo: share of a micro-batch's tokens of which what products make is swapped and not made again").at_least(0).at_most(1);
  p.swap.folder =
      s.get("swap_folder", "", "swap, memo: folder of a file for what is swapped, on a disk of this node; empty: in the host's memory").value();
  require(policy == "memo" || p.swap.alpha == 1, Exit::config, "activation.alpha = {}: is of activation.policy = memo, and that is {}", p.swap.alpha,
          policy);
  require(p.swap.on || p.swap.folder.empty(), Exit::config, "activation.swap_folder: is of activation.policy = swap or memo, and that is {}", policy);
  return p;
}

}  // namespace gyr
