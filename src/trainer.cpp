// SPDX-License-Identifier: BSD-3-Clause
#include "src/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>

#include <nlohmann/json.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/gemm.hpp"
#include "modules/flops.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/data/output_file.hpp"
#include "src/dump/dump.hpp"
#include "src/recent_metrics.hpp"
#include "src/replicas.hpp"
#include "src/report/json_lines.hpp"
#include "src/report/progress.hpp"
#include "src/report/summary.hpp"
#include "src/report/tensorboard.hpp"
#include "src/run_lock.hpp"
#include "src/runtime.hpp"
#include "src/together.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

DatasetOptions dataset_options(const RunConfig& run, Split which, Index samples) {
  DatasetOptions o;
  for (std::size_t i = 0; i < run.data.prefixes.size(); ++i)
    o.corpora.push_back({run.data.prefixes[i], run.data.weights.empty() ? std::nullopt : std::optional(run.data.weights[i])});
  o.split = run.data.split;
  o.which = which;
  o.seq_len = run.train.length;
  o.seed = run.data.seed;
  o.order = parse_sample_order(run.data.order);
  o.separate = run.data.separate;
  o.samples = samples;
  o.vocab_size = run.model.vocabulary;
  return o;
}

// Where a run stands: all that, with the weights, makes the rest of it.
struct Progressed {
  Index step = 0, samples = 0, tokens = 0;
};

// Samples a whole run consumes, batch ramp included.
Index samples_of(const RunConfig& run) {
  Index samples = 0;
  for (Index step = 0; step < run.train.steps; ++step) samples += run.batch_after(double(samples * run.train.length));
  return samples;
}

