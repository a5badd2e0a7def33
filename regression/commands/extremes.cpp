// SPDX-License-Identifier: BSD-3-Clause
// Extreme values at every numeric key of a deck: the program must either plan the run or refuse the value by name, within seconds.
//   GYR_EXTREMES=DRAWS:SEED sets the number of draws per key and the seed
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::extremes_suite {

namespace fs = std::filesystem;

namespace {

const Material& material() { return Material::get(); }
struct Key {
  std::string path, value;
};

// All deck keys, read from the effective deck of a run: sections by indentation, lines of the form KEY: VALUE.
std::vector<Key> all_keys() {
  std::vector<Key> keys;
  std::vector<std::string> sections;
  for (const std::string& line : lines_of(contents(material().output() / "deck.yaml"))) {
    const std::size_t indent = line.find_first_not_of(' ') / 2;
    const auto colon = line.find(':');
    sections.resize(indent);
    sections.push_back(line.substr(2 * indent, colon - 2 * indent));
    std::string path;
    for (const std::string& name : sections) path += (path.empty() ? "" : ".") + name;
    if (colon + 2 < line.size()) keys.push_back({path, line.substr(colon + 2)});
  }
  return keys;
}

bool is_number(const std::string& text) { return !text.empty() && text.find_first_not_of("-.0123456789einf+") == text.npos; }
bool is_integer(const std::string& text) { return is_number(text) && text.find_first_not_of("-0123456789") == text.npos; }

const Words integers{"9223372036854775807",
                     "-9223372036854775808",
                     "9223372036854775808",
                     "4611686018427387904",
                     "4611686018427387903",
                     "9007199254740993",
                     "1099511627777",
                     "4294967296",
                     "2147483648",
                     "2147483647",
                     "1000000000",
                     "-2147483648",
                     "-1",
                     "0"};
const Words extreme_values{"1.0e+308", "-1.0e+308", "5.0e-324", ".inf", "-.inf", "0", "-1", "9223372036854775807"};

struct ResourceUse {
  int draws = 2;  // values tried per key
  unsigned seed = 1;
};

ResourceUse resource_use() {
  ResourceUse e;
  if (const char* wanted = std::getenv("GYR_EXTREMES")) std::sscanf(wanted, "%d:%u", &e.draws, &e.seed);
  return e;
}

// The deck must be planned, or refused with a message that names one of the keys and quotes the command-line argument.
void expect_planned_or_refused(const Words& paths, const Words& changes) {
  SCOPED_TRACE(fmt::format("{}", fmt::join(changes, " ")));
  Words arguments{"plan", material().deck()};
  arguments.insert(arguments.end(), changes.begin(), changes.end());
  const Result r = run(arguments, {.limit = 60 * slowness});
  EXPECT_LT(r.cpu_seconds, 8 * slowness) << output_of(r);
  EXPECT_TRUE(r.code == 0 || r.code == int(Exit::config)) << output_of(r);
  if (r.code == 0) return;
  const bool named = std::any_of(changes.begin(), changes.end(),
                                 [&](const std::string& change) { return r.err.find("command line `" + change + "`") != r.err.npos; });
  EXPECT_TRUE(named && std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return r.err.find(path) != r.err.npos; }))
      << output_of(r);
}

}  // namespace

TEST(extremes, each_extreme_value_is_planned_or_refused) {
  const ResourceUse e = resource_use();
  std::mt19937 random(e.seed);
  std::printf("seed %u, %d draws for each key\n", e.seed, e.draws);
  Trials trials("extreme values of a key");
  int seen = 0;
  for (const Key& key : all_keys()) {
    const bool list = key.value == "[]" && (key.path == "parallel.layers" || key.path == "parallel.permutation" || key.path == "dump.steps");
    if (!list && !is_number(key.value)) continue;
    ++seen;
    const Words& values = list || is_integer(key.value) ? integers : extreme_values;
    for (int draw = 0; draw < e.draws; ++draw) {
      const std::string value = draw == 0 ? values[0] : values[random() % values.size()];
      trials.attempt([&] { expect_planned_or_refused({key.path}, {key.path + "=" + (list ? "[" + value + "]" : value)}); });
    }
  }
  EXPECT_GT(seen, 60);
}

