// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/objective.hpp"

#include <algorithm>

namespace gyr {

namespace {
// Filled during static initialisation, constant afterwards.
std::vector<ObjectiveType>& table() {
  static std::vector<ObjectiveType> types;
  return types;
}
}  // namespace

RegisteredObjective::RegisteredObjective(ObjectiveType type) {
  auto& types = table();
  types.insert(std::find_if(types.begin(), types.end(), [&](const ObjectiveType& t) { return t.name > type.name; }), type);
}

Figure accuracy_of_rows(const char* name, const std::vector<RowScore>& rows) {
  Figure figure{name};
  for (const RowScore& row : rows)
    if (row.label != ignored_label) figure.add(double(row.shortfall <= 0));
  return figure;
}

std::vector<Figure> preferred(const std::vector<double>& margins) {
  Figure accuracy{"accuracy"}, margin{"margin"};
  for (const double m : margins) accuracy.add(double(m > 0)), margin.add(m);
  return {accuracy, margin};
}

const std::vector<std::string>& Objective::classes() const {
  static const std::vector<std::string> none;
  return none;
}

std::vector<NamedField> fields_of(const ModelConfig& c, Index seq_length) {
  std::vector<NamedField> fields = c.objective->fields(c, seq_length);
  if (const Index count = c.attention.rotary_sections.count; count > 1)
    fields.push_back(ValueField<Token>{rotary_components, 0, 0, 0, ValueReader::layers, count});
  return fields;
}

std::string all_layers(const ModelConfig& c) { return c.pattern + c.objective->head_layers(); }

bool keeps_head(const Objective& before, const Objective& after) {
  if (before.writes_next_token() && after.writes_next_token() && after.depths() == 0) return true;
  if (before.has_source() && after.has_source()) return true;
  if (before.gives_values() && after.gives_values()) return true;
  return std::string_view(before.name()) == after.name() && before.classes().size() == after.classes().size() &&
         before.predicts_sentence_order() == after.predicts_sentence_order();
}

bool shares_embedding(const ModelConfig& c) { return c.tie_word_embeddings || c.objective->depths() > 0; }

bool reads_types(const ModelConfig& c) { return c.type_vocab_size >= 2 && c.objective->predicts_sentence_order(); }

const std::vector<ObjectiveType>& objective_types() { return table(); }

LossTerms read_loss_terms(Section& train) {
  LossTerms terms;
  terms.smoothing = train.get("label_smoothing", 0.0, "label smoothing as in PyTorch: part of each label spread over all tokens; training only")
                        .at_least(0)
                        .at_most(1);
  terms.z = train.get("z_loss", 0.0, "z-loss weight (PaLM): times squared log-sum-exp of each row's logits, added to its loss; training only")
                .at_least(0)
                .at_most(1);
  terms.entropy = train
                      .get("entropy_bonus", 0.0,
                           "entropy bonus (confidence penalty): times the entropy of each row's softmax, subtracted from its loss; training only")
                      .at_least(0)
                      .at_most(1);
  return terms;
}

std::shared_ptr<const Objective> read_objective(Section& train, const ModelConfig& model, const Objective& otherwise) {
  std::string help = "training objective:";
  std::vector<std::string> names;
  for (const ObjectiveType& type : objective_types()) {
    help += fmt::format("{} {} ({})", names.empty() ? "" : ",", type.name, type.help);
    names.push_back(type.name);
  }
  const std::string name = train.get("objective", std::string(otherwise.name()), help).one_of(names).effect(Effect::function);
  std::shared_ptr<const Objective> chosen;
  for (const ObjectiveType& type : objective_types())
    if (auto objective = type.read(train, model, otherwise); type.name == name) chosen = std::move(objective);
  return chosen;
}

}  // namespace gyr