template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& run, const std::string& deck, const TrainOptions& options, MPI_Comm world)
      : run_(run), deck_(deck), world_(world), timers_(engine_timer_names()),
        watch_(run.watch, {rank(world), ranks(world), options.life}, [world](int code) { MPI_Abort(world, code); }),
        walltime_(run.train.walltime, options.begin), grid_(layout_of(run, ranks(world)), world, patience_of(world), &watch_.beacon()),
        engine_config_(engine_config(run, grid_.layout())),
        capacity_(predicted_capacity<T>(engine_config_, grid_.layout(), grid_.position())),
        engine_(engine_config_, grid_, &capacity_, timers_), fault_(run.fault, rank(world), options.life, engine_, watch_.beacon()),
        skip_(run.data.skip) {
    grid_.tell("data");
    const bool fault_now = run.fault.any() && (run.fault.life < 0 || run.fault.life == options.life);
    require(!fault_now || run.fault.rank < grid_.layout().ranks(), Exit::config, "fault.rank = {}, but there are {} ranks", run.fault.rank,
            grid_.layout().ranks());
    require(run.train.non_finite != NonFinite::rollback || run.data.order != "megatron", Exit::config,
            "train.non_finite = rollback needs data.order shuffled: the megatron order depends on how many samples are read");
    require(!run.data.prefixes.empty(), Exit::config, "data.prefixes is empty: name at least one PREFIX of PREFIX.bin and PREFIX.idx");
    training_.emplace(dataset_options(run, Split::train, samples_of(run)));
    if (run.train.eval_every > 0)
      validation_.emplace(dataset_options(run, Split::validation, run.train.eval_batches * run.largest_batch()));
    together(grid_.world(), [&] {
      if (lead() && !run.data.tokenizer.empty()) check_tokenizer();
    });
    together(grid_.world(), [&] {
      if (lead()) take_folder(options.take_over);
    });
    watch_.attach(run.output);
    if (options.resume) resume();
    if (progressed_.step == 0) begin();
    saved_ = furthest_ = progressed_.step;
    peak_ = grid_.world().sum(product_rate<T>()) / grid_.world().size();
    saver_.emplace(checkpoints(), save_options(run), engine_);
    memory_ = grid_.world().max(double(capacity_.total() + saver_->buffer_bytes()));
    together(grid_.world(), [&] {
      if (lead()) open_reports();
    });
    remember();
  }

  void run() {
    const Clock::time_point begin = Clock::now();
    const Index first = progressed_.step;
    heard_ = hear();
    if (validation_ && !heard_ && validation_due() && progressed_.step > 0 && !validated_) validate();  // it was stopped in the middle
    while (!heard_ && progressed_.step < run_.train.steps) {
      watch_.beacon().phase("train");
      const Clock::time_point start = Clock::now();
      const double waited = watch_.beacon().waited();
      std::optional<StepReport> report = step();
      if (!report) continue;  // went back
      report->seconds = since(start);
      watch_.beacon().stepped(report->seconds, watch_.beacon().waited() - waited);
      longest_step_ = std::max(longest_step_, report->seconds);
      report->seconds_left = since(begin) / double(progressed_.step - first) * double(run_.train.steps - progressed_.step);
      publish(*report);
      tell(timed("checkpoint", [&] { return saver_->poll(); }));
      if (check_due()) check_replicas<T>(engine_, progressed_.step);
      if (heard_ && !finished()) break;
      if (validation_ && validation_due()) validate();
      if (finished() || heard_ || (run_.checkpoint.every > 0 && progressed_.step % run_.checkpoint.every == 0)) save();
    }
    if (heard_ && !finished() && saved_ != progressed_.step) save();
    finish_save();
    grid_.tell("report");
    say_timers();
    if (heard_ && !finished()) stopped();
  }

 private:
  void check_tokenizer() const {
    const Index size = Tokenizer::load(run_.data.tokenizer).size();
    require(size <= run_.model.vocabulary, Exit::data, "data.tokenizer {}: {} tokens, and model.vocabulary is {}; raise that, or name the model's tokenizer",
            run_.data.tokenizer, size, run_.model.vocabulary);
  }

  static int ranks(MPI_Comm world) {
    int size = 1;
    MPI_Comm_size(world, &size);
    return size;
  }
  static int rank(MPI_Comm world) {
    int rank = 0;
    MPI_Comm_rank(world, &rank);
    return rank;
  }
  bool lead() { return grid_.position() == 0; }
  bool finished() const { return progressed_.step == run_.train.steps; }
  bool check_due() const { return run_.train.check_replicas > 0 && progressed_.step % run_.train.check_replicas == 0; }
  bool validation_due() const { return finished() || progressed_.step % run_.train.eval_every == 0; }

  // Why this rank would stop now, and why all do. The latter costs a message.
  int said() const {
    if (walltime_.over(longest_step_, longest_save_)) return walltime_reason;
    return watch_.stop_file_seen() ? stop_file_reason : StopSignals::caught();
  }
  int hear() { return int(grid_.world().max(said())); }

  [[noreturn]] void stopped() {
    together(grid_.world(), [&] {
      std::error_code ignored;
      if (lead()) std::filesystem::remove(stop_file(run_.output), ignored);  // obeyed
    });
    fail(Exit::again, "stopped by {} after step {} of {}, everything saved; go on with --resume", stop_reason(heard_), progressed_.step, run_.train.steps);
  }

  void take_folder(bool take_over) {
    std::error_code error;
    std::filesystem::create_directories(run_.output, error);
    require(!error, Exit::io, "{}: cannot be made: {}; choose another output.folder", run_.output, error.message());
    lock_.emplace(run_.output, take_over);
    if (!lock_->note().empty()) std::printf("%s\n", lock_->note().c_str());
    remove_unfinished(checkpoints());
    remove_unfinished(dumps());
    std::filesystem::remove(heartbeat_path(run_.output), error);  // of an earlier life, which may have had more ranks
    require(!error, Exit::io, "{}: cannot be removed: {}", heartbeat_path(run_.output).string(), error.message());
  }

  static SaveOptions save_options(const RunConfig& run) {
    const CheckpointConfig& c = run.checkpoint;
    return {files_of(c.files), {c.deflate, c.verify}, {int(c.keep), c.keep_every}, c.async};
  }

  // What earlier lives have left in metrics.jsonl that matters here: the losses before this step, and whether it was validated.
  void remember() {
    std::vector<double> found(1 + spike_window, std::numeric_limits<double>::quiet_NaN());
    if (lead() && progressed_.step > 0) {
      const RecentMetrics recent = recent_metrics(std::filesystem::path(run_.output) / "metrics.jsonl", progressed_.step, spike_window);
      found[0] = recent.validated;
      std::copy(recent.losses.begin(), recent.losses.end(), found.begin() + 1);
    }
    const std::vector<double> all = grid_.world().gather(found);
    validated_ = all[0] == 1;
    for (std::size_t i = 1; i <= spike_window; ++i)
      if (!std::isnan(all[i])) losses_.push_back(all[i]);
  }

  // Weights drawn, or those of a model that exists; the optimizer has seen nothing.
  void begin() {
    const std::string& from = run_.train.init_from;
    if (from.empty()) return engine_.initialise(run_.train.seed);
    load_weights(from, engine_);
    if (lead()) std::printf("weights from %s\n", from.c_str());
  }

  // From the newest checkpoint that is whole to its last tensor; damaged ones are named and passed over.
  void resume(std::int64_t before = std::numeric_limits<std::int64_t>::max()) {
    watch_.beacon().phase("load");
    const auto say = [&](const std::string& note) {
      if (lead()) std::printf("%s\n", note.c_str());
    };
    while (const auto newest = newest_checkpoint(checkpoints(), grid_.world(), say, before)) {
      before = read_header(*newest).step;
      try {
        const CheckpointHeader header = load_checkpoint<T>(*newest, engine_, LoadWhat::everything, reading_of(run_.checkpoint.read));
        progressed_ = {header.step, header.samples, header.tokens};
        return say(fmt::format("resumed from {} at step {}", newest->string(), header.step));
      } catch (const Error& error) {  // the same on every rank
        if (error.code != Exit::data) throw;
        say(fmt::format("passed over: {}", error.what()));
      }
    }
    // To begin anew would write over what may still be saved.
    together(grid_.world(), [&] {
      require(!lead() || committed_steps(checkpoints()).empty(), Exit::data, "{}: none of its checkpoints can be read; move them away to begin anew",
              checkpoints().string());
    });
  }

  void open_reports() {
    const std::filesystem::path folder = run_.output;
    progress_.emplace(stdout, progress_style(stdout, run_.train.log_every));
    metrics_.emplace(folder / "metrics.jsonl");
    const auto resumed = progressed_.step > 0
                             ? std::optional<TensorBoard::Resumed>({progressed_.step, progressed_.samples})
                             : std::nullopt;
    tensorboard_.emplace(folder / "tensorboard", now(), resumed);
    OutputFile deck(folder / "deck.yaml");
    deck.append(deck_);
    deck.commit();
    const Layout& layout = grid_.layout();
    progress_->say(fmt::format("grid {} data x {} pipeline x {} tensor, {} parameters in {}, {:.1f} MiB on the fullest rank",
                               layout.size("data"), layout.size("pipeline"), layout.size("tensor"), parameter_count(run_.model),
                               run_.train.precision, memory_ / (1 << 20)));
    for (const std::string& note : training_->notes()) progress_->say(note);
    if (validation_)
      for (const std::string& note : validation_->notes()) progress_->say("validation: " + note);
  }

  // One optimizer step; nothing where the run went back instead.
  std::optional<StepReport> step() {
    auto t = timers_.scope("step");
    const Index number = progressed_.step + 1;
    watch_.beacon().step(number);
    fault_.strike(number);
    const Index batch = run_.batch_after(double(progressed_.tokens)), micro = run_.train.micro_batch;
    const Index first = RunConfig::next_sample(progressed_.samples, batch, skip_);
    const Index data = grid_.layout().size("data"), mine = grid_.coordinate("data");
    const auto source = [&](int i) {
      auto t = timers_.scope("data");
      grid_.tell("data", i);
      return read_micro_batch(*training_, first + (Index(i) * data + mine) * micro, micro, run_.train.length);
    };
    const double rate = run_.rate.at(number);
    const std::unique_ptr<Dump<T>> dump = dump_of(number, batch);
    const StepResult result = engine_.train(source, int(batch / (data * micro)), {number, rate, double(said()), loss_limit()});
    heard_ = int(result.heard);
    watch_.beacon().loss(result.loss);
    if (!result.applied && !leave_out(number, result, {first, first + batch})) return {};
    progressed_ = {number, first + batch, progressed_.tokens + batch * run_.train.length};
    if (result.applied) {
      losses_.push_back(result.loss);
      if (losses_.size() > spike_window) losses_.pop_front();
      if (number > furthest_) in_a_row_ = 0;
    }
    furthest_ = std::max(furthest_, number);

    StepReport report;
    report.step = number, report.steps = run_.train.steps;
    report.samples = progressed_.samples, report.tokens = progressed_.tokens, report.global_batch = batch;
    report.loss = result.loss, report.grad_norm = result.gradient_norm, report.learning_rate = rate;
    report.skipped = skipped_, report.nans = nans_;
    report.memory_bytes = Index(memory_);
    return report;
  }

  // Looks at the step that comes, where its numbers are wanted.
  std::unique_ptr<Dump<T>> dump_of(Index number, Index batch) {
    const std::vector<Index>& steps = run_.dump.steps;
    if (std::find(steps.begin(), steps.end(), number) == steps.end()) return nullptr;
    return std::make_unique<Dump<T>>(dumps(), header(number), run_.dump.what, engine_, batch, [&](const std::string& line) { progress_->say(line); });
  }

  // The highest loss that is no spike: known once there are enough losses to compare with.
  double loss_limit() const {
    if (run_.train.spike == 0 || losses_.size() < spike_window) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return run_.train.spike * sum / double(spike_window);
  }

  // What to do about a step that was not applied, the same on every rank: end the run, count the step as taken (true), or go back to where
  // the last checkpoint was saved and never take these samples again (false).
  bool leave_out(Index number, const StepResult& result, Span samples) {
    const std::string why = result.finite ? fmt::format("step {}: loss {:.4f} is above {:.4f}, {} times the mean of the last {} (train.spike)", number,
                                                        result.loss, loss_limit(), run_.train.spike, spike_window)
                                          : name_of_bad_number(number, result);
    ++skipped_, ++in_a_row_;
    if (!result.finite) ++nans_;
    require(run_.train.non_finite != NonFinite::stop, Exit::numeric, "{}", why);
    require(in_a_row_ <= run_.train.max_skips, Exit::numeric, "{}. It is the {}th batch in a row to be left out, more than train.max_skips", why, in_a_row_);
    const bool back = run_.train.non_finite == NonFinite::rollback;
    if (lead()) {
      progress_->say(fmt::format("{}. {}", why, back ? fmt::format("Back to step {} and on without samples {} to {}", saved_, samples.first, samples.last - 1)
                                                     : std::string("The update is left out on all ranks")));
      metrics_->line(nlohmann::ordered_json{{"kind", back ? "rollback" : "skip"}, {"time", now()}, {"step", number}, {"to", back ? saved_ : number},
                                            {"first_sample", samples.first}, {"samples", samples.size()}, {"why", why}}.dump());
    }
    if (!back) return true;
    finish_save();  // what it goes back to may still be on its way to disk
    skip_.insert(std::upper_bound(skip_.begin(), skip_.end(), samples, [](const Span& a, const Span& b) { return a.first < b.first; }), samples);
    progressed_ = {};
    losses_.clear();
    if (saved_ > 0) resume(saved_ + 1);
    else engine_.initialise(run_.train.seed);
    remember();
    return false;
  }

  std::string name_of_bad_number(Index number, const StepResult& result) {
    try {
      engine_.not_finite(number, result);
    } catch (const Error& error) {
      return error.what();
    }
  }

  void publish(StepReport& report) {
    if (!lead()) return;
    const double tokens = double(report.global_batch * run_.train.length);
    const double flops = training_flops(run_.model, run_.train.length, run_.optimizer.trained()) * tokens;
    report.time = now();
    report.tokens_per_second = tokens / report.seconds;
    report.tflops = flops / report.seconds / grid_.layout().ranks() / 1e12;
    report.mfu = report.tflops * 1e12 / peak_;
    progress_->show(report);
    metrics_->write(report);
    tensorboard_->write(report);
  }

  void validate() {
    auto t = timers_.scope("evaluate");
    watch_.beacon().phase("validate");
    ValidationReport report;
    const auto loss = validation_loss<T>(engine_, *validation_, run_.train.eval_batches, run_.batch_after(double(progressed_.tokens)), [&] {
      heard_ = hear();
      return heard_ != 0 && !finished();
    });
    if (!loss) return;  // the next life begins with it
    report.loss = *loss;
    report.step = progressed_.step, report.samples = progressed_.samples, report.time = now();
    if (!lead()) return;
    progress_->show(report);
    metrics_->write(report);
    tensorboard_->write(report);
  }

  template <class F>
  auto timed(const char* name, F&& f) {
    auto t = timers_.scope(name);
    return f();
  }

  void save() {
    watch_.beacon().phase("save");
    if (run_.train.check_replicas > 0 && !check_due()) check_replicas<T>(engine_, progressed_.step);
    tell(timed("checkpoint", [&] { return saver_->save(header(progressed_.step)); }));
    saved_ = progressed_.step;
  }

  // Returns when nothing is being written any more.
  void finish_save() {
    watch_.beacon().phase("save");
    tell(timed("checkpoint", [&] { return saver_->finish(); }));
  }

  // What became of a save, once it is committed.
  void tell(const std::optional<Saved>& saved) {
    if (!saved) return;
    timers_.add("checkpoint write", saved->write_seconds);
    longest_save_ = std::max(longest_save_.value_or(0), saved->write_seconds + saved->blocked_seconds);
    if (!lead()) return;
    const double megabytes = double(saved->bytes) / 1e6;
    progress_->say(fmt::format("checkpoint {}, {:.1f} MB in {} file{}, written in {:.3f} s ({:.1f} MB/s), blocked for {:.3f} s", saved->path.string(),
                               megabytes, saved->files, saved->files == 1 ? "" : "s", saved->write_seconds, megabytes / saved->write_seconds,
                               saved->blocked_seconds));
    metrics_->line(nlohmann::json{{"kind", "checkpoint"},
                                  {"time", now()},
                                  {"step", saved->step},
                                  {"bytes", saved->bytes},
                                  {"files", saved->files},
                                  {"write_seconds", saved->write_seconds},
                                  {"blocked_seconds", saved->blocked_seconds}}
                       .dump());
    for (const std::string& note : saved->notes) progress_->say(note);
  }

  CheckpointHeader header(Index step) const {
    CheckpointHeader h;
    h.deck = deck_;
    h.step = step, h.samples = progressed_.samples, h.tokens = progressed_.tokens;
    h.seed = run_.train.seed;
    h.provenance = provenance();
    return h;
  }

  static std::string provenance() {
    nlohmann::json json;
    for (const auto& [name, value] : build_facts()) json[name] = value;
    return json.dump();
  }

  void say_timers() {
    const auto mine = timers_.packed();
    const auto all = grid_.world().gather(mine);
    if (!lead()) return;
    progress_->say(Timers::table(timers_.names(), all));
    metrics_->line(Timers::json(timers_.names(), all));
  }

  std::filesystem::path dumps() const { return std::filesystem::path(run_.output) / "dumps"; }
  std::filesystem::path checkpoints() const { return std::filesystem::path(run_.output) / "checkpoints"; }

  RunConfig run_;
  std::string deck_;
  MPI_Comm world_;
  Timers timers_;
  Watch watch_;
  Walltime walltime_;
  Grid grid_;
  EngineConfig engine_config_;
  Capacity capacity_;
  Engine<T> engine_;
  Fault<T> fault_;
  std::optional<RunLock> lock_;  // the first rank's
  std::optional<Saver<T>> saver_;
  std::optional<Dataset> training_, validation_;
  Progressed progressed_;
  std::vector<Span> skip_;          // samples that no step takes
  Index saved_ = 0, furthest_ = 0;  // steps: last saved or resumed from, and highest taken
  Index skipped_ = 0, nans_ = 0, in_a_row_ = 0;
  int heard_ = 0;                   // why all ranks stop, 0: they go on
  bool validated_ = false;          // an earlier life has validated the step this one begins at
  double longest_step_ = 0;         // seconds
  std::optional<double> longest_save_;
  static constexpr std::size_t spike_window = 32;
  std::deque<double> losses_;       // of the last steps that were applied
  double peak_ = 0;    // flop/s of a rank
  double memory_ = 0;  // bytes of the rank that takes most
  std::optional<Progress> progress_;
  std::optional<JsonLines> metrics_;
  std::optional<TensorBoard> tensorboard_;
};

}  // namespace

