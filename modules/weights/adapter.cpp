// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/base/error.hpp"
#include "modules/settings/limits.hpp"
#include "modules/settings/settings.hpp"
#include "modules/settings/weight_pattern.hpp"

namespace gyr {

namespace {

constexpr std::string_view suffix = ".weight";

// One matrix of an adapter. If `shared`, it is sharded like the weight. Otherwise it is replicated; if the weight is
// sharded, each rank then has a partial gradient of it (of_heads).
Weight part_of(const Weight& w, std::string name, Shape shape, bool shared, Init init) {
  Weight part{std::move(name), std::move(shape), shared ? w.shardings : replicated(), init};
  part.of_heads = !shared && !w.shardings.empty();
  part.tokens = w.tokens, part.of_source = w.of_source, part.team = w.team, part.of_adapter = true;
  return part;
}

std::string last_part(const std::string& layer) { return layer.substr(layer.rfind('.') + 1); }

bool is_sharded_by_rows(const Weight& w) { return w.shardings.empty() || w.shardings.front().dim == 0; }

}  // namespace

std::string layer_of(const std::string& weight) { return weight.ends_with(suffix) ? weight.substr(0, weight.size() - suffix.size()) : weight; }
std::string adapter_a_of(const std::string& weight) { return layer_of(weight) + ".lora_A.weight"; }
std::string adapter_b_of(const std::string& weight) { return layer_of(weight) + ".lora_B.weight"; }

bool LoraConfig::targets_weight(const Weight& w) const {
  const std::string layer = layer_of(w.name), last = last_part(layer);
  return rank > 0 && w.adapts &&
         std::any_of(targets.begin(), targets.end(), [&](const std::string& t) { return t == last || matches(t, layer) || matches(t, w.name); });
}

// Initial values as in PEFT: A is uniform in [-1 / sqrt(K), 1 / sqrt(K)], PyTorch's default for a linear layer, and B
// is zero.
Weight adapter_a(const Weight& w, const LoraConfig& c) {
  const Index inputs = w.shape[1];
  return part_of(w, adapter_a_of(w.name), {c.rank, inputs}, !is_sharded_by_rows(w), uniform(1 / std::sqrt(double(inputs))));
}
Weight adapter_b(const Weight& w, const LoraConfig& c) {
  return part_of(w, adapter_b_of(w.name), {w.shape[0], c.rank}, is_sharded_by_rows(w), zeros());
}

LoraConfig read_lora(Section& s, const LoraConfig& defaults) {
  LoraConfig c = defaults;
  c.rank = s.get("rank", c.rank, "LoRA rank r (PEFT: r): each target layer computes with W + (alpha / r) B A, W being frozen; 0: no adapters")
               .at_least(0)
               .at_most(widest);
  c.alpha = s.get("alpha", c.alpha, "LoRA alpha (PEFT: lora_alpha): adapters are scaled by alpha / rank").positive();
  c.targets =
      s.get("targets", c.targets,
            "linear layers that get an adapter (PEFT: target_modules): last part of the layer's name, e.g. q_proj, or a pattern of full names")
          .value();
  c.also = s.get("also", c.also, "other weights that are trained in full (PEFT: modules_to_save): patterns of weight names, e.g. [\"*norm*\"]")
               .effect(Effect::course)
               .value();
  for (const char* key : {"alpha", "targets", "also"})
    require(c || s.given("rank") || !s.given(key), Exit::config,
            "{}: without finetune.lora.rank there are no adapters and all weights are trained; set finetune.lora.rank, for example to 16, or to 0 to "
            "train all weights",
            s.settings_text({key}));
  return c;
}

void check_targets(const LoraConfig& c, const std::vector<Weight>& weights) {
  if (!c) return;
  std::set<std::string> able;
  std::vector<std::string> names;
  for (const Weight& w : weights) {
    if (!w.of_adapter) names.push_back(w.name);
    if (w.adapts) able.insert(last_part(layer_of(w.name)));
  }
  std::string listed;
  for (const std::string& name : able) listed += listed.empty() ? name : ", " + name;
  require(!c.targets.empty(), Exit::config, "finetune.lora.targets is empty; name one or more of these layers: {}", listed);
  for (const std::string& target : c.targets) {
    LoraConfig one = c;
    one.targets = {target};
    require(std::any_of(weights.begin(), weights.end(), [&](const Weight& w) { return one.targets_weight(w); }), Exit::config,
            "finetune.lora.targets: '{}' is no layer of this model that takes an adapter; those are {}", target, listed);
  }
  for (const Weight& w : weights)
    require(!c.targets_weight(w) || c.rank <= std::min(w.shape[0], w.shape[1]), Exit::config,
            "finetune.lora.rank = {}: {} is {} x {}; an adapter of that rank is larger than the weight; lower the rank", c.rank, w.name, w.shape[0],
            w.shape[1]);
  check_patterns("finetune.lora.also", c.also, names);
}

}  // namespace gyr
