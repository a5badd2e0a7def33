// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/scoring_models.hpp"

#include <algorithm>
#include <cmath>

#include "src/engine/dry_run/plan.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/pretrained/weights.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/row_scores.hpp"

namespace gyr {

EngineConfig scoring_config(const PlacedModel& placed) {
  EngineConfig config = engine_config(placed.run, placed.layout);
  config.training = placed.use.trained;
  return config;
}

std::vector<PlannedModel> planned_models(const RunConfig& run, int rank, int ranks, const std::function<void()>& beat) {
  std::vector<PlannedModel> planned;
  for (PlacedModel& placed : placed_models(run, ranks)) {
    PlannedModel& p = planned.emplace_back(PlannedModel{std::move(placed), {}});
    const std::optional<int> here = p.placed.mesh.index_of(rank);
    if (!here) continue;
    try {
      p.capacity = predicted_capacity(scoring_config(p.placed), p.placed.layout, p.placed.layout.position_of(*here), beat);
    } catch (const Error& error) {
      if (error.code != Exit::config) throw;
      fail(error.code, "models.{}: {}", p.placed.use.name, error.what());
    }
  }
  return planned;
}

Capacity with_working(Capacity all, Index bytes) {
  all.scratch += std::max<Index>(0, bytes - (all.forward_slots() + all.scratch));
  return all;
}

Capacity together(const Capacity& trained, const std::vector<PlannedModel>& models) {
  Capacity all = trained;
  for (const PlannedModel& m : models) {
    if (!m.capacity) continue;
    all.weights += m.capacity->weights, all.gradients += m.capacity->gradients, all.optimizer += m.capacity->optimizer;
    all = with_working(all, m.capacity->working());
    all.live = std::max(all.live, m.capacity->live);
  }
  return all;
}

struct ScoringModels::Held {
  MPI_Comm comm;
  Timers timers{engine_timer_names()};
  Grid grid;
  Capacity capacity;
  Engine engine;

  Held(const PlannedModel& planned, MPI_Comm mesh, WaitPolicy patience, const Arena& working, ProgressRecord& progress_record)
      : comm(mesh), grid(planned.placed.layout, mesh, patience, &progress_record), capacity(*planned.capacity),
        engine(scoring_config(planned.placed), grid, &capacity, timers, &working) {}
};

ScoringModels::ScoringModels(std::vector<PlannedModel> planned, Grid& grid, MPI_Comm world, const Arena& working, ProgressRecord& progress_record)
    : grid_(grid) {
  const WaitPolicy patience = wait_policy_of(world);
  for (PlannedModel& p : planned) {
    const MPI_Comm mesh = communicator_of(p.placed.mesh, world);
    auto& held = held_.emplace_back();
    if (mesh != MPI_COMM_NULL) held = std::make_unique<Held>(p, mesh, patience, working, progress_record);
    grid_.begin_task("load a further model");
    collective_check(grid_.world(), [&] {
      if (!held) return;
      held->engine.stage().fill([&](ParameterList weights, const Arrived& arrived) {
        load_weights(p.placed.run.train.init_from, held->grid, p.placed.run.model, weights, arrived);
      });
    });
    models_.push_back(std::move(p.placed));
  }
}

ScoringModels::~ScoringModels() {
  for (auto& held : held_) {
    if (!held) continue;
    MPI_Comm comm = held->comm;
    held.reset();
    MPI_Comm_free(&comm);
  }
}

std::vector<double> ScoringModels::text_scores(Held& held, const SampleSource& source, const Span& samples, Index per_sample) {
  const EngineConfig& config = held.engine.config();
  std::vector<double> scores(std::size_t(samples.size() * per_sample), 0);
  const int micros = micros_of(held.engine, held.grid, samples.size());
  const Scores found = held.engine.scores(feed(source, samples.first, config, held.grid), micros);
  for (int i = 0; i < micros && held.grid.tensor().rank() == 0; ++i) {
    const std::vector<double>& of_texts = found[std::size_t(i)].of_texts;  // empty on ranks that do not have them
    std::copy(of_texts.begin(), of_texts.end(), scores.begin() + first_sample(config.micro_batch_size, i, held.grid) * per_sample);
  }
  return scores;
}

std::vector<double> ScoringModels::rows_of(const std::string& name, const SampleSource& source, const Span& samples, Device& dev) {
  const auto model = std::find_if(models_.begin(), models_.end(), [&](const PlacedModel& m) { return m.use.name == name; });
  ensure(model != models_.end(), "the run has no model {}", name);
  return scores_of(*model, held_[std::size_t(model - models_.begin())].get(), source, samples, scores_per_sample(*model), dev);
}

std::vector<double> ScoringModels::scores_of(const PlacedModel& model, Held* held, const SampleSource& source, const Span& samples, Index per_sample,
                                             Device& dev) {
  std::vector<double> scores(std::size_t(samples.size() * per_sample), 0);
  if (held) {
    dev.fence();  // the models use the same working memory, in streams of their own
    using enum ScoringModel::Scores;
    scores = model.use.scores == of_texts ? text_scores(*held, source, samples, per_sample)
             : model.use.scores == values ? row_values(held->engine, source, samples)
                                          : row_log_probs(held->engine, source, samples);
    held->engine.device().fence();
  }
  grid_.world().start_all_reduce(dev, Tensor1<double>(scores.data(), Index(scores.size()))).host_wait();
  const auto bad = std::find_if(scores.begin(), scores.end(), [](double score) { return !std::isfinite(score); });
  require(bad == scores.end(), Exit::numeric, "models.{}: its scores of sample {} are not finite; its weights in {} are damaged, or too large for {}",
          model.use.name, samples.first + (bad - scores.begin()) / per_sample, model.run.train.init_from, model.run.train.precision);
  return scores;
}

MicroBatches ScoringModels::scored(const SampleSource& source, const Span& samples, MicroBatches micro_batches, Device& dev) {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const Recorder::Span span(grid_.recorder(), "score");
    grid_.begin_task("score");
    const PlacedModel& model = models_[i];
    if (model.use.scores != ScoringModel::Scores::of_texts) continue;  // the run asks for them (rows_of)
    const Index per_sample = scores_per_sample(model);
    auto scores = std::make_shared<const std::vector<double>>(scores_of(model, held_[i].get(), source, samples, per_sample, dev));
    micro_batches = [inner = std::move(micro_batches), scores, per_sample, first = samples.first, name = model.use.values](int micro) {
      MicroBatch m = inner(micro);
      const auto begin = scores->begin() + (m.first_sample - first) * per_sample;
      m.values[name].assign(begin, begin + m.batch * per_sample);
      return m;
    };
  }
  return micro_batches;
}

}  // namespace gyr
