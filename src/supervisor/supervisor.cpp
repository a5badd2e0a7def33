// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/supervisor.hpp"

#include <fstream>

#include "kernels/printable.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/data/output_file.hpp"
#include "src/report/json.hpp"
#include "src/report/summary.hpp"
#include "src/report/table.hpp"
#include "src/supervisor/observer.hpp"
#include "src/supervisor/process.hpp"
#include "src/watch/obituary.hpp"
#include "src/watch/outcome.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// From one start of the run to its end.
struct Life {
  int number = 0, ranks = 0;
  Index from = 0, to = 0, reached = 0;  // newest checkpoint before and after; step under way at the end
  double seconds = 0;
  int code = 0;
  std::string state;    // done | stopped | lost | hung | stale | failed | died
  int rank = -1;        // that is to blame
  std::string culprit;  // in words
  std::vector<std::string> slow;
  bool by_signal = false;
};

class Supervisor {
 public:
  Supervisor(const RunConfig& run, const SuperviseOptions& options) : run_(run), options_(options), ranks_(options.ranks) {}

  int run() {
    do {
      lives_.push_back(live());
      tell(lives_.back());
      write_status("running");
    } while (go_on());
    end();
    return lives_.back().code;
  }

 private:
  std::filesystem::path output() const { return run_.output; }
  Index newest() const {
    const auto steps = committed_steps(output() / "checkpoints");
    return steps.empty() ? 0 : steps.back();
  }
  static void say(const std::string& line) {
    std::printf("gyrfalcon run: %s\n", printable(line).c_str());
    std::fflush(stdout);
  }

  Words command(int number) const {
    Words program{options_.program, "train", options_.deck, "--resume", "--life", std::to_string(number), "--obituary", obituary_path(output(), number)};
    program.insert(program.end(), options_.overrides.begin(), options_.overrides.end());
    if (ranks_ != options_.ranks) program.push_back(fmt::format("parallel.data={}", data_axis()));
    if (run_.train.walltime > 0) program.push_back(fmt::format("train.walltime={}", std::max(0.01, (run_.train.walltime - since(begin_)) / 60)));
    return launch_command(options_.launcher, ranks_, program);
  }
  int model_ranks() const { return run_.parallel.pipeline * run_.parallel.tensor; }
  int data_axis() const { return ranks_ / model_ranks(); }

  Life live() {
    Life life;
    life.number = int(lives_.size()), life.ranks = ranks_, life.from = newest();
    std::error_code ignored;
    std::filesystem::remove(status_path(output()), ignored);  // of the life before
    const Clock::time_point begin = Clock::now();
    Observer observer(run_.supervise, output(), life.number);
    std::optional<Finding> finding;
    std::optional<int> code;
    {
      Process process(command(life.number));
      while (!(code = process.attend(0.05)) && !(finding = observer.look())) {
        forward(process);
        for (const std::string& slow : observer.slow_ranks()) say(slow);
      }
      if (code) finding = observer.told();
      if (finding) say(finding->verdict.text + "; ending this life");
      process.end(0.5);
    }
    life.seconds = since(begin);
    life.to = newest(), life.reached = observer.step();
    for (const auto& [rank, words] : observer.slow()) life.slow.push_back(words);
    judge_end(life, code, finding);
    return life;
  }

  // A signal to this process is one to the ranks.
  void forward(Process& process) {
    const int caught = StopSignals::caught();
    if (caught == forwarded_) return;
    forwarded_ = caught;
    process.signal(caught);
  }

  // What has ended the life counts: a finding, or the run itself, in its own words or by its exit code.
  void judge_end(Life& life, std::optional<int> code, const std::optional<Finding>& finding) const {
    const auto outcome = read_outcome(output());
    if (finding) {
      life.state = finding->state, life.code = finding->code;
      life.rank = finding->verdict.rank, life.culprit = finding->verdict.text;
      life.by_signal = finding->state == "lost";
    } else if (outcome && outcome->state != "running") {
      life.state = outcome->state, life.code = outcome->code;
      life.rank = outcome->rank, life.culprit = outcome->message;
    } else if (code && is_final(*code)) {  // before there was a folder to say it in
      life.state = "failed", life.code = *code;
    } else {
      life.state = "died";
      life.code = code.value_or(int(Exit::internal));
      if (life.code == 0) life.code = int(Exit::internal);  // without having said that it was done
      life.culprit = fmt::format("the launcher ended with code {}, and no rank has left word of its end", life.code);
    }
  }

  // Codes that another start would end with too.
  static bool is_final(int code) {
    for (const Exit e : {Exit::usage, Exit::data, Exit::missing, Exit::config})
      if (code == int(e)) return true;
    return false;
  }

  bool go_on() {
    const Life& life = lives_.back();
    if (life.state == "done" || life.state == "stopped") return false;
    if (is_final(life.code)) return give_up(fmt::format("another start would end the same way ({})", meaning(Exit(life.code))));
    if (StopSignals::caught() != 0) return give_up("it was told to stop");
    if (Index(lives_.size()) > run_.supervise.max_restarts) return give_up(fmt::format("{} restarts (supervise.max_restarts)", lives_.size() - 1));
    if (lives_.size() > 1 && life.to == life.from && lives_[lives_.size() - 2].to == lives_[lives_.size() - 2].from)
      return give_up(fmt::format("two lives without a new checkpoint: no progress since step {}", life.to));
    if (run_.train.walltime > 0 && since(begin_) >= run_.train.walltime) return give_up("train.walltime is over");
    return replace_lost();
  }