MicroBatch read_micro_batch(const Dataset& dataset, Index first, Index batch, Index length) {
  MicroBatch m{batch, length, {}, {}, {}};
  for (Index b = 0; b < batch; ++b) {
    const Sample s = dataset.sample(first + b);
    m.tokens.insert(m.tokens.end(), s.tokens.begin(), s.tokens.end() - 1);
    if (!s.positions.empty()) m.positions.insert(m.positions.end(), s.positions.begin(), s.positions.end() - 1);
    const std::vector<Token> labels = s.labels(ignored_label);
    m.labels.insert(m.labels.end(), labels.begin(), labels.end());
  }
  return m;
}

template <class T>
std::optional<double> validation_loss(Engine<T>& engine, const Dataset& dataset, Index batches, Index batch, const std::function<bool()>& stop) {
  const Index data = engine.grid().layout().size("data"), mine = engine.grid().coordinate("data");
  const Index micro = engine.config().micro_batch, length = engine.config().length;
  double loss = 0;
  Index tokens = 0;
  for (Index i = 0; i < batches; ++i) {
    const auto source = [&](int m) { return read_micro_batch(dataset, i * batch + (Index(m) * data + mine) * micro, micro, length); };
    const auto [sum, count] = engine.evaluate(source, int(batch / (data * micro)));
    loss += sum, tokens += count;
    if (stop && i + 1 < batches && stop()) return {};
  }
  require(tokens > 0, Exit::data, "no token of the {} validation batches is to be predicted; take more of them, or longer sequences", batches);
  return loss / double(tokens);
}

