// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/run_history.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/base/quantity.hpp"
#include "src/base/runs_near.hpp"
#include "src/deck/yaml.hpp"
#include "src/job/run_lock.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/outcome.hpp"

namespace gyr {

namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

double number(const Json& line, const char* name) { return number_in(line, name); }
Index integer(const Json& line, const char* name, Index otherwise = 0) { return integer_in(line, name).value_or(otherwise); }
std::string word(const Json& line, const char* name) { return text_in(line, name); }

// Processes the lines of metrics.jsonl in order.
class HistoryReader {
 public:
  explicit HistoryReader(RunHistory& history) : history_(history) {}

  void read(const Json& line) {
    const std::string kind = word(line, "kind");
    history_.useful.read(line);
    if (const auto known = readers_.find(kind); known != readers_.end()) (this->*known->second)(line);
    if (const double time = number(line, "time"); !std::isnan(time)) last_time_ = time;
  }
  // Called after the last line. If the last attempt has reported no end, it is still running or was killed.
  void finish(bool alive) {
    if (running_ && (!alive || exit_record_text())) killed();
    mark(history_.steps, &TakenStep::step), mark(history_.validations, &ValidatedStep::step),
        mark(history_.iterations, &RewardedIteration::iteration);
  }

 private:
  void add(RunEvent::Kind kind, double time, const std::string& text) { history_.events.push_back({kind, time, step_, text}); }

  // All earlier lines belong to another run.
  void run(const Json& line) {
    history_.run = word(line, "run");
    history_.steps.clear(), history_.validations.clear(), history_.events.clear(), history_.sections.clear();
    running_ = false, step_ = 0;
  }
  void start(const Json& line) {
    if (running_) killed();
    running_ = true, step_ = integer(line, "step"), attempt_ = int(integer(line, "attempt")), started_ = number(line, "time");
    history_.run = word(line, "run"), history_.grid = word(line, "grid"), history_.precision = word(line, "precision");
    history_.version = word(line, "version"), history_.ranks = integer(line, "ranks"), history_.parameters = integer(line, "parameters");
    history_.host = word(line, "host"), history_.git = word(line, "git"), history_.command = word(line, "command");
    history_.memory.clear();
    if (const auto memory = line.find("memory"); memory != line.end() && memory->is_object())
      for (const auto& [category, bytes] : memory->items())
        if (bytes.is_number_integer()) history_.memory.emplace_back(category, bytes.get<Index>());
    add(RunEvent::Kind::start, number(line, "time"), fmt::format("{}, {}", counted(history_.ranks, "rank"), history_.grid));
  }
  void end(const Json& line) {
    if (!running_) return;  // on a hang, every rank that noticed it writes an end line
    const std::string state = word(line, "state"), message = word(line, "message");
    const auto kind = state == "done" ? RunEvent::Kind::done : state == "stopped" ? RunEvent::Kind::stopped : RunEvent::Kind::failed;
    add(kind, number(line, "time"), fmt::format("code {}{}{}", integer(line, "code"), message.empty() ? "" : ": ", message));
    running_ = false;
  }
  void step(const Json& line) {
    step_ = integer(line, "step"), history_.steps_wanted = integer(line, "steps");
    history_.steps.push_back({number(line, "time"), step_, number(line, "consumed_tokens"), number(line, "seconds"),
                              number(line, "tokens_per_second"), number(line, "mfu"), number(line, "learning_rate"), number(line, "loss"),
                              number(line, "grad_norm"), number(line, "expert_load"), number(line, "memory_bytes")});
  }
  void validation(const Json& line) {
    const double tokens = history_.steps.empty() ? nothing : history_.steps.back().tokens;
    history_.validations.push_back({number(line, "time"), integer(line, "step"), tokens, number(line, "loss"), number(line, "accuracy"),
                                    number(line, "order_accuracy"), number(line, "margin")});
  }
  void iteration(const Json& line) {
    const double tokens = history_.steps.empty() ? 0 : history_.steps.back().tokens;
    history_.iterations.push_back({number(line, "time"), step_, integer(line, "iteration"), tokens, number(line, "reward"), number(line, "length")});
  }
  void checkpoint(const Json& line) {
    history_.events.push_back(
        {RunEvent::Kind::checkpoint, number(line, "time"), integer(line, "step"),
         fmt::format("{:.1f} MB, training blocked for {:.2f} s", number(line, "bytes") / 1e6, number(line, "blocked_seconds"))});
  }
  void skip(const Json& line) { history_.events.push_back({RunEvent::Kind::skip, number(line, "time"), integer(line, "step"), word(line, "why")}); }
  void rollback(const Json& line) {
    history_.events.push_back({RunEvent::Kind::rollback, number(line, "time"), integer(line, "step"),
                               fmt::format("to step {}: {}", integer(line, "to"), word(line, "why"))});
  }
  void timers(const Json& line) {
    history_.sections.clear();
    const auto sections = line.find("sections");
    if (sections == line.end() || !sections->is_array()) return;
    for (const Json& s : *sections)
      if (s.is_object())
        history_.sections.push_back({word(s, "name"), number(s, "mean_seconds"), number(s, "max_seconds"), integer(s, "slowest_rank", -1)});
  }