  bool give_up(const std::string& why) {
    say("gives up: " + why);
    gave_up_ = why;
    return false;
  }

  // A lost rank is replaced while there are spares; without, and where the same rank is lost again, the run goes on with fewer.
  bool replace_lost() {
    const Life& life = lives_.back();
    if (life.rank < 0 || life.state == "failed") return true;
    const bool again = lives_.size() > 1 && life.by_signal && lives_[lives_.size() - 2].by_signal && lives_[lives_.size() - 2].rank == life.rank &&
                       lives_[lives_.size() - 2].ranks == life.ranks;
    const int used = spares_used_;
    if (!again && (options_.spares < 0 || used < options_.spares)) {
      ++spares_used_;
      return true;
    }
    const int data = run_.parallel.permutation.empty() ? smaller_data_axis(run_, data_axis()) : 0;
    if (data == 0)
      return give_up(fmt::format("rank {} is lost, there is no spare, and the batch of {} sequences does not split on fewer than {} data ranks{}", life.rank,
                                 run_.largest_batch(), data_axis(), run_.parallel.permutation.empty() ? "" : " of this parallel.permutation"));
    say(fmt::format("rank {} is lost{}: from {} to {} data ranks, the same batch in more micro-batches", life.rank,
                    again ? " for the second time" : " and there is no spare", data_axis(), data));
    ranks_ = data * model_ranks();
    return true;
  }

  static void tell(const Life& life) {
    say(fmt::format("life {} on {} ranks: {} after {:.1f} s in step {}, checkpoint at {}{}", life.number, life.ranks, life.state, life.seconds, life.reached,
                    life.to, life.culprit.empty() ? "" : "; " + life.culprit));
  }

  double ratio() const { return useful_seconds(output() / "metrics.jsonl", epoch_) / std::max(1e-9, since(begin_)); }

  void end() {
    Table table({{"life", true}, {"ranks", true}, {"from", true}, {"to", true}, {"reached", true}, {"s", true}, {"code", true}, {"end"}, {"culprit", false, 80}});
    for (const Life& life : lives_)
      table.row({std::to_string(life.number), std::to_string(life.ranks), std::to_string(life.from), std::to_string(life.to), std::to_string(life.reached),
                 fmt::format("{:.1f}", life.seconds), std::to_string(life.code), life.state, life.culprit});
    const double wall = since(begin_), useful = useful_seconds(output() / "metrics.jsonl", epoch_);
    std::printf("%s", table.str().c_str());
    say(fmt::format("effective training time {:.3f}: {:.1f} s of steps that count in {:.1f} s, {} restarts", useful / wall, useful, wall, lives_.size() - 1));
    write_status(lives_.back().state);
    std::printf("%s\n", last_line(Exit(lives_.back().code)).c_str());
  }

  void write_status(const std::string& state) const {
    Json lives = Json::array();
    for (const Life& life : lives_)
      lives.push_back({{"life", life.number}, {"ranks", life.ranks}, {"from", life.from}, {"to", life.to}, {"reached", life.reached},
                       {"seconds", life.seconds}, {"code", life.code}, {"state", life.state}, {"rank", life.rank}, {"culprit", life.culprit},
                       {"slow", life.slow}});
    const Json json = {{"state", state}, {"code", lives_.back().code}, {"gave_up", gave_up_}, {"restarts", lives_.size() - 1},
                                         {"effective_time_ratio", ratio()}, {"seconds", since(begin_)}, {"lives", lives}};
    std::error_code ignored;
    if (!std::filesystem::is_directory(output(), ignored)) return;
    OutputFile file(output() / "supervisor.json");
    file.append(json_text(json, 2) + "\n");
    file.commit();
  }

  const RunConfig& run_;
  const SuperviseOptions& options_;
  const StopSignals signals_;
  const Clock::time_point begin_ = Clock::now();
  const double epoch_ = double(wall_nanoseconds()) * 1e-9;
  int ranks_, spares_used_ = 0, forwarded_ = 0;
  std::vector<Life> lives_;
  std::string gave_up_;
};

}  // namespace

int smaller_data_axis(const RunConfig& run, int data) {
  std::vector<Index> batches{run.train.batch};
  if (!run.train.ramp.empty()) batches.clear();
  for (const BatchStep& step : run.train.ramp) batches.push_back(step.batch);
  for (int fewer = data - 1; fewer > 0; --fewer) {
    bool splits = true;
    for (const Index batch : batches) splits = splits && batch % (fewer * run.train.micro_batch) == 0;
    if (splits) return fewer;
  }
  return 0;
}

double useful_seconds(const std::filesystem::path& metrics, double begin) {
  std::ifstream in(metrics);
  std::map<Index, double> steps;
  for (std::string line; std::getline(in, line);) {
    const Json json = json_in(line);
    if (!json.is_object() || json.value("kind", "") != "step" || !json.contains("step") || !json.contains("seconds")) continue;
    if (json.value("time", 0.0) >= begin) steps[json["step"]] = json["seconds"];
  }
  double sum = 0;
  for (const auto& [step, seconds] : steps) sum += seconds;
  return sum;
}

int supervise(const RunConfig& run, const SuperviseOptions& options) {
  const int model_ranks = run.parallel.pipeline * run.parallel.tensor;
  require(options.ranks % model_ranks == 0, Exit::config, "-n {}: not a multiple of parallel.pipeline x parallel.tensor = {}", options.ranks, model_ranks);
  return Supervisor(run, options).run();
}

}  // namespace gyr
