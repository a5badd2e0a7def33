// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/family.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "modules/model/layer.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "src/deck/deck.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr {

namespace {

// Model types for which transformers has a class XForSequenceClassification.
constexpr std::array classified{"llama", "mistral",     "mixtral", "qwen2",      "qwen3",        "qwen3_moe", "gemma2",  "gemma3_text", "falcon",
                                "gpt2",  "deepseek_v3", "gpt_oss", "qwen3_next", "qwen3_5_text", "phi3",      "smollm3", "olmo2",       "olmo3"};

// Reward models of a family of language models: XForSequenceClassification with one label. Where transformers has no such class,
// as for Falcon-H1, they have the tensors that it would have.
void add_reward_models(Family family, std::vector<Family>& list) {
  for (const std::string_view head : {"ForCausalLM", "LMHeadModel"})
    if (family.architecture.ends_with(head)) {
      family.architecture.replace(family.architecture.size() - head.size(), head.size(), "ForSequenceClassification");
      const std::string_view type = family.model_type;
      if (type == "gemma3_text") family.architecture = "Gemma3TextForSequenceClassification";
      if (type == "qwen3_5_text") family.architecture = "Qwen3_5TextForSequenceClassification";
      family.values = true;
      family.own_class = std::find(classified.begin(), classified.end(), type) == classified.end();
      return list.push_back(std::move(family));
    }
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (const auto& of_file :
         {falcon_h1::families(), llama::families(), mamba2::families(), gpt2::families(), phi3::families(), hybrids::families(), falcon::families(),
          bert::families(), gemma::families(), deepseek::families(), modernbert::families(), gpt_oss::families(), t5::families(),
          qwen3_next::families(), granite::families(), smollm3::families(), lfm2::families(), olmo::families(), llava::families()})
      list.insert(list.end(), of_file.begin(), of_file.end());
    for (const Family& family : std::vector<Family>(list)) add_reward_models(family, list);
    return list;
  }();
  return all;
}

const Family* find_family(const std::string& model_type, const std::string& architecture) {
  const Family* first = nullptr;
  for (const Family& f : families()) {
    if (f.model_type != model_type) continue;
    if (f.architecture == architecture) return &f;
    if (!first) first = &f;
  }
  return first;
}

namespace {

// Settings that determine the function of the model, by deck key. Settings of layer types that the model does not use
// are left out.
std::map<std::string, std::string> function_of(const ModelConfig& m) {
  std::set<std::string> used, unused;
  for (const LayerSection& section : layer_sections()) unused.insert(section.name);
  for (const char symbol : all_layers(m))
    for (const LayerSection& section : layer_type(symbol).sections) used.insert(section.name), unused.erase(section.name);
  Deck deck = Deck::parse("{}", "a model");
  read_model_config(deck.section("model", "", Effect::function), m);
  // Preference objectives and policy training train the same model as next-token prediction, a critic that of a reward model, and objectives
  // with paired data the same encoder-decoder as span corruption.
  const bool like_next_token = m.objective->writes_next_token() && (m.objective->most_pairs(1) > 0 || m.objective->reads_rollouts());
  const auto objective = like_next_token               ? next_token()
                         : m.objective->gives_values() ? reward()
                         : m.objective->reads_pairs()  ? span_corruption()
                                                       : m.objective;
  read_objective(deck.section("train", ""), m, *objective);  // the objective determines the head
  std::map<std::string, std::string> values;
  for (const Declaration& d : deck.settings()) {
    const bool idle = std::any_of(unused.begin(), unused.end(), [&](const std::string& name) { return d.path.starts_with("model." + name + "."); });
    const bool rotates = m.attention.rotary_dim() > 0 || (!d.path.starts_with("model.attention.rope") && d.path != "model.window.rope_theta");
    const bool of_pixels = d.path == "model.vision.mean" || d.path == "model.vision.std";  // keys of preprocessor_config.json
    if (d.effect == Effect::function && !idle && rotates && !of_pixels) values[d.path] = d.value;
  }
  return values;
}

struct Loss {
  std::size_t settings = 0;  // number of settings that the family's config.json cannot represent
  std::string obstacles;
};

// Maximum number of obstacles listed in a message.
constexpr std::size_t max_listed_obstacles = 3;
constexpr std::size_t layer_mismatch = 1000;  // weight of a different layer pattern, counted in settings, when the nearest family is chosen

Loss lost(const Family& family, const ModelConfig& m) {
  HuggingFaceConfig config;
  config.model = m;
  std::map<std::string, std::string> back;
  try {
    HuggingFaceConfig read = parse_config_json(write_config_json(config, family), family.model_type);
    if (read.ahead && m.objective->depths() > 0) read.model.objective = read.ahead;
    back = function_of(read.model);
  } catch (const Error& error) {
    return {std::size_t(-1), error.what()};
  }
  Loss loss;
  std::size_t obstacles = 0;
  for (const auto& [key, value] : function_of(m)) {
    const auto there = back.find(key);
    if (there != back.end() && there->second == value) continue;
    loss.settings += key == "model.pattern" ? layer_mismatch : 1;
    if (++obstacles <= max_listed_obstacles)
      loss.obstacles += fmt::format("{}{} is {}, but config.json of this class yields {}", loss.obstacles.empty() ? "" : "; ", key, shown(value),
                                    there == back.end() ? "nothing" : there->second);
  }
  if (obstacles > max_listed_obstacles) loss.obstacles += fmt::format("; and {} more", obstacles - max_listed_obstacles);
  return loss;
}

}  // namespace

const Family& family_for(const ModelConfig& m, const std::string& preferred) {
  const Family *nearest = nullptr, *const first = find_family(preferred);
  Loss least;
  std::vector<const Family*> order;
  if (first) order.push_back(first);
  for (const Family& family : families())
    if (&family != first) order.push_back(&family);
  for (const Family* family : order) {
    const Loss loss = lost(*family, m);
    if (loss.settings == 0) return *family;
    if (!nearest || loss.settings < least.settings) nearest = family, least = loss;
  }
  fail(Exit::config, "no supported class of Hugging Face transformers can represent this model; the nearest is {}: {}", nearest->architecture,
       least.obstacles);
}

LayerName layer_name(const std::string& weight, std::string_view begin) {
  if (!weight.starts_with(begin)) return {};
  LayerName name;
  const char* const end = weight.data() + weight.size();
  const auto [rest, error] = std::from_chars(weight.data() + begin.size(), end, name.layer);
  if (error != std::errc() || rest == end || *rest != '.') return {};
  name.rest.assign(rest + 1, end);
  return name;
}

}  // namespace gyr
