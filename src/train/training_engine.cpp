// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/training_engine.hpp"

#include <algorithm>
#include <utility>

#include "src/dump/dump.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/engine/model/replicas.hpp"
#include "src/fault/fault.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/pretrained/weights.hpp"
#include "src/train/critic.hpp"
#include "src/train/device_limit.hpp"
#include "src/train/feed.hpp"
#include "src/train/policy_generator.hpp"
#include "src/train/row_scores.hpp"
#include "src/train/run_paths.hpp"
#include "src/train/scoring_models.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

// MPI calls that profilers shall leave out, for as long as this object lives: their number depends on the load.
struct UnprofiledCalls {
  UnprofiledCalls() { MPI_Pcontrol(0); }
  ~UnprofiledCalls() { MPI_Pcontrol(1); }
};

class RunEngine final : public TrainingEngine {
 public:
  // `all`: memory of all models and of the generator.
  RunEngine(const RunConfig& run, const EngineConfig& config, const Capacity& capacity, const Capacity& all, std::vector<PlannedModel> further,
            Grid& grid, const RunRanks& ranks, Timers& timers, ProgressRecord& progress_record)
      : run_(run), capacity_(capacity), together_(all), timers_(timers), working_(Memory::activations, together_.working()),
        engine_(config, grid, &capacity_, timers, &working_), critic_(critic_of(further, ranks.training, progress_record)),
        scoring_(std::move(further), grid, ranks.training, working_, progress_record), fault_(run.fault, ranks.me, engine_, progress_record) {}

  void add_generator(const GenerationPlace& place, const GeneratorCapacity& limits, const RunRanks& ranks, ProgressRecord& progress_record) {
    orders_ = ranks.orders;
    if (orders_) orders_->send({.kind = GenerationOrder::Kind::make});
    generator_ = std::make_unique<PolicyGenerator>(engine_, place, limits, ranks.all, working_, progress_record, run_.output);
  }

  void initialise() override {
    copy_is_current_ = false;
    engine_.initialise(run_.train.seed);
    if (critic_) critic_->begin();
  }
  void load_weights(const std::filesystem::path& model) override {
    copy_is_current_ = false;
    load_weights_from([&] { return open_initial(model, run_.model, run_.train.new_head, run_.train.seed); }, engine_);
    if (critic_) critic_->begin();
  }
  void check_weights(const std::filesystem::path& model) const override { check_initial(model, run_.model, run_.train.new_head); }
  CheckpointHeader load(const std::filesystem::path& checkpoint) override {
    copy_is_current_ = false;
    if (critic_) critic_->load(checkpoint);
    return load_checkpoint(checkpoint, engine_, LoadWhat::everything, reading_of(run_.checkpoint.read));
  }
  void check_checkpoint(const std::filesystem::path& checkpoint) const override {
    gyr::check_checkpoint(checkpoint, engine_);
    if (critic_) critic_->check_checkpoint(checkpoint);
  }

  void before(Index step) override { fault_.inject_fault(step); }

  void begin_answers(const std::vector<Request>& requests, const Sampling& sampling, Index step) override {
    const bool update = generator_->holds_copy() && !std::exchange(copy_is_current_, true);
    if (orders_) orders_->send({GenerationOrder::Kind::write, update, step, requests});
    if (update) {
      auto t = timers_.scope("move weights");
      generator_->update();
    }
    if (orders_) return;
    auto t = timers_.scope("generate");
    answers_ = generator_->generate(requests, sampling);
  }
  std::vector<GeneratedText> finish_answers() override {
    if (!orders_) return std::exchange(answers_, {});
    auto t = timers_.scope("generate");
    orders_->send({.kind = GenerationOrder::Kind::hand_over});
    return generator_->shared();
  }
  std::vector<double> log_probs(const StepSamples& s) override {
    auto t = timers_.scope("score");
    std::vector<double> all = row_log_probs(engine_, s.source, s.samples);
    engine_.grid().world().start_all_reduce(engine_.device(), Tensor1<double>(all.data(), Index(all.size()))).host_wait();
    return all;
  }
  std::vector<double> rows_of(const std::string& model, const StepSamples& s) override {
    auto t = timers_.scope("score");
    if (!critic_ || model != "critic") return scoring_.rows_of(model, s.source, s.samples, engine_.device());
    engine_.device().fence();
    return critic_->values(s);
  }
  StepResult step_of_critic(const StepOrder& order, const StepSamples& s) override {
    auto t = timers_.scope("train critic");
    engine_.device().fence();
    return critic_->step(order, s);
  }

  StepResult step(const StepOrder& order, const StepSamples& taken, const CheckpointHeader& state, const Note& print_line) override {
    copy_is_current_ = false;
    const Span& samples = taken.samples;
    const auto source = [&, read = fed(taken.source, samples)](int i) {
      auto t = timers_.scope("data");
      const Recorder::Span span(engine_.grid().recorder(), "data", {.chunk = 0, .micro = i});
      engine_.grid().begin_task("data", i);
      return read(i);
    };
    const std::unique_ptr<Dump> dump = dump_of(order.number, samples.size(), state, print_line);
    return engine_.train(source, micros(samples.size()), order);
  }

