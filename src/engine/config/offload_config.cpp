// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/offload_config.hpp"

#include <charconv>

namespace gyr {

namespace {

// None if the text is auto; NaN if it is neither auto nor a number.
std::optional<double> fraction_in(const std::string& text) {
  if (text == "auto") return {};
  double fraction = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fraction);
  return error == std::errc() && end == text.data() + text.size() ? fraction : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

ActivationPolicy read_activation_policy(Section& s) {
  const std::vector<std::string> names(std::begin(activation_policies), std::end(activation_policies));
  const std::string policy =
      s.get("policy", "keep",
            "activations saved for the backward: keep: on the device; recompute: recomputed in full; swap: offloaded to host memory; memo: GEMM "
            "results are offloaded for the first tokens (activation.alpha) and recomputed for the others, norms and gates are recomputed")
          .one_of(names)
          .value();
  ActivationPolicy p;
  p.offload.on = policy == "swap" || policy == "memo";
  p.recompute = policy == "recompute" ? "full" : policy == "memo" ? "selective" : "none";
  auto alpha =
      s.get("alpha", "1",
            "memo: fraction of a micro-batch's tokens, 0 to 1, whose GEMM results are offloaded instead of recomputed; auto: the fraction with the "
            "shortest step on parallel.cluster, see gyrfalcon plan --cluster");
  const std::optional<double> fraction = fraction_in(alpha.value());
  alpha.must("auto, or a fraction of 0 to 1", !fraction || (*fraction >= 0 && *fraction <= 1)).value();
  p.offload.alpha = fraction.value_or(1), p.offload.find_alpha = !fraction;
  p.offload.folder =
      s.get("swap_folder", "", "swap, memo: folder of a file for offloaded activations, on a disk of this node; empty: in host memory").value();
  require(policy == "memo" || fraction == 1, Exit::config, "activation.alpha = {}: applies only to activation.policy = memo, which is {}",
          alpha.value(), policy);
  require(p.offload.on || p.offload.folder.empty(), Exit::config,
          "activation.swap_folder: applies only to activation.policy = swap or memo, which is {}", policy);
  return p;
}

}  // namespace gyr