// Values that are valid one by one, but impossible in pairs.
TEST(extremes, pair_of_extreme_values_is_planned_or_refused) {
  const ResourceUse e = resource_use();
  std::mt19937 random(e.seed);
  const std::vector<Key> pool{{"model.hidden_size", "4194304"},
                              {"model.vocab_size", "2147483647"},
                              {"model.mlp.intermediate_size", "4194304"},
                              {"model.pattern", "M- x 8192"},
                              {"model.mamba.num_heads", "4194304"},
                              {"model.mamba.head_dim", "4194304"},
                              {"model.mamba.state_size", "4194304"},
                              {"model.attention.num_heads", "4194304"},
                              {"model.attention.head_dim", "4194304"},
                              {"train.global_batch_size", "16777216"},
                              {"train.micro_batch_size", "16777216"},
                              {"train.steps", "1099511627776"},
                              {"parallel.data", "1048576"},
                              {"parallel.bucket", "1048576"},
                              {"train.eval_batches", "16777216"}};
  Trials trials("extreme values of two keys");
  for (int draw = 0; draw < 10 * e.draws; ++draw) {
    const Key &a = pool[random() % pool.size()], &b = pool[random() % pool.size()];
    if (a.path == b.path) continue;
    trials.attempt([&] { expect_planned_or_refused({a.path, b.path}, {a.path + "=" + a.value, b.path + "=" + b.value}); });
  }
}

TEST(extremes, many_layers_and_ranks_are_planned_in_seconds) {
  for (const Words& changes : {Words{"model.pattern=P x 10000"}, Words{"model.pattern=M- x 1000", "parallel.pipeline=40"},
                               Words{"parallel.data=1048576", "train.global_batch_size=1048576"}, Words{"train.global_batch_size=16777216"}}) {
    Words arguments{"plan", material().deck()};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    const Result r = run(arguments, {.limit = 90 * slowness});
    EXPECT_EQ(r.code, 0) << changes[0] << output_of(r);
    EXPECT_LT(r.cpu_seconds, 20 * slowness) << changes[0];
  }
}

TEST(extremes, sequences_of_16M_tokens_are_planned_or_refused) {
  for (const char* pattern : {"P x 4", "* x 4", "M- x 4"})
    expect_planned_or_refused({"train.seq_length"}, {"train.seq_length=16000000", std::string("model.pattern=") + pattern});
}

TEST(extremes, error_for_too_many_layers_states_the_limit) {
  for (const char* pattern : {"P x 1000000000", "P x 99999999999999999999", "M- x 8193"}) {
    const Result r = run({"plan", material().deck(), std::string("model.pattern=") + pattern});
    EXPECT_EQ(r.code, int(Exit::config)) << output_of(r);
    EXPECT_NE(r.err.find("at most 16384 layers"), r.err.npos) << output_of(r);
    EXPECT_NE(r.err.find(std::string("command line `model.pattern=") + pattern + "`"), r.err.npos) << output_of(r);
  }
}

// The data is checked before the long planning starts.
TEST(extremes, data_errors_are_reported_before_planning) {
  const Folder folder;
  const Result r = run(material().train(folder / "out", {"train.seq_length=4000000", "model.pattern=* x 50", "watchdog.seconds=5"}), {.limit = 60});
  EXPECT_EQ(r.code, int(Exit::data)) << output_of(r);
  EXPECT_NE(r.err.find("a sample needs 4000001"), r.err.npos) << output_of(r);
  EXPECT_LT(r.cpu_seconds, 5);
  EXPECT_EQ(last_line_of(r.out).find("submit again"), std::string::npos) << output_of(r);
}

// A long planning phase must not trigger the watchdog, and SIGTERM must end it.
TEST(extremes, long_planning_stops_on_sigterm_without_watchdog_alarm) {
  const Folder folder;
  int beats = 0;
  const Result r = run(material().train(folder / "out", {"model.pattern=P x 16000", "train.global_batch_size=64", "watchdog.seconds=4"}),
                       {.limit = 60, .meanwhile = [&](int pid, const fs::path&) {
                          if (++beats == 500) ::kill(pid, SIGTERM);
                        }});
  EXPECT_EQ(r.code, int(Exit::again)) << output_of(r);
  EXPECT_NE(r.err.find("stopped by SIGTERM"), r.err.npos) << output_of(r);
  EXPECT_EQ(r.err.find("watchdog: no progress"), r.err.npos) << output_of(r);
}

// `gyrfalcon plan` has nothing to save, so any signal ends it at once.
TEST(extremes, plan_command_ends_on_any_signal) {
  for (const int signal : {SIGUSR1, SIGHUP, SIGTERM, SIGINT}) {
    int beats = 0;
    const auto begin = std::chrono::steady_clock::now();
    const Result r = run({"plan", material().deck(), "model.pattern=P x 16000", "train.global_batch_size=64"},
                         {.limit = 60, .meanwhile = [&](int pid, const fs::path&) {
                            if (++beats == 500) ::kill(pid, signal);
                          }});
    EXPECT_EQ(r.code, 128 + signal) << output_of(r);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << signal;
  }
}

TEST(extremes, empty_deck_is_refused) {
  const Folder folder;
  for (const char* text : {"", "# only a comment\n", "{}\n"}) {
    const Result r = run({"plan", folder.write("empty.yaml", text)});
    EXPECT_EQ(r.code, int(Exit::config)) << output_of(r);
    EXPECT_NE(r.err.find("empty.yaml: is empty"), r.err.npos) << output_of(r);
  }
}

}  // namespace gyr::testing::extremes_suite