  std::string bad_number(Index step, const StepResult& result) override {
    try {
      engine_.not_finite(step, result);
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::optional<Validation> validate(const Dataset& data, Index batches, Index batch, const std::function<bool()>& stop) override {
    Validator validator(engine_);
    const SampleSource corpus = [&data](Index number) { return data.sample(number); };
    for (Index i = 0; i < batches; ++i) {
      validator.add(fed(corpus, {i * batch, (i + 1) * batch}), micros(batch));
      if (i + 1 < batches && stop()) return {};
    }
    require(validator.tokens() > 0, Exit::data, "no token of the {} validation batches is to be predicted; take more of them, or longer sequences",
            batches);
    return validator.result();
  }

  void record(Recorder* recorder, bool kernels) override {
    engine_.grid().record(recorder);
    engine_.device().record(kernels ? recorder : nullptr);
  }

  void check_replicas(Index step) override {
    gyr::check_replicas(engine_, step);
    if (critic_) critic_->check_replicas(step);
  }

  std::unique_ptr<StateSaver> saver() override {
    const CheckpointConfig& c = run_.checkpoint;
    const SaveOptions options{files_of(c.files), {c.deflate, c.verify}, {int(c.keep), c.keep_every}, c.async};
    auto saver = std::make_unique<Saver>(checkpoints_of(run_), options, engine_);
    return critic_ ? critic_->saver(std::move(saver)) : std::move(saver);
  }
  const Capacity& capacity() const override { return together_; }
  GemmRate gemm_rate() override {
    Communicator& world = engine_.grid().world();
    const UnprofiledCalls trials;
    const GemmRate mine = gyr::gemm_rate(engine_.precision(), [&](double x) { return world.max(x); });
    return {world.sum(mine.best) / world.size(), world.sum(mine.median) / world.size()};
  }
  std::string graphs() const override { return engine_.graphs(); }

 private:
  // Takes the critic, if the run has one, from its further models; the others are frozen.
  std::unique_ptr<Critic> critic_of(std::vector<PlannedModel>& further, MPI_Comm world, ProgressRecord& progress_record) {
    const auto trained = std::find_if(further.begin(), further.end(), [](const PlannedModel& m) { return m.placed.use.trained; });
    if (trained == further.end()) return nullptr;
    auto critic = std::make_unique<Critic>(std::move(*trained), world, working_, progress_record);
    further.erase(trained);
    return critic;
  }

  // Micro-batches of this rank of a global batch, with the scores of further models.
  MicroBatches fed(const SampleSource& source, const Span& samples) {
    auto t = timers_.scope(run_.models.empty() ? "data" : "score");
    return scoring_.scored(source, samples, feed(source, samples.first, engine_.config(), engine_.grid()), engine_.device());
  }

  // Micro-batches of this rank in a global batch.
  int micros(Index batch) { return int(batch / (engine_.grid().layout().size(Axis::data) * engine_.config().micro_batch_size)); }

  // Hook that dumps this step, if the deck asks for it (dump.steps); otherwise null.
  std::unique_ptr<Dump> dump_of(Index step, Index batch, CheckpointHeader header, const Note& print_line) {
    const std::vector<Index>& steps = run_.dump.steps;
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) return nullptr;
    header.step = step;
    return std::make_unique<Dump>(dumps_of(run_), header, run_.dump.what, engine_, batch, print_line);
  }

  const RunConfig& run_;
  const Capacity capacity_, together_;  // memory of the trained model, and of all models
  Timers& timers_;
  const Arena working_;  // working memory of all models
  Engine engine_;
  std::unique_ptr<Critic> critic_;
  ScoringModels scoring_;
  std::unique_ptr<PolicyGenerator> generator_;  // policy training
  GenerationOrders* orders_ = nullptr;          // to ranks that only generate; null if there are none
  std::vector<GeneratedText> answers_;          // begun and complete
  bool copy_is_current_ = false;                // its weights, if it holds a copy, are those of the engine
  Fault fault_;
};

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

// Called repeatedly during planning: reports progress to the watchdog and ends the run on a stop signal.
void planning(ProgressRecord& progress_record) {
  progress_record.advance();
  if (const int reason = StopSignals::caught())
    fail(Exit::again, "stopped by {} before the first step; nothing has been saved, so start the run again", stop_reason(reason));
}

}  // namespace

std::unique_ptr<TrainingEngine> training_engine(const RunConfig& run, const EngineConfig& config, const RunData& data, Grid& grid,
                                                const RunRanks& ranks, Timers& timers, ProgressRecord& progress_record) {
  const auto beat = [&] { planning(progress_record); };
  const Capacity capacity = predicted_capacity(config, grid.layout(), grid.position(), beat);
  std::vector<PlannedModel> further = planned_models(run, rank_in(ranks.training), grid.layout().ranks(), beat);
  Capacity all = together(capacity, further);
  std::optional<GenerationPlace> place;
  GeneratorCapacity limits;
  if (data.prompts) {
    place = generation_place(run, grid.layout());
    limits = generator_capacity(run, Index(data.prompts->longest()), place->layout);
    const GeneratorBytes bytes = generation_bytes(config.model, *place, limits, ranks.me.rank);
    all.weights += bytes.weights;
    all = with_working(all, bytes.working);
  }
  collective_check(grid.world(), [&] { check_device_limit(run, config, grid.layout(), grid.position(), capacity, all); });
  auto engine = std::make_unique<RunEngine>(run, config, capacity, all, std::move(further), grid, ranks, timers, progress_record);
  if (place) engine->add_generator(*place, limits, ranks, progress_record);
  return engine;
}

}  // namespace gyr
