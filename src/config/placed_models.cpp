// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/placed_models.hpp"

#include <algorithm>

#include "modules/settings/nearest.hpp"
#include "src/config/layout_rules.hpp"

namespace gyr {

namespace {

const ScoringModel* find(const std::vector<ScoringModel>& uses, const std::string& name) {
  const auto at = std::find_if(uses.begin(), uses.end(), [&](const ScoringModel& use) { return use.name == name; });
  return at == uses.end() ? nullptr : &*at;
}

// The model that the run trains is replaced by `m`.
RunConfig run_of(const RunConfig& run, const FurtherModel& m, const ScoringModel& use, bool everywhere) {
  RunConfig of_model = run;
  of_model.models.clear();
  of_model.model = *m.model;
  of_model.model.objective = use.objective;
  of_model.train.init_from = m.init_from;
  if (!m.precision.empty()) of_model.train.precision = m.precision;
  if (m.micro_batch_size > 0) of_model.train.micro_batch_size = m.micro_batch_size;
  of_model.train.seq_length = window_of(m, run);
  of_model.offload = {};
  if (!use.trained || m.model->pattern != run.model.pattern) of_model.recompute = {};
  of_model.optimizer.lora = m.model->lora;
  ParallelConfig& p = of_model.parallel;
  const auto choose = [](int& size, int chosen) {
    if (chosen > 0) size = chosen;
  };
  choose(p.pipeline, m.pipeline), choose(p.context, m.context), choose(p.tensor, m.tensor), choose(p.expert, m.expert);
  p.data = m.data;
  p.layers.clear(), p.virtual_stages = 1, p.one_chunk = one_f_one_b;  // these settings belong to the pipeline of training
  if (!use.trained) p.reduce_dtype.reset(), p.shard = p.shard == Shard::weights ? Shard::weights : Shard::none;
  if (p.tensor == 1) p.sequence = false;
  p.attention_ranks = 0;
  if (!everywhere) p.permutation.clear(), p.islands.clear();
  return of_model;
}

// Exit::config if the model in init_from cannot do what the objective uses it for. A critic may begin with any trunk.
void check_use(const FurtherModel& m, const ScoringModel& use) {
  require(use.trained || !m.init_from.empty(), Exit::config,
          "models.{}.init_from is empty: a frozen model has no use without trained weights; name a Hugging Face folder, a checkpoint or the folder "
          "of a run",
          m.name);
  const Objective& before = *m.model->objective;
  const bool of_values = use.scores == ScoringModel::Scores::values;
  require(use.trained || keeps_head(before, *use.objective), Exit::config,
          "models.{}: the model in {} was trained with train.objective = {}, and {}; name another model", m.name, m.init_from, before.name(),
          of_values ? "gives texts no value (a reward model does: train.objective: reward)" : "predicts no next tokens to score");
}

// A reward model: it may read texts of its own instead of the token ids of the policy.
bool gives_rewards(const ScoringModel& use) { return use.scores == ScoringModel::Scores::values && !use.trained; }

void check_window(const FurtherModel& m, const RunConfig& run) {
  const Index window = window_of(m, run), positions = m.model->positions;
  require(positions == 0 || window <= positions, Exit::config,
          "models.{}: its windows have {} tokens, and the model in {} has {} positions; set models.{}.seq_length to {} or less", m.name, window,
          m.init_from, positions, m.name, positions);
}

}  // namespace

Index window_of(const FurtherModel& m, const RunConfig& run) { return m.seq_length > 0 ? m.seq_length : run.train.seq_length; }

void check_token_ids(const FurtherModel& m, const RunConfig& run) {
  require(m.model->vocab_size == run.model.vocab_size, Exit::config,
          "models.{}: the model in {} has a vocabulary of {} tokens, and the trained model one of {}; they must read the same token ids", m.name,
          m.init_from, m.model->vocab_size, run.model.vocab_size);
  require(m.seq_length == 0, Exit::config,
          "models.{}.seq_length = {}: it reads the windows of the trained model (train.seq_length = {}); remove this key", m.name, m.seq_length,
          run.train.seq_length);
}

void check_further_models(const RunConfig& run, ModelWeights weights) {
  const std::vector<ScoringModel> uses = run.model.objective->scoring_models();
  std::vector<std::string> names;
  for (const ScoringModel& use : uses) names.push_back(use.name);
  for (const FurtherModel& m : run.models) {
    const std::string near = nearest(m.name, names);
    require(find(uses, m.name), Exit::config, "models.{}: train.objective = {} reads {}; {}", m.name, run.model.objective->name(),
            names.empty() ? "no further model" : fmt::format("only {}", fmt::join(names, ", ")),
            near.empty() ? "remove this section" : fmt::format("did you mean `{}`?", near));
    if (gives_rewards(*find(uses, m.name))) check_window(m, run);
    else check_token_ids(m, run);
    if (weights == ModelWeights::needed || !m.init_from.empty()) check_use(m, *find(uses, m.name));
  }
  if (run.models.empty()) return;
  const std::string& name = run.models.front().name;
  require(run.parallel.plan == Planning::deck, Exit::config,
          "parallel.plan = auto searches a layout for the trained model alone, without memory for models.{}; set the layout in the deck", name);
  require(!run.offload.find_alpha, Exit::config,
          "activation.alpha = auto is found for the trained model alone, without memory for models.{}; give a fraction of 0 to 1", name);
}

std::vector<PlacedModel> placed_models(const RunConfig& run, int ranks) {
  const std::vector<ScoringModel> uses = run.model.objective->scoring_models();
  std::vector<PlacedModel> placed;
  for (const FurtherModel& m : run.models) {
    const std::optional<Mesh> mesh = Mesh::read(m.ranks, ranks);
    require(mesh.has_value(), Exit::config,
            "models.{}.ranks = {}: the run has ranks 0 to {}; write all, or numbers and ranges in ascending order, each rank once, as in 0-3,6",
            m.name, m.ranks, ranks - 1);
    require(mesh->size() == ranks || !find(uses, m.name)->trained, Exit::config,
            "models.{}.ranks = {}: a critic is trained by all {} ranks of the run; remove this key", m.name, m.ranks, ranks);
    PlacedModel p{*find(uses, m.name), *mesh, {}, run_of(run, m, *find(uses, m.name), mesh->size() == ranks)};
    try {
      p.layout = layout_by_rules(p.run, mesh->size());
    } catch (const Error& error) {
      fail(error.code, "models.{} on {} rank{} ({}), whose grid is models.{}.pipeline, context, tensor and data, or that of parallel: {}", m.name,
           mesh->size(), mesh->size() > 1 ? "s" : "", m.ranks, m.name, error.what());
    }
    placed.push_back(std::move(p));
  }
  return placed;
}

Index scores_per_sample(const PlacedModel& placed) {
  for (const NamedField& field : placed.use.objective->fields(placed.run.model, placed.run.train.seq_length))
    if (const auto* values = std::get_if<ValueField<double>>(&field); values && values->name.text == placed.use.values.text)
      return values->count(1, placed.run.train.seq_length);
  fail(Exit::internal, "the objective {} has no values '{}' per sequence", placed.use.objective->name(), placed.use.values.text);
}

}  // namespace gyr
