// SPDX-License-Identifier: BSD-3-Clause
// Reward `process`: programs that read a JSON line per answer and write a JSON line per reward, in any order:
//
//   {"id": "17/2", "step": 4, "prompt": "...", "answer": "...", "tokens": 31, "ended": true, "fields": {...}}
//   {"id": "17/2", "reward": 0.5, "note": "free text"}
//
// The answers are distributed over the programs, and each program receives all of its requests without waiting. The time
// limit of a request begins when it is sent, so that it includes the time for the answers before it. A program that fails
// is ended and started again. The answer that it failed at gets the value of `on_failure`, and the other open ones are
// sent again. A late reply is never read, so that it cannot be taken for one of a later step.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "kernels/base/printable.hpp"
#include "src/base/json.hpp"
#include "src/base/quantity.hpp"
#include "src/policy/rewards/child_process.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto longest_wait = 1000ms;
constexpr std::size_t most_line_shown = 200;

struct OpenRequest {
  std::size_t answer;  // index in the answers
  std::string id;
  std::int64_t end = 0;                            // bytes queued to the program, up to the end of this request
  std::optional<Clock::time_point> deadline = {};  // set once the request is sent
};

// A program, and its requests without a reply, in the order of their sending.
struct RewardProgram {
  std::unique_ptr<ChildProcess> program;
  std::deque<OpenRequest> open;
};

std::string request_of(const Answer& a) {
  return json_text({{"id", id_of(a)},
                    {"step", a.step},
                    {"prompt", a.prompt_text},
                    {"answer", a.text},
                    {"tokens", a.tokens.size()},
                    {"ended", a.ended},
                    {"fields", a.fields ? *a.fields : Json::object()}});
}

class ProcessReward : public Reward {
 public:
  ProcessReward(const RewardConfig& config, const std::filesystem::path& output)
      : config_(config), log_(output / "rewards" / (config.name + ".log")), workers_(std::size_t(config.processes)) {
    std::error_code error;
    std::filesystem::create_directories(log_.parent_path(), error);
    require(!error, Exit::io, "{}: the folder cannot be created: {}", log_.parent_path().string(), error.message());
    for (RewardProgram& worker : workers_) start(worker);
  }

  std::vector<std::optional<double>> of(const std::vector<Answer>& answers) override {
    answers_ = &answers;
    values_.assign(answers.size(), std::nullopt);
    for (RewardProgram& worker : workers_) worker.open.clear();
    for (std::size_t i = 0; i < answers.size(); ++i) workers_[i % workers_.size()].open.push_back({i, id_of(answers[i])});
    for (RewardProgram& worker : workers_) begin(worker);
    while (std::any_of(workers_.begin(), workers_.end(), [](const RewardProgram& w) { return !w.open.empty(); })) {
      wait();
      for (RewardProgram& worker : workers_)
        if (!worker.open.empty()) attend(worker);
    }
    return values_;
  }

 private:
  std::string key(const char* name) const { return key_of_reward(config_, name); }
  const Answer& answer_of(const OpenRequest& r) const { return (*answers_)[r.answer]; }

  void start(RewardProgram& worker) { worker.program = std::make_unique<ChildProcess>(config_.command, log_, key("command")); }

  // Sends the requests to a program that has been idle.
  void begin(RewardProgram& worker) {
    if (worker.open.empty()) return;
    std::vector<std::string> unasked;
    worker.program->read_some(unasked);
    if (!unasked.empty() && config_.on_failure == OnFailure::stop) refuse_line(unasked.front(), nullptr, false);
    if (worker.program->closed() || !unasked.empty()) restart(worker);
    else send_open(worker);
  }

  void restart(RewardProgram& worker) {
    ++restarts_;
    require(restarts_ <= config_.restarts, Exit::data,
            "reward `{}`: the program has failed {}; {} = {}: correct the program, whose messages are in {}", config_.name,
            restarts_ == 1 ? "once" : fmt::format("{} times", restarts_), key("restarts"), config_.restarts, log_.string());
    worker.program->end(0ms);
    start(worker);
    send_open(worker);
  }

  void send_open(RewardProgram& worker) {
    for (OpenRequest& request : worker.open) {
      const std::string line = request_of(answer_of(request));
      require(line.size() <= ChildProcess::most_line, Exit::data, "reward `{}`, rollout {}: the request has {} bytes; the maximum is {}",
              config_.name, request.id, line.size(), ChildProcess::most_line);
      worker.program->send(line);
      request.end = worker.program->queued(), request.deadline.reset();
    }
  }

