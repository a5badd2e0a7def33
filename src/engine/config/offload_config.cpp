// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/offload_config.hpp"

#include <charconv>

namespace gyr {

namespace {

// Nothing where it says auto; not a number where it says neither that nor a number.
std::optional<double> share_in(const std::string& text) {
  if (text == "auto") return {};
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  return error == std::errc() && end == text.data() + text.size() ? share : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

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
  auto alpha =
      s.get("alpha", "1",
            "memo: share of a micro-batch's tokens, 0 to 1, of which what products make is swapped and not made again; auto: with which a step "
            "takes least on parallel.cluster, as gyrfalcon plan --cluster tells");
  const std::optional<double> share = share_in(alpha.value());
  alpha.must("auto, or a share of 0 to 1", !share || (*share >= 0 && *share <= 1)).value();
  p.swap.alpha = share.value_or(1), p.swap.find_alpha = !share;
  p.swap.folder =
      s.get("swap_folder", "", "swap, memo: folder of a file for what is swapped, on a disk of this node; empty: in the host's memory").value();
  require(policy == "memo" || share == 1, Exit::config, "activation.alpha = {}: is of activation.policy = memo, and that is {}", alpha.value(),
          policy);
  require(p.swap.on || p.swap.folder.empty(), Exit::config, "activation.swap_folder: is of activation.policy = swap or memo, and that is {}", policy);
  return p;
}

}  // namespace gyr