template <class T>
double product_rate() {
  constexpr Index n = 768;
  using A = Acc<T>;  // bf16 products run in float here
  Device dev(false, 4 * n * n * Index(sizeof(A)));
  auto a = dev.scratch.tensor<A>(n, n), b = dev.scratch.tensor<A>(n, n), c = dev.scratch.tensor<A>(n, n);
  fill<A>(dev, flat(a), 0.5);
  fill<A>(dev, flat(b), 0.25);
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const Clock::time_point begin = Clock::now();
    gemm<A, A>(dev, Op::none, a, Op::transpose, b, c);
    dev.exec.fence();
    best = std::max(best, 2.0 * n * n * n / since(begin));
  }
  return best;
}

template <class T>
void train(const RunConfig& run, const std::string& deck, const TrainOptions& options, MPI_Comm world) {
  Trainer<T>(run, deck, options, world).run();
}

template void train<double>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);
template void train<float>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);
template void train<bf16>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);
template std::optional<double> validation_loss<double>(Engine<double>&, const Dataset&, Index, Index, const std::function<bool()>&);
template std::optional<double> validation_loss<float>(Engine<float>&, const Dataset&, Index, Index, const std::function<bool()>&);
template std::optional<double> validation_loss<bf16>(Engine<bf16>&, const Dataset&, Index, Index, const std::function<bool()>&);
template double product_rate<double>();
template double product_rate<float>();
template double product_rate<bf16>();

}  // namespace gyr
