// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/supervisor.hpp"

#include "kernels/base/printable.hpp"
#include "src/base/json.hpp"
#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/checkpoint/run_identity.hpp"
#include "src/history/useful_time.hpp"
#include "src/job/run_lock.hpp"
#include "src/report/summary.hpp"
#include "src/supervisor/observer.hpp"
#include "src/supervisor/policy.hpp"
#include "src/supervisor/process.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/outcome.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Supervisor {
 public:
  Supervisor(const SupervisedRun& run, const SuperviseOptions& options)
      : run_(run), options_(options), lock_(taken_folder()),
        ranks_(options.ranks), policy_{options.ranks, run.model_ranks, options.spares, run.limits.max_restarts,
                                       [this](int most) { return data_axis_up_to(most); }} {
    if (!lock_->note().empty()) print(lock_->note());
  }

  int run() {
    do {
      attempts_.push_back(run_attempt());
      print_attempt(attempts_.back());
      write_status("running");
    } while (go_on());
    end();
    return attempts_.back().code;
  }

 private:
  std::filesystem::path output() const { return run_.output; }

  // A run that was started without gyrfalcon run holds the ranks' lock. If no supervisor lock file exists yet, the
  // ranks' lock is taken first, so that this process leaves nothing in the folder of a running job.
  std::unique_ptr<RunLock> taken_folder() const {
    const LockSettings settings{options_.take_over, run_.lock_patience, print};
    std::optional<RunLock> rank_lock;
    if (!std::filesystem::exists(output() / RunLock::of_supervisor)) rank_lock.emplace(output(), settings);
    auto mine = std::make_unique<RunLock>(output(), settings, RunLock::of_supervisor);
    if (!rank_lock) rank_lock.emplace(output(), settings);
    return mine;
  }
  Index newest() const { return std::max(run_.begin, newest_step_of_run(output())); }
  static void print(const std::string& line) {
    std::printf("gyrfalcon run: %s\n", printable_line(line).c_str());
    std::fflush(stdout);
  }

  Words command(int number) const {
    Words program{options_.program, "train",
                  options_.deck,    "--resume",
                  "--attempt",      std::to_string(number),
                  "--exit-record",  new_exit_record_path(output(), number),
                  "--supervisor",   lock_->token()};
    if (options_.accept_changes) program.push_back("--accept-changes");
    program.insert(program.end(), options_.overrides.begin(), options_.overrides.end());
    if (ranks_ != options_.ranks) program.push_back(fmt::format("parallel.data={}", data_axis()));
    if (run_.walltime > 0) program.push_back(fmt::format("train.walltime={}", std::max(0.01, (run_.walltime - since(begin_)) / 60)));
    return launch_command(options_.launcher, ranks_, program);
  }
  int data_axis() const { return ranks_ / run_.model_ranks; }
  int data_axis_up_to(int most) const {
    const int full = options_.ranks / run_.model_ranks;
    if (most >= full) return full;
    return run_.permuted ? 0 : data_axis_of(run_, most);  // a permutation names every rank, so the data axis cannot shrink
  }

  Attempt run_attempt() {
    Attempt attempt;
    attempt.number = int(attempts_.size()), attempt.ranks = ranks_, attempt.from = newest();
    attempt.begun = double(wall_nanoseconds()) * 1e-9;
    const std::string previous = outcome_text(output());
    const Clock::time_point begin = Clock::now();
    Observer observer(run_.limits, output(), attempt.number);
    std::optional<Finding> finding;
    std::optional<int> code;
    {
      Process process(command(attempt.number));
      while (!(code = process.attend(0.05)) && !(finding = observer.look())) {
        forward(process);
        for (const std::string& slow : observer.slow_ranks()) print(slow);
      }
      if (code) finding = observer.finding_of_ranks();
      if (finding) print(finding->verdict.text + "; ending this attempt");
      process.end(0.5);
    }
    attempt.seconds = since(begin);
    attempt.to = newest(), attempt.reached = std::max(attempt.from, observer.step());
    for (const auto& [rank, words] : observer.slow()) attempt.slow.push_back(words);
    judge_end(attempt, code, finding, previous, observer.hosts() > 0);
    attempt.hosts = observer.hosts();
    if (attempt.host.empty()) attempt.host = observer.host(attempt.rank);
    return attempt;
  }

  // Launchers pass SIGUSR1 to their ranks, but SIGHUP ends the launchers themselves.
  static int forwarded(int number) { return number == SIGHUP ? SIGUSR1 : number; }
  // Forwards each signal that this process receives to the launcher, but only one SIGINT: launchers kill their ranks at the
  // second, even while these save.
  void forward(Process& process) {
    for (const int number : StopSignals::numbers)
      for (int& count = forwarded_[number]; count < StopSignals::count(number); ++count) {
        if (count == 0) print(fmt::format("{}: the ranks save after the present step and end; a save may take a while", stop_reason(number)));
        if (number != SIGINT || count == 0) process.signal(forwarded(number));
        else if (count == 1) print("waiting until the ranks have saved and ended; SIGQUIT (Ctrl-\\) ends this program at once, without its table");
      }
  }

  // Determines how the attempt ended: by a finding of the observer, or by the run's own status.json, or by its exit
  // code. `previous`: status.json before the attempt, which a start that is refused leaves unchanged.
  void judge_end(Attempt& attempt, std::optional<int> code, const std::optional<Finding>& finding, const std::string& previous, bool began) const {
    const auto outcome = outcome_text(output()) == previous ? std::nullopt : read_outcome(output());
    if (finding) {
      attempt.state = finding->state, attempt.code = finding->code;
      attempt.rank = finding->verdict.rank, attempt.host = finding->host, attempt.culprit = finding->verdict.text;
    } else if (outcome && outcome->state != "running") {
      attempt.state = outcome->state, attempt.code = outcome->code;
      attempt.rank = outcome->rank, attempt.culprit = outcome->message;
    } else if (code && is_final(*code)) {
      attempt.state = "refused", attempt.code = *code;
    } else {
      judge_launcher(attempt, code.value_or(int(Exit::internal)), began);
    }
  }

  // Judges an attempt whose ranks left no record of its end. `began`: at least one of them has sent a heartbeat.
  void judge_launcher(Attempt& attempt, int code, bool began) const {
    const bool ours = code != 0 && std::string_view(meaning(Exit(code))) != "unknown";
    attempt.state = "died";
    attempt.code = ours ? code : int(began ? Exit::internal : Exit::device);
    attempt.culprit = fmt::format("the launcher ended with exit code {}{}, and {}", code, ours ? fmt::format(" ({})", meaning(Exit(code))) : "",
                                  began ? "no rank left an exit record; see the messages above"
                                        : fmt::format("no rank has begun; see the messages above, and try {} by hand",
                                                      fmt::join(launch_command(options_.launcher, ranks_, {"hostname"}), " ")));
  }

  // Tests the ranks of the next attempt if supervise.selftest demands it. Returns the reason not to restart, or an empty text.
  std::string failed_selftest(const Attempt& attempt, int ranks) {
    const bool suspects = attempt.lost_a_rank() || !attempt.slow.empty();
    if (run_.limits.selftest == SelftestWhen::never || (run_.limits.selftest == SelftestWhen::lost && !suspects)) return "";
    print("testing the ranks before the restart (supervise.selftest)");
    Process process(launch_command(options_.launcher, ranks, {options_.program, "selftest"}));
    std::optional<int> code;
    while (!(code = process.attend(0.05))) forward(process);
    return *code == 0 ? "" : fmt::format("the self-test ended with exit code {}; its table names the hosts to leave out", *code);
  }

  bool go_on() {
    const Attempt& attempt = attempts_.back();
    Decision next = decide(attempts_, policy_);
    if (next.go_on && StopSignals::caught() != 0) next = {false, 0, "a signal stopped the run"};
    if (next.go_on && run_.walltime > 0 && since(begin_) >= run_.walltime) next = {false, 0, "train.walltime is used up"};
    try {
      if (next.go_on) lock_->require_held();  // otherwise an attempt would create a lost folder again
    } catch (const Error& lost) {
      next = {false, 0, lost.what()};
    }
    if (next.go_on)
      if (const std::string why = failed_selftest(attempt, next.ranks); !why.empty()) next = {false, 0, why};
    if (!next.why.empty()) print((next.go_on ? "" : "giving up: ") + next.why);
    if (!next.go_on && attempt.state != "done" && attempt.state != "stopped") gave_up_ = next.why;
    if (next.go_on) ranks_ = next.ranks;
    return next.go_on;
  }

  static std::string checkpoint_text(Index step) { return step == 0 ? "none" : fmt::format("step {}", step); }

  static void print_attempt(const Attempt& attempt) {
    print(fmt::format("attempt {} on {}: {} after {} in step {}, newest checkpoint: {}{}", attempt.number, counted(attempt.ranks, "rank"),
                      attempt.state, time_text(attempt.seconds), attempt.reached, checkpoint_text(attempt.to),
                      attempt.culprit.empty() ? "" : "; " + attempt.culprit));
  }

  UsefulTime useful() const { return useful_time(output() / "metrics.jsonl", epoch_); }

  void end() {
    Table table({{"attempt", true},
                 {"ranks", true},
                 {"checkpoint before", true},
                 {"checkpoint after", true},
                 {"step reached", true},
                 {"time", true},
                 {"exit code", true},
                 {"end"},
                 {"cause", false, 80}});
    for (const Attempt& attempt : attempts_)
      table.row({std::to_string(attempt.number), std::to_string(attempt.ranks), checkpoint_text(attempt.from), checkpoint_text(attempt.to),
                 std::to_string(attempt.reached), time_text(attempt.seconds), std::to_string(attempt.code), attempt.state, attempt.culprit});
    const UsefulTime time = useful();
    std::printf("%s", table.str().c_str());
    print(fmt::format("useful time {}: {} in steps that count, of {} elapsed between the first and the last record; {}", time.text(),
                      time_text(time.useful()), time_text(time.elapsed()), counted(Index(attempts_.size()) - 1, "restart")));
    write_status(attempts_.back().state);
    std::printf("%s\n", last_line(Exit(attempts_.back().code)).c_str());
  }

  bool has_run() const {
    std::error_code ignored;
    return std::filesystem::exists(output() / "supervisor.json", ignored) || std::filesystem::exists(status_path(output()), ignored);
  }

  // A start that was refused changes nothing in the folder of an earlier run.
  void write_status(const std::string& state) const {
    if (attempts_.front().state == "refused" && had_run_) {
      lock_->remove_if_created();
      return;
    }
    Json attempts = Json::array();
    for (const Attempt& attempt : attempts_)
      attempts.push_back({{"attempt", attempt.number},
                          {"begun", attempt.begun},
                          {"ranks", attempt.ranks},
                          {"from", attempt.from},
                          {"to", attempt.to},
                          {"reached", attempt.reached},
                          {"seconds", attempt.seconds},
                          {"code", attempt.code},
                          {"state", attempt.state},
                          {"rank", attempt.rank},
                          {"host", attempt.host},
                          {"culprit", attempt.culprit},
                          {"slow", attempt.slow}});
    const Json json = {{"state", state},
                       {"code", attempts_.back().code},
                       {"gave_up", gave_up_},
                       {"restarts", attempts_.size() - 1},
                       {"effective_time_ratio", useful().ratio()},
                       {"seconds", since(begin_)},
                       {"attempts", attempts}};
    try {
      lock_->require_held();
      OutputFile file(output() / "supervisor.json");
      file.append(json_text(json, 2) + "\n");
      file.commit();
    } catch (const Error& error) {  // supervisor.json is optional: the printed table contains the same
      print(error.what());
    }
  }

  const SupervisedRun& run_;
  const SuperviseOptions& options_;
  const StopSignals signals_{SecondInterrupt::counted};
  const std::unique_ptr<RunLock> lock_;
  const bool had_run_ = has_run();  // before this program wrote to the folder
  const Clock::time_point begin_ = Clock::now();
  const double epoch_ = double(wall_nanoseconds()) * 1e-9;
  int ranks_;
  std::map<int, int> forwarded_;  // number of forwarded signals, by signal
  const Policy policy_;
  std::vector<Attempt> attempts_;
  std::string gave_up_;
};

}  // namespace

int data_axis_of(const SupervisedRun& run, int most) {
  for (int data = most; data > 0; --data) {
    bool splits = data % run.data_grain == 0;
    for (const Index batch : run.batches) splits = splits && batch % (data * run.micro_batch_size) == 0;
    if (splits) return data;
  }
  return 0;
}

int supervise(const SupervisedRun& run, const SuperviseOptions& options) {
  require(options.ranks % run.model_ranks == 0, Exit::config, "-n {}: not a multiple of parallel.pipeline x parallel.context x parallel.tensor = {}",
          options.ranks, run.model_ranks);
  launch_command(options.launcher, options.ranks, {});  // refuses a wrong launcher before it changes the folder
  std::error_code error;
  std::filesystem::create_directories(run.output, error);
  require(!error, Exit::io, "{}: cannot be created: {}; choose another output.folder", run.output, error.message());
  newest_step_of_run(run.output);  // refuses a damaged run.json before it writes a lock
  return Supervisor(run, options).run();
}

}  // namespace gyr