  void killed() { add(RunEvent::Kind::killed, last_time_, exit_record_text().value_or(supervisor_text().value_or("ended without a message"))); }
  // End of this attempt according to the exit record, which the watcher process of a rank writes.
  std::optional<std::string> exit_record_text() const {
    auto record = read_exit_record(new_exit_record_path(history_.folder, attempt_));  // of a supervisor that has been killed
    if (!record) record = read_exit_record(exit_record_path(history_.folder, attempt_));
    if (!record || record->time < started_) return {};
    return fmt::format("{}a process on {} {}", record->rank >= 0 ? fmt::format("rank {}, ", record->rank) : "", record->host, manner(*record));
  }

  // Reason for which the supervisor ended this attempt, or what it saw at its end.
  std::optional<std::string> supervisor_text() const {
    const Json supervisor = json_of_file(std::filesystem::path(history_.folder) / "supervisor.json");
    if (!supervisor.is_object() || !supervisor.contains("attempts") || !supervisor["attempts"].is_array()) return {};
    for (const Json& attempt : supervisor["attempts"]) {
      const double begun = number(attempt, "begun");
      if (begun <= started_ && started_ <= begun + number(attempt, "seconds") && !word(attempt, "culprit").empty()) return word(attempt, "culprit");
    }
    return {};
  }

  // Marks repeated steps. Step numbers decrease only where a run resumes from an earlier checkpoint.
  template <class Steps, class Number>
  static void mark(Steps& steps, Number number) {
    Index least = std::numeric_limits<Index>::max();
    for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
      at->overtaken = (*at).*number >= least;
      least = std::min(least, (*at).*number);
    }
  }

  RunHistory& history_;
  bool running_ = false;
  Index step_ = 0;
  int attempt_ = 0;
  double last_time_ = 0, started_ = 0;

  using Read = void (HistoryReader::*)(const Json&);
  static const std::map<std::string, Read> readers_;
};

const std::map<std::string, HistoryReader::Read> HistoryReader::readers_ = {{"run", &HistoryReader::run},
                                                                            {"start", &HistoryReader::start},
                                                                            {"end", &HistoryReader::end},
                                                                            {"step", &HistoryReader::step},
                                                                            {"validation", &HistoryReader::validation},
                                                                            {"checkpoint", &HistoryReader::checkpoint},
                                                                            {"skip", &HistoryReader::skip},
                                                                            {"rollback", &HistoryReader::rollback},
                                                                            {"timers", &HistoryReader::timers},
                                                                            {"iteration", &HistoryReader::iteration}};

void read_deck(const std::filesystem::path& file, std::map<std::string, std::string>& values) {
  const std::string text = text_or_nothing(file, std::size_t(1) << 20);
  if (text.empty()) return;
  try {
    values = values_by_path(parse_yaml(text, file.string()));
  } catch (const Error&) {  // users may have changed the folder: the report then has no deck
  }
}

}  // namespace

std::string_view name_of(RunEvent::Kind kind) {
  switch (kind) {
    case RunEvent::Kind::start: return "start";
    case RunEvent::Kind::done: return "done";
    case RunEvent::Kind::stopped: return "stopped";
    case RunEvent::Kind::failed: return "failed";
    case RunEvent::Kind::killed: return "killed";
    case RunEvent::Kind::checkpoint: return "checkpoint";
    case RunEvent::Kind::skip: return "skipped";
    case RunEvent::Kind::rollback: return "rolled back";
  }
  return "";
}

std::vector<const TakenStep*> RunHistory::counted() const {
  std::vector<const TakenStep*> left;
  for (const TakenStep& s : steps)
    if (!s.overtaken) left.push_back(&s);
  return left;
}
Index RunHistory::count(RunEvent::Kind kind) const {
  return Index(std::count_if(events.begin(), events.end(), [&](const RunEvent& e) { return e.kind == kind; }));
}
Index RunHistory::reached() const { return !steps.empty() ? steps.back().step : !events.empty() ? events.back().step : 0; }
// fmin and fmax are used because they ignore NaN.
double RunHistory::begin() const {
  double begin = events.empty() && !steps.empty() ? steps.front().time - steps.front().seconds : nothing;
  for (const RunEvent& e : events) begin = std::fmin(begin, e.time);
  return steps.empty() ? begin : std::fmin(begin, steps.front().time);
}
double RunHistory::end() const {
  double end = steps.empty() ? nothing : steps.back().time;
  for (const RunEvent& e : events) end = std::fmax(end, e.time);
  return end;
}

