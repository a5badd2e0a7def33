// SPDX-License-Identifier: BSD-3-Clause
// Rewards from programs: replies in any order, and programs that are late, end, or write invalid lines.
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "regression/support/folder.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/policy/rewards/reward.hpp"

namespace gyr::testing::reward_process_suite {
namespace {

using Value = std::optional<double>;

// A shell program that calls reply(id, line) for each request.
std::string shell(const std::string& reply) {
  return "while IFS= read -r line; do id=${line#*\\\"id\\\":\\\"}; id=${id%%\\\"*}; " + reply + "; done";
}
const std::string half = R"(printf '{"id":"%s","reward":0.5}\n' "$id")";

struct Program {
  explicit Program(const std::string& script, RewardConfig settings = {}) {
    config = settings;
    config.name = "code", config.type = RewardType::process;
    if (config.command.empty()) config.command = {"sh", "-c", script};
    if (config.timeout_seconds == 0) config.timeout_seconds = 20;
  }
  std::unique_ptr<Reward> start() const { return make_reward(config, folder.path()); }
  std::string log() const { return contents(folder / "rewards/code.log"); }

  RewardConfig config;
  Folder folder;
};

RewardConfig with(OnFailure on_failure, Index restarts = 10, double seconds = 20, Index processes = 1) {
  RewardConfig c;
  c.on_failure = on_failure, c.restarts = restarts, c.timeout_seconds = seconds, c.processes = processes;
  return c;
}

const Json& no_fields() {
  static const Json fields = Json::object();
  return fields;
}

std::vector<Answer> answers(std::int64_t count, const std::string& text = "four") {
  std::vector<Answer> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back({i / 2, i % 2, {}, text, true, &no_fields(), "", "2+2?", 4});
  return all;
}

Error failure(const Program& program, std::int64_t count) {
  return error_of([&] { program.start()->of(answers(count)); });
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

// The reply holds the number of tokens. All requests together exceed the buffers of the pipes by far.
TEST(reward_process, every_answer_gets_its_own_reward) {
  std::mt19937 random(seed_of_run());
  for (const Index processes : {1, 3}) {
    const Program program("", [&] {
      RewardConfig c = with(OnFailure::stop, 0, 60, processes);
      c.command = {"sed", "-u", R"re(s/^{"id":"\([^"]*\)".*"tokens":\([0-9]*\).*$/{"note":"x","reward":\2,"id":"\1"}/)re"};
      return c;
    }());
    const auto reward = program.start();
    for (int step = 0; step < 3; ++step) {
      const std::vector<std::int32_t> tokens(100);
      std::vector<Answer> all = answers(200, std::string(3000, 'x') + "\n\"\xff");
      for (Answer& a : all) a.tokens = std::span(tokens).first(random() % 100);
      const auto values = reward->of(all);
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(values[i], double(all[i].tokens.size())) << i;
    }
    EXPECT_TRUE(reward->of({}).empty());
  }
}

TEST(reward_process, request_has_all_of_the_answer) {
  const Program program(shell("printf '%s\\n' \"$line\" >&2; " + half));
  const std::vector<std::int32_t> tokens{1, 2, 3};
  const Json fields{{"target", 4}, {"level", "easy"}};
  EXPECT_EQ(program.start()->of({{17, 2, tokens, "a\n\"b\"", false, &fields, "", "2+2?", 4}}).at(0), 0.5);
  EXPECT_EQ(program.log(),
            R"({"id":"17/2","step":4,"prompt":"2+2?","answer":"a\n\"b\"","tokens":3,"ended":false,"fields":{"target":4,"level":"easy"}})"
            "\n");
}

TEST(reward_process, replies_may_come_in_another_order) {
  const Program program(
      shell("if [ -z \"$held\" ]; then held=$id; else " + half + "; printf '{\"id\":\"%s\",\"reward\":2}\\n' \"$held\"; held=; fi"));
  const auto values = program.start()->of(answers(6));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], i % 2 ? 0.5 : 2) << i;
}

TEST(reward_process, null_is_no_value) {
  const Program program(shell(R"(printf '{"id":"%s","reward":null}\n' "$id")"));
  EXPECT_EQ(program.start()->of(answers(2)), (std::vector<Value>{{}, {}}));
}

TEST(reward_process, missing_program_is_refused_at_start) {
  Program program("");
  program.config.command = {"no-such-judge.py", "-v"};
  const Error error = error_of([&] { program.start(); });
  EXPECT_EQ(error.code, Exit::missing);
  EXPECT_TRUE(has(error.what(), "rl.rewards.code.command: the program `no-such-judge.py` cannot be started: No such file or directory"))
      << error.what();
}

TEST(reward_process, late_answers_get_the_value_of_failures) {
  const std::string script = shell("[ \"$id\" = 1/0 ] && sleep 60; " + half);
  for (const auto& [on_failure, value] : {std::pair(OnFailure::none, Value()), std::pair(OnFailure::zero, Value(0))}) {
    const Program program(script, with(on_failure, 1, 0.7, 3));
    const auto reward = program.start();
    EXPECT_EQ(reward->of(answers(6)), (std::vector<Value>{0.5, 0.5, value, 0.5, 0.5, value})) << "the last answer waits behind the third";
    EXPECT_EQ(reward->of(answers(2)), (std::vector<Value>{0.5, 0.5}));
  }
  const Error error = failure(Program(script, with(OnFailure::stop, 1, 0.3)), 5);
  EXPECT_EQ(error.code, Exit::again);
  EXPECT_TRUE(has(error.what(), "reward `code`: 3 of 5 answers have no reward after 0.3 s (first 1/0); raise rl.rewards.code.timeout_seconds"))
      << error.what();
}

TEST(reward_process, invalid_replies_are_refused_by_their_answer) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(printf '{"id":"%s","reward":"good"}\n' "$id")",
       "rollout 0/0, step 4: the program wrote `{\"id\":\"0/0\",\"reward\":\"good\"}`; reward must be a"},
      {R"(printf '{"id":"%s"}\n' "$id")", "reward must be a number or null"},
      {R"(printf '{"id":"9/9","reward":1}\n')", "a line must be an object with the id of an answer without a reward"},
      {R"(printf '{"id":"%s","reward":1e999}\n' "$id")", "a line must be an object"},
      {"echo hello", "the program wrote `hello`; a line must be an object"},
      {R"(printf '[]\n\n')", "the program wrote `[]`"},
  };
  for (const auto& [reply, part] : cases) {
    const Error error = failure(Program(shell(reply)), 3);
    EXPECT_EQ(error.code, Exit::data) << reply;
    EXPECT_TRUE(has(error.what(), part)) << reply << ": " << error.what();
  }
  const Program program(shell("[ \"$id\" = 1/0 ] && echo hello; " + half), with(OnFailure::none, 1));
  EXPECT_EQ(program.start()->of(answers(4)), (std::vector<Value>{0.5, 0.5, {}, 0.5}));
}

