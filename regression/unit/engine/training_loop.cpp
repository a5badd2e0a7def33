// SPDX-License-Identifier: BSD-3-Clause
// Order in which a run trains, validates, checks replicas and saves. The engine is a fake that computes nothing and
// records its calls.
#include "src/train/training_loop.hpp"

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/data/token_writer.hpp"
#include "src/trace/trace_file.hpp"

namespace gyr::testing::training_loop_suite {
namespace {

using Events = std::vector<std::string>;

class RecordingSaver final : public StateSaver {
 public:
  explicit RecordingSaver(Events& events) : events_(events) {}
  std::optional<Saved> save(CheckpointHeader h) override {
    events_.push_back(fmt::format("save {}", h.step));
    if (!commits) return {};
    const std::filesystem::path path = checkpoint_path(*commits, h.step);
    std::filesystem::create_directories(path);
    Saved saved;
    saved.path = path, saved.step = h.step, saved.write_seconds = 1;
    return saved;
  }
  std::optional<Saved> poll() override { return {}; }
  std::optional<Saved> finish() override { return events_.push_back("finish"), std::nullopt; }
  Index buffer_bytes() const override { return 0; }

  std::optional<std::filesystem::path> commits{};  // folder in which saves make empty checkpoints

 private:
  Events& events_;
};

class RecordingEngine final : public TrainingEngine {
 public:
  explicit RecordingEngine(Events& events) : events_(events) {}
  std::function<void(StepResult&, const Span& samples)> on_step = [](StepResult&, const Span&) {};
  std::function<void()> on_validation = [] {};
  double loss = 1;  // of validations
  std::vector<StepOrder> orders;

  void initialise() override { events_.push_back("initialise"); }
  void load_weights(const std::filesystem::path&) override {}
  CheckpointHeader load(const std::filesystem::path&) override { return {}; }
  void check_weights(const std::filesystem::path&) const override {}
  void check_checkpoint(const std::filesystem::path&) const override {}
  void before(Index) override {}
  StepResult step(const StepOrder& order, const StepSamples& taken, const CheckpointHeader& state, const Note&) override {
    const Span& samples = taken.samples;
    EXPECT_EQ(order.number, state.step + 1);
    events_.push_back(fmt::format("step {} of samples {} to {}", order.number, samples.first, samples.last));
    orders.push_back(order);
    StepResult result;
    result.loss = 1;
    on_step(result, samples);
    return result;
  }
  std::string bad_number(Index step, const StepResult&) override { return fmt::format("bad number in step {}", step); }
  std::optional<Validation> validate(const Dataset&, Index, Index, const std::function<bool()>& stop) override {
    events_.push_back("validate");
    on_validation();
    return stop() ? std::nullopt : std::optional(Validation{loss, {}});
  }
  void begin_answers(const std::vector<Request>&, const Sampling&, Index) override {}
  std::vector<GeneratedText> finish_answers() override { return {}; }
  std::vector<double> log_probs(const StepSamples&) override { return {}; }
  std::vector<double> rows_of(const std::string&, const StepSamples&) override { return {}; }
  StepResult step_of_critic(const StepOrder&, const StepSamples&) override { return {}; }
  void record(Recorder* recorder, bool kernels) override {
    events_.push_back(recorder ? kernels ? "record kernels" : "record" : "record no more");
    single_rank_grid(2).record(recorder);
  }
  void check_replicas(Index step) override { events_.push_back(fmt::format("check {}", step)); }
  std::unique_ptr<StateSaver> saver() override {
    auto saver = std::make_unique<RecordingSaver>(events_);
    saver->commits = commits;
    return saver;
  }
  std::optional<std::filesystem::path> commits{};
  const Capacity& capacity() const override { return none_; }
  GemmRate gemm_rate() override { return {1, 1}; }
  std::string graphs() const override { return ""; }

 private:
  Events& events_;
  const Capacity none_;
};

// A run of six steps of four samples each, in its own folder.
class training_loop : public ::testing::Test {
 protected:
  training_loop() {
    TokenWriter writer(folder / "text", 62);
    for (std::int32_t token = 0; token < 3000; ++token) {
      const std::int32_t id = token % 60;
      writer.add(std::span(&id, 1));
      if (token % 75 == 74) writer.end_document();
    }
    writer.finish();
  }