  // Waits until a program reads or writes, or until the next deadline.
  void wait() const {
    std::vector<pollfd> events;
    Clock::time_point next = Clock::now() + longest_wait;
    for (const RewardProgram& worker : workers_) {
      if (worker.open.empty()) continue;
      events.push_back({worker.program->output(), POLLIN, 0});
      if (worker.program->writes()) events.push_back({worker.program->input(), POLLOUT, 0});
      for (const OpenRequest& request : worker.open) next = std::min(next, request.deadline.value_or(next));
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    ::poll(events.data(), nfds_t(events.size()), int(std::max<std::int64_t>(0, left)));
  }

  void attend(RewardProgram& worker) {
    ChildProcess& program = *worker.program;
    if (program.writes()) program.write_some();
    const auto now = Clock::now();
    for (OpenRequest& request : worker.open)
      if (!request.deadline && program.written() >= request.end)
        request.deadline = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(config_.timeout_seconds));
    std::vector<std::string> lines;
    program.read_some(lines);
    for (const std::string& line : lines)
      if (!take(worker, line)) return restart(worker);
    if (worker.open.empty()) return;
    if (program.closed()) return give_up_ended(worker);
    give_up_late(worker, now);
  }

  // Takes a reply. Returns false if it is invalid.
  bool take(RewardProgram& worker, const std::string& line) {
    const Json reply = json_in(line);
    const std::string id = reply.is_object() ? text_in(reply, "id") : "";
    const auto request = std::find_if(worker.open.begin(), worker.open.end(), [&](const OpenRequest& r) { return r.id == id; });
    const bool known = request != worker.open.end();
    const auto reward = reply.is_object() ? reply.find("reward") : reply.end();
    const bool valid = known && reward != reply.end() && (reward->is_number() || reward->is_null());
    if (valid && reward->is_number()) values_[request->answer] = reward->get<double>();
    const auto answered = known || worker.open.empty() ? request : worker.open.begin();
    if (!valid) give_up(answered, worker, [&](const OpenRequest* r) { refuse_line(line, r, known); });
    if (answered != worker.open.end()) worker.open.erase(answered);
    return valid;
  }

  // Gives an answer the value of a failure, or calls `refuse`, which throws, if a failure ends the run.
  template <class Refuse>
  void give_up(std::deque<OpenRequest>::iterator request, RewardProgram& worker, Refuse&& refuse) {
    const bool any = request != worker.open.end();
    if (config_.on_failure == OnFailure::stop) refuse(any ? &*request : nullptr);
    if (any && config_.on_failure == OnFailure::zero) values_[request->answer] = 0;
  }

  [[noreturn]] void refuse_line(const std::string& line, const OpenRequest* request, bool known) const {
    const std::string shown = printable(line.substr(0, most_line_shown)) + (line.size() > most_line_shown ? " ..." : "");
    const std::string where = request ? fmt::format(", rollout {}, step {}", request->id, answer_of(*request).step) : "";
    fail(Exit::data, "reward `{}`{}: the program wrote `{}`; {}", config_.name, where, shown,
         known ? "reward must be a number or null" : "a line must be an object with the id of an answer without a reward, and its reward");
  }

  // The program has ended: it failed at the first answer without a reward.
  void give_up_ended(RewardProgram& worker) {
    const std::string how = worker.program->end(longest_wait);
    give_up(worker.open.begin(), worker, [&](const OpenRequest* first) {
      fail(Exit::data, "reward `{}`: the program ended {} and left {} without a reward (first {}); its messages are in {}", config_.name, how,
           counted(Index(worker.open.size()), "answer"), first->id, log_.string());
    });
    worker.open.pop_front();
    restart(worker);
  }

  void give_up_late(RewardProgram& worker, Clock::time_point now) {
    const auto late = [&](const OpenRequest& r) { return r.deadline && *r.deadline <= now; };
    const auto count = std::count_if(worker.open.begin(), worker.open.end(), late);
    if (count == 0) return;
    for (auto request = worker.open.begin(); request != worker.open.end(); ++request) {
      if (!late(*request)) continue;
      give_up(request, worker, [&](const OpenRequest* first) {
        fail(Exit::again, "reward `{}`: {} of {} answers have no reward after {:g} s (first {}); raise {}, or set {}: none", config_.name, count,
             answers_->size(), config_.timeout_seconds, first->id, key("timeout_seconds"), key("on_failure"));
      });
    }
    std::erase_if(worker.open, late);
    restart(worker);
  }

  const RewardConfig config_;
  const std::filesystem::path log_;
  std::vector<RewardProgram> workers_;
  Index restarts_ = 0;
  const std::vector<Answer>* answers_ = nullptr;  // of the current call
  std::vector<std::optional<double>> values_;
};

}  // namespace

std::unique_ptr<Reward> process_reward(const RewardConfig& c, const std::filesystem::path& output) {
  return std::make_unique<ProcessReward>(c, output);
}

}  // namespace gyr