RunHistory read_history(const std::filesystem::path& output) {
  const bool is_file = output.filename() == "metrics.jsonl";
  const std::filesystem::path folder = is_file ? output.parent_path() : output;
  const std::filesystem::path metrics = folder / "metrics.jsonl";
  RunHistory history;
  const std::filesystem::path plain = (folder.empty() ? std::filesystem::path(".") : folder).lexically_normal();
  history.folder = plain.string();
  history.name = plain.has_filename() ? plain.filename().string() : plain.parent_path().filename().string();
  std::error_code ignored;
  require(std::filesystem::exists(metrics, ignored), Exit::missing, "{}: there is no metrics.jsonl; pass the output.folder of a run of `train`{}",
          history.folder, runs_near(history.folder));
  HistoryReader reader(history);
  history.broken_lines = visit_json_lines(metrics, [&](const Json& line) { reader.read(line); });
  require(!history.steps.empty() || history.count(RunEvent::Kind::start) > 0, Exit::data, "{}: contains no start and no step of a run",
          metrics.string());
  const auto outcome = read_outcome(history.folder);
  const auto beats = read_heartbeats(heartbeat_path(history.folder));
  const bool lives =
      beats.empty() ? !RunLock::living_holder(folder).empty() : any_rank_alive(beats, wall_nanoseconds(), RunLock::shares_processes(folder));
  const bool running = outcome && outcome->state == "running" && lives;
  reader.finish(running);
  if (history.host.empty() && !beats.empty()) history.host = beats.front().host;
  const std::string last = history.events.empty() ? "unknown" : std::string(name_of(history.events.back().kind));
  history.state = !outcome ? last : outcome->state != "running" || (running && last != "killed") ? outcome->state : "killed";
  const bool over = history.state == "running" || history.state == "done" || history.state == "stopped";
  if (!over && !RunLock::living_holder_of(folder / RunLock::of_supervisor).empty()) history.state = "restarting";
  read_deck(folder / "deck.yaml", history.deck);
  if (const auto steps = history.deck.find("train.steps"); history.steps.empty() && steps != history.deck.end())
    std::from_chars(steps->second.data(), steps->second.data() + steps->second.size(), history.steps_wanted);
  return history;
}

std::vector<std::pair<std::string, std::vector<std::string>>> deck_differences(const std::vector<RunHistory>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [key, value] : runs[i].deck) values.try_emplace(key, runs.size()).first->second[i] = value;
  std::vector<std::pair<std::string, std::vector<std::string>>> differences;
  for (const auto& [key, of_runs] : values)
    if (std::adjacent_find(of_runs.begin(), of_runs.end(), std::not_equal_to<>()) != of_runs.end()) differences.emplace_back(key, of_runs);
  return differences;
}

Thinned thinned(const std::vector<double>& at, const std::vector<double>& value, std::size_t buckets) {
  std::vector<std::size_t> finite;
  for (std::size_t i = 0; i < value.size(); ++i)
    if (std::isfinite(value[i]) && std::isfinite(at[i])) finite.push_back(i);
  Thinned thin;
  const std::size_t count = std::min(buckets, finite.size());
  for (std::size_t b = 0; b < count; ++b) {
    const std::size_t first = b * finite.size() / count, last = (b + 1) * finite.size() / count;
    double sum = 0, least = value[finite[first]], most = least;
    for (std::size_t i = first; i < last; ++i) {
      const double v = value[finite[i]];
      sum += v, least = std::min(least, v), most = std::max(most, v);
    }
    thin.at.push_back(at[finite[last - 1]]);
    thin.mean.push_back(sum / double(last - first)), thin.least.push_back(least), thin.most.push_back(most);
  }
  return thin;
}

RunSummary summary_of(const RunHistory& run) {
  const std::vector<const TakenStep*> steps = run.counted();
  const auto column = [&](double TakenStep::*value, std::size_t last) {
    std::vector<double> values;
    for (std::size_t i = steps.size() - std::min(last, steps.size()); i < steps.size(); ++i) values.push_back(steps[i]->*value);
    std::erase_if(values, [](double v) { return !std::isfinite(v); });
    return values;
  };
  const TakenStep* last = steps.empty() ? nullptr : steps.back();
  const std::vector<double> losses = column(&TakenStep::loss, 10);
  RunSummary s{.tokens = last ? last->tokens : nothing,
               .loss = std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size()),
               .best_validation = nothing,
               .tokens_per_second = median(column(&TakenStep::tokens_per_second, steps.size())),
               .mfu = median(column(&TakenStep::mfu, steps.size())),
               .memory_bytes = last ? last->memory_bytes : nothing};
  for (const ValidatedStep& v : run.validations)
    if (!v.overtaken) s.best_validation = std::fmin(s.best_validation, v.loss);
  for (const TakenStep& step : run.steps)
    if (std::isfinite(step.seconds)) s.step_seconds += step.seconds, s.kept_seconds += step.overtaken ? 0 : step.seconds;
  return s;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return nothing;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace gyr