  Error run(const std::string& train) {
    Deck deck = Deck::parse("train: {global_batch_size: 4, seq_length: 8, steps: 6, " + train + "}\n", "loop.yaml", {});
    RunConfig config = read_run_config(deck);
    config.data.prefixes = {folder / "text"}, config.data.split = "50,50,0", config.data.tokenizer.clear();
    config.checkpoint.every = 3, config.output = folder.path();
    Grid& grid = single_rank_grid(2);
    const RunData data = open_data(config, grid);
    Timers timers(engine_timer_names());
    Trace trace(config.trace, folder / "trace");
    Watch watch({.patience = 0}, {}, [](int) {});
    RunFolder untaken;
    const std::string effective;
    const RunParts parts{config, effective, grid, watch, timers, trace, engine, untaken, {0, std::chrono::steady_clock::now()}};
    RunStart start(parts, {"0123456789abcdef"});
    const CheckpointHeader at = start.begin();
    const auto saver = engine.saver();
    Saving saving(parts, *saver, nullptr, at.step);
    CorpusSteps steps(config, *data.training);
    return error_of([&] { TrainingLoop(parts, data, steps, start, saving, nullptr, at).run(); });
  }

  const Folder folder;
  const StopSignals signals;
  Events events;
  RecordingEngine engine{events};
};

// A batch that doubles after 64 tokens: the steps end at 32, 64, 128 ... 320 tokens, where the run ends.
TEST_F(training_loop, schedule_follows_samples_or_tokens) {
  for (const char* unit : {"tokens", "samples"}) {
    const int warmup = unit == std::string("tokens") ? 64 : 8;
    engine.orders.clear();
    EXPECT_EQ(
        run(fmt::format("ramp: [\"0:4\", \"64:8\"]}}\noptimizer: {{schedule: linear, schedule_unit: {}, warmup_steps: {}, lr: 1, weight_decay: 0.1, "
                        "weight_decay_start: 0.5, weight_decay_schedule: linear",
                        unit, warmup))
            .code,
        Exit::ok);
    ASSERT_EQ(engine.orders.size(), 6u);
    const double lrs[] = {0.5, 1, 0.75, 0.5, 0.25, 0}, tokens[] = {32, 64, 128, 192, 256, 320};
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(engine.orders[i].lr, lrs[i], 1e-15) << unit << ", step " << i + 1;
      EXPECT_NEAR(*engine.orders[i].weight_decay, 0.1 + 0.4 * (1 - tokens[i] / 320), 1e-15) << unit << ", step " << i + 1;
    }
    std::filesystem::remove_all(folder / "checkpoints");
  }
}

TEST_F(training_loop, run_checks_replicas_then_validates_then_saves) {
  EXPECT_EQ(run("eval_every: 2, check_replicas: 2").code, Exit::ok);
  EXPECT_EQ(events, (Events{"initialise", "step 1 of samples 0 to 4", "step 2 of samples 4 to 8", "check 2", "validate", "step 3 of samples 8 to 12",
                            "check 3", "save 3", "step 4 of samples 12 to 16", "check 4", "validate", "step 5 of samples 16 to 20",
                            "step 6 of samples 20 to 24", "check 6", "validate", "save 6", "finish"}));
}

TEST_F(training_loop, stop_request_saves_without_validation) {
  engine.on_step = [](StepResult& result, const Span& samples) { result.stop_request = samples.first == 4 ? stop_file_reason : 0; };
  folder.write("STOP", "");
  const Error error = run("eval_every: 2");
  EXPECT_EQ(error.code, Exit::again);
  EXPECT_STREQ(error.what(), "stopped by the file STOP after step 2 of 6; its checkpoint is saved, and --resume continues from it");
  EXPECT_EQ(events, (Events{"initialise", "step 1 of samples 0 to 4", "step 2 of samples 4 to 8", "save 2", "finish"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "STOP")) << "the file STOP was not removed";
}

TEST_F(training_loop, stop_before_first_step_claims_no_checkpoint) {
  ::raise(SIGTERM);
  const Error error = run("eval_every: 2");
  EXPECT_EQ(error.code, Exit::again);
  EXPECT_STREQ(error.what(), "stopped by SIGTERM before the first step; nothing has been saved, so start the run again");
  EXPECT_EQ(events, (Events{"initialise", "finish"}));
}

TEST_F(training_loop, stop_signal_during_validation_saves_and_ends) {
  engine.on_validation = [] { ::raise(SIGTERM); };
  EXPECT_EQ(run("eval_every: 2").code, Exit::again);
  EXPECT_EQ(events, (Events{"initialise", "step 1 of samples 0 to 4", "step 2 of samples 4 to 8", "validate", "save 2", "finish"}));
}

TEST_F(training_loop, stop_at_the_last_step_completes_the_run) {
  engine.on_step = [](StepResult& result, const Span& samples) { result.stop_request = samples.last == 24 ? SIGTERM : 0; };
  EXPECT_EQ(run("eval_every: 0").code, Exit::ok);
  EXPECT_EQ(events.back(), "finish");
  EXPECT_EQ(events[events.size() - 2], "save 6");
}

TEST_F(training_loop, skipped_step_counts_as_taken) {
  engine.on_step = [](StepResult& result, const Span& samples) { result.finite = result.applied = samples.first != 4; };
  EXPECT_EQ(run("eval_every: 0, non_finite: skip").code, Exit::ok);
  EXPECT_EQ(events[3], "step 3 of samples 8 to 12");
}

TEST_F(training_loop, rollback_does_not_repeat_the_bad_samples) {
  engine.on_step = [](StepResult& result, const Span& samples) { result.finite = result.applied = samples.first != 4; };
  EXPECT_EQ(run("eval_every: 0, non_finite: rollback").code, Exit::ok);
  EXPECT_EQ(events, (Events{"initialise", "step 1 of samples 0 to 4", "step 2 of samples 4 to 8", "finish", "initialise", "step 1 of samples 0 to 4",
                            "step 2 of samples 8 to 12", "step 3 of samples 12 to 16", "save 3", "step 4 of samples 16 to 20",
                            "step 5 of samples 20 to 24", "step 6 of samples 24 to 28", "save 6", "finish"}));
}

// The losses of steps 1 to 6 are 3, 2, 4, 2, 1, 5: steps 1, 2 and 5 are saved because of them, steps 3 and 6 by
// checkpoint.every.
TEST_F(training_loop, lowest_validation_losses_are_saved) {
  const double losses[] = {3, 2, 4, 2, 1, 5};
  int validations = 0;
  engine.commits = folder / "checkpoints";
  engine.on_validation = [&] { engine.loss = losses[validations++]; };
  EXPECT_EQ(run("eval_every: 1}\ncheckpoint: {keep_best: true").code, Exit::ok);
  Events saves;
  std::copy_if(events.begin(), events.end(), std::back_inserter(saves), [](const std::string& event) { return event.starts_with("save"); });
  EXPECT_EQ(saves, (Events{"save 1", "save 2", "save 3", "save 5", "save 6"}));
  const auto best = best_checkpoint(folder / "checkpoints");
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 5);
  EXPECT_EQ(best->loss, 1);
  EXPECT_EQ(committed_steps(folder / "checkpoints"), (std::vector<std::int64_t>{3, 5, 6})) << "the saver of this test removes nothing";
}

TEST_F(training_loop, recorded_best_loss_holds_for_later_attempts) {
  std::filesystem::create_directories(folder / "checkpoints" / "step_00000001");
  write_best(folder / "checkpoints", {1, 0.5});
  EXPECT_EQ(run("eval_every: 1}\ncheckpoint: {keep_best: true").code, Exit::ok);
  EXPECT_EQ(best_checkpoint(folder / "checkpoints")->step, 1) << "no loss of this attempt is below 0.5";
  EXPECT_EQ(std::count(events.begin(), events.end(), "save 2"), 0);
}

TEST_F(training_loop, best_checkpoint_needs_validation_losses) {
  const Error error = error_of([&] { run("eval_every: 0}\ncheckpoint: {keep_best: true"); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("set train.eval_every"), std::string::npos) << error.what();
}

TEST_F(training_loop, only_configured_steps_are_traced) {
  EXPECT_EQ(run("eval_every: 0}\ntrace: {on: true, steps: [2, 4, 9], kernels: true").code, Exit::ok);
  EXPECT_EQ(events, (Events{"initialise", "step 1 of samples 0 to 4", "record kernels", "step 2 of samples 4 to 8", "record no more",
                            "step 3 of samples 8 to 12", "save 3", "record kernels", "step 4 of samples 12 to 16", "record no more",
                            "step 5 of samples 16 to 20", "step 6 of samples 20 to 24", "save 6", "finish"}));
  for (const int step : {2, 4}) EXPECT_EQ(read_traces(folder.path())[step / 2 - 1].step, step);
  EXPECT_EQ(read_traces(folder.path()).size(), 2u);
}

TEST_F(training_loop, non_finite_stop_ends_run_without_saving) {
  engine.on_step = [](StepResult& result, const Span& samples) { result.finite = result.applied = samples.first != 4; };
  const Error error = run("eval_every: 0, non_finite: stop");
  EXPECT_EQ(error.code, Exit::numeric);
  EXPECT_STREQ(error.what(), "bad number in step 2");
  EXPECT_EQ(events.back(), "step 2 of samples 4 to 8") << "nothing may be saved after the failed step";
}

}  // namespace
}  // namespace gyr::testing::training_loop_suite
