// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/trainer.hpp"
#include "src/pretrained/weights.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/printable.hpp"
#include "modules/flops.hpp"
#include "src/base/json.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/run_identity.hpp"
#include "src/config/deck_changes.hpp"
#include "src/dump/dump.hpp"
#include "src/engine/plan.hpp"
#include "src/engine/product_rate.hpp"
#include "src/engine/replicas.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/summary.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/fault.hpp"
#include "src/train/feed.hpp"
#include "src/train/guard.hpp"
#include "src/train/recent_metrics.hpp"
#include "src/train/run_log.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Progress of a run. With weights and optimizer state it determines all further steps.
struct Progressed {
  Index step = 0, samples = 0, tokens = 0;
};

template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& run, const std::string& deck, const TrainOptions& options, MPI_Comm world)
      : run_(run), deck_(deck), world_(world), timers_(engine_timer_names()),
        watch_(run.watch, {rank(world), ranks(world), options.attempt}, [world](int code) { MPI_Abort(world, code); }),
        walltime_(run.train.walltime, options.begin), grid_(layout_of(run, ranks(world)), world, patience_of(world), &watch_.beacon()),
        engine_config_(engine_config(run, grid_.layout())), training_(checked_training_set()), validation_(checked_validation_set()),
        capacity_(predicted_capacity<T>(engine_config_, grid_.layout(), grid_.position(), [this] { planning(); })),
        engine_(engine_config_, grid_, &capacity_, timers_), folder_(options.folder ? *options.folder : own_folder_),
        fault_(run.fault, rank(world), options.attempt, engine_, watch_.beacon()), guard_(run.train), skip_(run.data.skip) {
    const bool fault_now = run.fault.any() && (run.fault.attempt < 0 || run.fault.attempt == options.attempt);
    require(!fault_now || run.fault.rank < grid_.layout().ranks(), Exit::config, "fault.rank = {}, but there are {} ranks", run.fault.rank,
            grid_.layout().ranks());
    collective_check(grid_.world(), [&] {
      if (!lead()) return;
      take_folder(options);
      identity_ = identity(options);
    });
    watch_.attach(run.output);
    if (options.resume) resume(options.accept_changes ? Changes::told : Changes::weighed);
    if (progressed_.step == 0) begin();
    saved_ = furthest_ = progressed_.step;
    const double peak = grid_.world().sum(product_rate<T>()) / grid_.world().size();
    saver_.emplace(checkpoints(), save_options(run), engine_);
    memory_ = grid_.world().max(double(capacity_.total() + saver_->buffer_bytes()));
    collective_check(grid_.world(), [&] {
      if (!lead()) return;
      write_identity(run.output, identity_);
      open_log(peak);
    });
    remember();
  }

  void run() {
    const Clock::time_point begin = Clock::now();
    const Index first = progressed_.step;
    stop_request_ = agreed_stop_request();
    if (validation_ && !stop_request_ && validation_due() && progressed_.step > 0 && !validated_) validate();  // it was stopped in the middle
    while (!stop_request_ && progressed_.step < run_.train.steps) {
      watch_.beacon().phase("train");
      const Clock::time_point start = Clock::now();
      const double waited = watch_.beacon().waited();
      std::optional<StepReport> report = step();
      if (!report) continue;  // went back
      report->seconds = since(start);
      watch_.beacon().stepped(report->seconds, watch_.beacon().waited() - waited);
      longest_step_ = std::max(longest_step_, report->seconds);
      report->seconds_left = since(begin) / double(progressed_.step - first) * double(run_.train.steps - progressed_.step);
      if (log_) log_->step(*report);
      tell(timed("checkpoint", [&] { return saver_->poll(); }));
      if (check_due()) check_replicas<T>(engine_, progressed_.step);
      if (stop_request_ == folder_lost_reason || (stop_request_ && !finished())) break;
      if (validation_ && validation_due()) validate();
      if (finished() || stop_request_ || (run_.checkpoint.every > 0 && progressed_.step % run_.checkpoint.every == 0)) save();
    }
    if (stop_request_ == folder_lost_reason || (stop_request_ && !finished() && saved_ != progressed_.step)) save();
    finish_save();
    if (finished()) require_folder();
    grid_.tell("report");
    say_timers();
    if (stop_request_ && !finished()) stopped();
  }

 private:
  // Deck and data are checked before the plan, which may take long.
  Dataset checked_training_set() {
    grid_.tell("data");
    require(!run_.data.prefixes.empty(), Exit::config, "data.prefixes is empty: name at least one PREFIX of PREFIX.bin and PREFIX.idx");
    Dataset set = training_set(run_);
    collective_check(grid_.world(), [&] {
      if (lead() && !run_.data.tokenizer.empty()) check_tokenizer();
    });
    return set;
  }
  std::optional<Dataset> checked_validation_set() const {
    if (run_.train.eval_every == 0) return {};
    return validation_set(run_);
  }

  // Called again and again while the plan is made.
  void planning() {
    watch_.beacon().advance();
    if (const int reason = StopSignals::caught()) fail(Exit::again, "stopped by {} before the first step, nothing was begun", stop_reason(reason));
  }

  void check_tokenizer() const {
    const Index size = Tokenizer::load(run_.data.tokenizer).size();
    require(size <= run_.model.vocab_size, Exit::data,
            "data.tokenizer {}: {} tokens, and model.vocab_size is {}; raise that, or name the model's tokenizer", run_.data.tokenizer, size,
            run_.model.vocab_size);
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

  // The stop request of this rank, 0: none; and the one that all ranks agree on, which takes a reduction.
  int own_stop_request() const {
    if (folder_.lost()) return folder_lost_reason;
    if (walltime_.over(longest_step_, longest_save_)) return walltime_reason;
    return watch_.stop_file_seen() ? stop_file_reason : StopSignals::caught();
  }
  int agreed_stop_request() { return int(grid_.world().max(own_stop_request())); }

  [[noreturn]] void stopped() {
    collective_check(grid_.world(), [&] {
      std::error_code ignored;
      if (lead()) std::filesystem::remove(stop_file(run_.output), ignored);  // it has been followed
    });
    fail(Exit::again, "stopped by {} after step {} of {}, everything saved; go on with --resume", stop_reason(stop_request_), progressed_.step,
         run_.train.steps);
  }

  void take_folder(const TrainOptions& options) {
    const auto say = [](const std::string& line) {
      std::printf("%s\n", printable(line).c_str());
      std::fflush(stdout);
    };
    folder_.take(run_.output, {options.take_over, run_.watch.lock_patience, say}, options.supervisor);
    if (!folder_.note().empty()) say(folder_.note());
    std::error_code error;
    remove_unfinished(checkpoints());
    remove_unfinished(dumps());
    std::filesystem::remove(heartbeat_path(run_.output), error);  // of an earlier attempt, which may have had more ranks
    require(!error, Exit::io, "{}: cannot be removed: {}", heartbeat_path(run_.output).string(), error.message());
  }

  // Which run this is: the folder's, or a new one where it holds no checkpoints any more.
  RunIdentity identity(const TrainOptions& options) {
    if (options.anew)
      if (const auto aside = set_aside(run_.output))
        std::printf("what another run has left in %s is in %s now\n", run_.output.c_str(), aside->c_str());
    const auto steps = committed_steps(checkpoints());
    require(options.resume || steps.empty(), Exit::usage,
            "{}: holds checkpoints of another run, the last of step {}; --resume goes on from them, --anew sets them aside, another output.folder "
            "leaves them alone",
            checkpoints().string(), steps.empty() ? 0 : steps.back());
    const auto known = options.resume ? identity_in(run_.output) : std::nullopt;
    return known ? *known : RunIdentity::drawn();
  }

  static SaveOptions save_options(const RunConfig& run) {
    const CheckpointConfig& c = run.checkpoint;
    return {files_of(c.files), {c.deflate, c.verify}, {int(c.keep), c.keep_every}, c.async};
  }

  // What the first rank alone has read: which run this is, and what earlier attempts have left in metrics.jsonl that matters here, the losses
  // before this step and whether it was validated.
  void remember() {
    constexpr std::size_t before_losses = 3;
    std::vector<double> found(before_losses + Guard::window, std::numeric_limits<double>::quiet_NaN());
    if (lead()) {
      const std::uint64_t id = sum_of_hex(identity_.id, run_.output);
      found[0] = double(id >> 32), found[1] = double(id & 0xffffffffu);  // exact in a double
    }
    if (lead() && progressed_.step > 0) {
      const RecentMetrics recent = recent_metrics(std::filesystem::path(run_.output) / "metrics.jsonl", progressed_.step, Guard::window);
      found[2] = recent.validated;
      std::copy(recent.losses.begin(), recent.losses.end(), found.begin() + before_losses);
    }
    const std::vector<double> all = grid_.world().gather(found);
    identity_.id = hex(std::uint64_t(all[0]) << 32 | std::uint64_t(all[1]));
    validated_ = all[2] == 1;
    for (std::size_t i = before_losses; i < found.size(); ++i)
      if (!std::isnan(all[i])) guard_.remember(all[i]);
  }

  // Weights drawn, or those of a model that exists; the optimizer has seen nothing.
  void begin() {
    const std::string& from = run_.train.init_from;
    if (from.empty()) return engine_.initialise(run_.train.seed);
    load_weights(from, engine_);
    collective_check(grid_.world(), [&] {
      if (lead()) companions_ = companions_of(from);  // who writes manifests
    });
    if (lead()) std::printf("weights from %s\n", printable(from).c_str());
  }

  // The deck must describe the model that was saved. Other shapes are refused first, because --accept-changes does not help there.
  void require_same_model(const std::vector<DeckChange>& changed, const std::filesystem::path& checkpoint) {
    if (!changes_function(changed)) return;
    collective_check(grid_.world(), [&] {
      if (lead()) check_shapes<T>(checkpoint, run_.model);
    });
    require_same_function(changed, checkpoint.filename().string());
  }

  enum class Changes { weighed, told, known };

  // From the newest checkpoint of this run that is whole to its last tensor; damaged ones are named and passed over.
  void resume(Changes changes, std::int64_t before = std::numeric_limits<std::int64_t>::max()) {
    watch_.beacon().phase("load");
    const auto say = [&](const std::string& note) {
      if (lead() && !note.empty()) std::printf("%s\n", printable_lines(note).c_str());
    };
    while (const auto newest = newest_checkpoint(checkpoints(), grid_.world(), say, before, &identity_)) {
      const CheckpointHeader saved = read_header(*newest);
      before = saved.step;
      const std::string name = newest->filename().string();
      const std::vector<DeckChange> changed = changes == Changes::known ? std::vector<DeckChange>() : deck_changes(saved.deck, deck_);
      say(text_of(changed, name));
      try {
        if (changes == Changes::weighed) require_same_model(changed, *newest);
        const CheckpointHeader header = load_checkpoint<T>(*newest, engine_, LoadWhat::everything, reading_of(run_.checkpoint.read));
        progressed_ = {header.step, header.samples, header.tokens};
        companions_ = header.companions;
        return say(fmt::format("resumed from {} at step {}", newest->string(), header.step));
      } catch (const Error& error) {  // the same on every rank
        if (error.code != Exit::data) throw;
        say(fmt::format("passed over: {}", error.what()));
      }
    }
    // Starting over would overwrite checkpoints that may still be repaired.
    collective_check(grid_.world(), [&] {
      require(!lead() || committed_steps(checkpoints()).empty(), Exit::data,
              "{}: none of its checkpoints can be read and is of this run; --anew sets them aside and begins anew", checkpoints().string());
    });
  }

  void open_log(double peak) {
    std::optional<TensorBoard::Resumed> resumed;
    if (progressed_.step > 0) resumed = {progressed_.step, progressed_.samples};
    const Layout& layout = grid_.layout();
    log_.emplace(run_, deck_, identity_.id, resumed, peak, layout.ranks());
    log_->say(fmt::format("grid {} data x {} pipeline x {} tensor, {} parameters in {}, {:.1f} MiB on the fullest rank", layout.size("data"),
                          layout.size("pipeline"), layout.size("tensor"), parameter_count(run_.model), run_.train.precision, memory_ / (1 << 20)));
    for (const std::string& note : training_->notes()) log_->say(note);
    if (validation_)
      for (const std::string& note : validation_->notes()) log_->say("validation: " + note);
  }

  // One optimizer step; nothing where the run went back instead.
  std::optional<StepReport> step() {
    auto t = timers_.scope("step");
    const Index number = progressed_.step + 1;
    watch_.beacon().step(number);
    fault_.strike(number);
    const Index batch = run_.batch_after(double(progressed_.tokens));
    const Index first = RunConfig::next_sample(progressed_.samples, batch, skip_);
    const auto source = [&, read = feed(*training_, first, engine_config_, grid_)](int i) {
      auto t = timers_.scope("data");
      grid_.tell("data", i);
      return read(i);
    };
    const int micros = int(batch / (grid_.layout().size("data") * run_.train.micro_batch_size));
    const double lr = run_.lr.at(number);
    const std::unique_ptr<Dump<T>> dump = dump_of(number, batch);
    const StepResult result = engine_.train(source, micros, {number, lr, double(own_stop_request()), guard_.loss_limit()});
    stop_request_ = int(result.stop_request);
    watch_.beacon().loss(result.loss);
    if (!result.applied && !leave_out(number, result, {first, first + batch})) return {};
    progressed_ = {number, first + batch, progressed_.tokens + batch * run_.train.seq_length};
    if (result.applied) guard_.applied(result.loss, number > furthest_);
    furthest_ = std::max(furthest_, number);

    StepReport report;
    report.step = number, report.steps = run_.train.steps;
    report.samples = progressed_.samples, report.tokens = progressed_.tokens, report.global_batch_size = batch;
    report.loss = result.loss, report.grad_norm = result.gradient_norm, report.learning_rate = lr;
    report.skipped = guard_.skipped(), report.nans = guard_.not_finite();
    report.memory_bytes = Index(memory_);
    return report;
  }

  // The hook that dumps this step, where the deck asks for it.
  std::unique_ptr<Dump<T>> dump_of(Index number, Index batch) {
    const std::vector<Index>& steps = run_.dump.steps;
    if (std::find(steps.begin(), steps.end(), number) == steps.end()) return nullptr;
    return std::make_unique<Dump<T>>(dumps(), header(number), run_.dump.what, engine_, batch, [&](const std::string& line) { log_->say(line); });
  }

  // What to do about a step that was not applied, the same on every rank: end the run, count the step as taken (true), or go back to where
  // the last checkpoint was saved and never take these samples again (false).
  bool leave_out(Index number, const StepResult& result, const Span& samples) {
    const std::string why = result.finite ? guard_.spike(number, result.loss) : name_of_bad_number(number, result);
    const bool back = guard_.bad(result.finite, why) == Guard::Verdict::rollback;
    if (log_) log_->left_out(number, samples, why, back ? std::optional(saved_) : std::nullopt);
    if (back) go_back(samples);
    return !back;
  }

  void go_back(const Span& samples) {
    finish_save();  // what it goes back to may still be on its way to disk
    skip_.insert(std::upper_bound(skip_.begin(), skip_.end(), samples, [](const Span& a, const Span& b) { return a.first < b.first; }), samples);
    progressed_ = {};
    guard_.forget();
    if (saved_ > 0) resume(Changes::known, saved_ + 1);
    else begin();
    remember();
  }

  std::string name_of_bad_number(Index number, const StepResult& result) {
    try {
      engine_.not_finite(number, result);
    } catch (const Error& error) {
      return error.what();
    }
  }

  void validate() {
    auto t = timers_.scope("evaluate");
    watch_.beacon().phase("validate");
    ValidationReport report;
    const auto loss = validation_loss<T>(engine_, *validation_, run_.train.eval_batches, run_.batch_after(double(progressed_.tokens)), [&] {
      stop_request_ = agreed_stop_request();
      return stop_request_ != 0;
    });
    if (!loss) {  // the next attempt begins with it
      if (log_ && finished())
        log_->say(fmt::format("told to stop by {}: all steps are done, the last validation is left to --resume", stop_reason(stop_request_)));
      return;
    }
    require(std::isfinite(*loss), Exit::numeric,
            "step {}: the validation loss is {}; the weights are not saved. Go on from a checkpoint before it, with a lower optimizer.lr",
            progressed_.step, *loss);
    report.loss = *loss;
    report.step = progressed_.step, report.samples = progressed_.samples;
    if (log_) log_->validation(report);
  }

  template <class F>
  auto timed(const char* name, F&& f) {
    auto t = timers_.scope(name);
    return f();
  }

  // A save would create a deleted folder again.
  void require_folder() {
    collective_check(grid_.world(), [&] { folder_.require_held(); });
  }

  void save() {
    watch_.beacon().phase("save");
    require_folder();
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
    if (log_) log_->saved(*saved);
  }

  CheckpointHeader header(Index step) const {
    CheckpointHeader h;
    h.deck = deck_;
    h.step = step, h.samples = progressed_.samples, h.tokens = progressed_.tokens;
    h.seed = run_.train.seed;
    h.provenance = provenance();
    h.run = identity_.id;
    h.companions = companions_;
    return h;
  }

  static std::string provenance() {
    Json json;
    for (const auto& [name, value] : build_facts()) json[name] = value;
    return json_text(json);
  }

  void say_timers() {
    const auto mine = timers_.packed();
    const auto all = grid_.world().gather(mine);
    if (log_) log_->timers(timers_.names(), all);
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
  std::optional<Dataset> training_, validation_;
  Capacity capacity_;
  Engine<T> engine_;
  RunFolder own_folder_;
  RunFolder& folder_;
  Fault<T> fault_;
  std::optional<Saver<T>> saver_;
  RunIdentity identity_;  // complete on the first rank; the others know the id only
  Progressed progressed_;
  Companions companions_;  // of the model that the run started from
  Guard guard_;
  std::vector<Span> skip_;          // samples that no step takes
  Index saved_ = 0, furthest_ = 0;  // steps: last saved or resumed from, and highest taken
  int stop_request_ = 0;            // why all ranks stop, 0: they go on
  bool validated_ = false;          // an earlier attempt has validated the step this one begins at
  double longest_step_ = 0;         // seconds
  std::optional<double> longest_save_;
  double memory_ = 0;          // bytes of the rank that takes most
  std::optional<RunLog> log_;  // the first rank's
};

}  // namespace

template <class T>
void train(const RunConfig& run, const std::string& deck, const TrainOptions& options, MPI_Comm world) {
  Trainer<T>(run, deck, options, world).run();
}

template void train<double>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);
template void train<float>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);
template void train<bf16>(const RunConfig&, const std::string&, const TrainOptions&, MPI_Comm);

}  // namespace gyr
