// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/further_models.hpp"

#include "src/base/limits.hpp"

namespace gyr {

namespace {

Section& models_section(Deck& deck) { return deck.section("models", "models besides the trained one, by name", Effect::none); }

Section& section_of(Section& models, const std::string& name) {
  return models.section(name,
                        "a model beside the trained one: reference (train.objective: preference, or policy with rl.kl), critic (rl.algorithm: ppo, "
                        "trained), or a reward "
                        "model that rl.rewards names");
}

std::string source_of(Section& s) {
  return s
      .get("init_from", "",
           "Hugging Face folder, checkpoint or folder of a run (its newest checkpoint) with its weights; empty, for a critic: random weights in the "
           "shape of the trained model")
      .effect(Effect::course)
      .value();
}

int axis(Section& s, const char* key, const char* help) { return s.get(key, 0, help).at_least(0).at_most(most_axis); }

FurtherModel read_model(Section& s, const std::string& name) {
  FurtherModel m;
  m.name = name, m.init_from = source_of(s);
  m.precision = s.get("precision", "", "type of its weights and activations: fp64, fp32 or bf16; empty: train.precision")
                    .one_of({"", "fp64", "fp32", "bf16"})
                    .effect(Effect::course)
                    .value();
  m.ranks = s.get("ranks", "all", "ranks of the run that hold it: all, or numbers and ranges as in 0-3,6").value();
  m.data = s.get("data", 0, "data-parallel size on these ranks; 0: all that the other axes leave").at_least(0).at_most(most_ranks);
  m.pipeline = axis(s, "pipeline", "pipeline-parallel size; 0: parallel.pipeline");
  m.context = axis(s, "context", "context-parallel size; 0: parallel.context");
  m.tensor = axis(s, "tensor", "tensor-parallel size; 0: parallel.tensor");
  m.expert = axis(s, "expert", "expert-parallel size; 0: parallel.expert");
  m.micro_batch_size = s.get("micro_batch_size", 0, "sequences that it scores at once; 0: train.micro_batch_size").unit("sequences").at_least(0);
  m.seq_length =
      s.get("seq_length", 0,
            "reward model with a template or tokenizer of its own: tokens of a window, at least those of the longest text; 0: train.seq_length")
          .unit("tokens")
          .at_least(0)
          .at_most(longest);
  return m;
}

}  // namespace

std::string key_of_model(const std::string& name, const std::string& key) { return fmt::format("models.{}.{}", name, key); }

std::vector<FurtherModel> read_further_models(Section& models, const std::map<std::string, ModelConfig>& shapes) {
  std::vector<FurtherModel> all;
  for (const std::string& name : models.names()) {
    all.push_back(read_model(section_of(models, name), name));
    if (const auto shape = shapes.find(name); shape != shapes.end()) all.back().model = shape->second;
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> read_model_sources(Deck& deck) {
  std::vector<std::pair<std::string, std::string>> sources;
  Section& models = models_section(deck);
  for (const std::string& name : models.names()) sources.emplace_back(name, source_of(section_of(models, name)));
  return sources;
}

}  // namespace gyr