TEST(reward_process, program_that_ends_is_started_again) {
  const std::string script = "echo started >&2; " + shell("case $id in 0/1|1/1) exit 3;; esac; " + half);
  const Program program(script, with(OnFailure::zero, 2));
  EXPECT_EQ(program.start()->of(answers(5)), (std::vector<Value>{0.5, 0, 0.5, 0, 0.5}));
  EXPECT_EQ(program.log(), "started\nstarted\nstarted\n");
  const Error few = failure(Program(script, with(OnFailure::zero, 1)), 5);
  EXPECT_EQ(few.code, Exit::data);
  EXPECT_TRUE(has(few.what(), "reward `code`: the program has failed 2 times; rl.rewards.code.restarts = 1")) << few.what();
  const Error stopped = failure(Program(script), 5);
  EXPECT_EQ(stopped.code, Exit::data);
  EXPECT_TRUE(has(stopped.what(), "reward `code`: the program ended with exit code 3 and left 4 answers without a reward (first 0/1)"))
      << stopped.what();
}

TEST(reward_process, program_that_ends_while_idle_is_replaced) {
  const Program program(shell(half + "; [ \"$id\" = 0/1 ] && exit 0"), with(OnFailure::stop, 1));
  const auto reward = program.start();
  EXPECT_EQ(reward->of(answers(2)), (std::vector<Value>{0.5, 0.5}));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(reward->of(answers(1)), (std::vector<Value>{0.5}));
}

TEST(reward_process, long_line_ends_the_run) {
  const Error error = failure(Program("read x; head -c 17000000 /dev/zero | tr '\\0' x", with(OnFailure::none)), 1);
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_TRUE(has(error.what(), "writes a line of more than 16777216 bytes")) << error.what();
}

TEST(reward_process, damaged_replies_are_taken_or_refused) {
  Mutation mutation(seed_of_run());
  int valued = 0, refused = 0;
  for (int i = 0; i < 150; ++i) {
    RewardConfig c = with(OnFailure(mutation.up_to(2)), 3);
    Program program("", c);
    const auto replies = program.folder.write("replies", "{\"id\":\"0/0\",\"reward\":1}\n{\"id\":\"0/1\",\"reward\":-2.5,\"note\":[]}\n");
    const std::string what = mutation.damage(replies);
    program.config.command = {"sh", "-c", fmt::format("[ -f '{0}' ] && cat '{0}'; exit 0", replies.string())};
    try {
      const auto values = program.start()->of(answers(2));
      for (const Value& value : values) EXPECT_TRUE(!value || std::isfinite(*value)) << what;
      ++valued;
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code, Exit::data) << what << error.what();
    }
  }
  EXPECT_GT(valued, 10);
  EXPECT_GT(refused, 10);
}

// A program ends when its input is closed. This takes no second, unless another program has inherited the pipe.
TEST(reward_process, programs_end_with_their_reward) {
  const Program program(shell(half), with(OnFailure::stop, 0, 20, 4));
  auto reward = program.start();
  reward->of(answers(8));
  const auto begin = std::chrono::steady_clock::now();
  reward.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << "four programs are killed after a second each";
}

}  // namespace gyr::testing::reward_process_suite
