// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/run_history.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/base/json.hpp"
#include "src/history/history_page.hpp"
#include "src/history/history_picture.hpp"
#include "src/history/history_text.hpp"
#include "src/job/run_lock.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/outcome.hpp"

namespace gyr::testing::run_history_suite {
namespace {

std::string step_line(Index step, double time, double loss) {
  return json_text(
             {{"kind", "step"}, {"time", time}, {"step", step}, {"steps", 1000}, {"consumed_tokens", step * 10}, {"seconds", 0.5}, {"loss", loss}}) +
         "\n";
}

// Metrics file of a run that is killed, rolled back or stopped at random moments, and the expected counts by plain
// bookkeeping.
struct Drawn {
  std::string metrics;
  std::map<Index, double> counts;  // loss of each step that counts, when it was last taken
  Index taken = 0, starts = 0, kills = 0, ends = 0, broken = 0;
};
Drawn drawn(std::mt19937& random) {
  const auto upto = [&](int most) { return int(random() % unsigned(most + 1)); };
  Drawn d;
  double time = 1e9;
  Index step = 0;
  bool running = false;
  const auto start = [&] {
    if (running) ++d.kills;
    running = true, ++d.starts;
    d.metrics += json_text({{"kind", "start"}, {"time", time += 1}, {"step", step}, {"ranks", 4}, {"grid", "g"}}) + "\n";
  };
  if (upto(1) > 0) d.metrics += step_line(500, 1, 7) + "{\"kind\":\"run\",\"run\":\"0123\"}\n";  // lines of an earlier run
  start();
  for (int i = 0; i < 60; ++i) {
    const int what = upto(19);
    if (what == 0) step = upto(int(step)), d.counts.erase(d.counts.upper_bound(step), d.counts.end()), start();
    else if (what == 1) {
      d.metrics += json_text({{"kind", "end"}, {"time", time += 1}, {"state", "stopped"}, {"code", 75}, {"message", ""}}) + "\n";
      running = false, ++d.ends;
      start();
    } else if (what == 2) {
      const Index back = upto(int(step));
      d.metrics += json_text({{"kind", "rollback"}, {"time", time += 1}, {"step", step}, {"to", back}, {"why", "nan"}}) + "\n";
      step = back, d.counts.erase(d.counts.upper_bound(step), d.counts.end());
    } else if (what == 3) d.metrics += "{\"kind\":\"step\",\"ste\n", ++d.broken;
    else {
      const double loss = upto(1000) / 100.0;
      d.metrics += step_line(++step, time += 1, loss);
      d.counts[step] = loss, ++d.taken;
    }
  }
  d.metrics += step_line(++step, time += 1, 1), d.counts[step] = 1, ++d.taken;
  return d;
}

// JSON data embedded in an HTML page, which the page's script reads.
Json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"numbers\">";
  const std::size_t from = page.find(begin) + begin.size();
  return json_in(page.substr(from, page.find("</script>", from) - from));
}

TEST(run_history, each_step_counts_once_despite_kills_and_rollbacks) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const Drawn d = drawn(random);
    const Folder folder;
    folder.write("metrics.jsonl", d.metrics);
    const RunLock lock(folder.path());  // of the last attempt, which still runs
    write_outcome(folder.path(), {"running", 0, 0, -1, ""});
    const RunHistory history = read_history(trial % 2 > 0 ? folder.path() : folder / "metrics.jsonl");
    std::map<Index, double> counted;
    for (const TakenStep* s : history.counted()) EXPECT_TRUE(counted.emplace(s->step, s->loss).second) << "step " << s->step << " is counted twice";
    EXPECT_EQ(counted, d.counts) << d.metrics;
    EXPECT_EQ(Index(history.steps.size()), d.taken);
    EXPECT_EQ(history.count(RunEvent::Kind::start), d.starts);
    EXPECT_EQ(history.broken_lines, d.broken);
    const auto events = [&](RunEvent::Kind kind) {
      return std::count_if(history.events.begin(), history.events.end(), [&](const RunEvent& e) { return e.kind == kind; });
    };
    EXPECT_EQ(events(RunEvent::Kind::killed), d.kills);
    EXPECT_EQ(events(RunEvent::Kind::stopped), d.ends);
  }
}

TEST(run_history, run_without_final_status_is_reported_as_killed) {
  const Folder folder;
  folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 1}, {"step", 0}}) + "\n" + step_line(1, 2, 3));
  EXPECT_EQ(read_history(folder.path()).events.back().kind, RunEvent::Kind::killed);
  write_outcome(folder.path(), {"done", 0, 1, -1, ""});
  const RunHistory history = read_history(folder.path());
  EXPECT_EQ(history.events.back().kind, RunEvent::Kind::done);
  EXPECT_EQ(history.events.size(), 2U);
  EXPECT_EQ(history.state, "done");
}

// The supervisor's table names what it saw of an attempt, which it finds by the time of the start.
TEST(run_history, attempt_that_the_supervisor_ended_names_its_cause) {
  for (const double begun : {99.5, 101.0}) {
    const Folder folder;
    folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 100}, {"step", 0}}) + "\n" + step_line(1, 102, 3));
    const Json attempt{{"attempt", 0}, {"begun", begun}, {"seconds", 20}, {"culprit", "rank 1 on node7 (pid 4711) is stuck"}};
    folder.write("supervisor.json", json_text({{"attempts", Json::array({attempt})}}));
    const RunEvent last = read_history(folder.path()).events.back();
    EXPECT_EQ(last.kind, RunEvent::Kind::killed);
    EXPECT_EQ(last.text, begun < 100 ? "rank 1 on node7 (pid 4711) is stuck" : "ended without a message");
  }
}

TEST(run_history, run_killed_before_heartbeat_is_reported_as_killed) {
  const Folder folder;
  std::string metrics = json_text({{"kind", "start"}, {"time", 1}, {"step", 0}}) + "\n" + step_line(1, 2, 3);
  metrics += json_text({{"kind", "end"}, {"time", 5}, {"state", "stopped"}, {"code", 75}, {"message", ""}}) + "\n";
  folder.write("metrics.jsonl", metrics);
  write_outcome(folder.path(), {"running", 0, 0, -1, ""});  // of a second start, which has written nothing else yet
  {
    const RunLock lock(folder.path());
    EXPECT_EQ(read_history(folder.path()).state, "running");
  }
  EXPECT_EQ(read_history(folder.path()).state, "killed");
}

// No program writes "killed" into status.json. The reader of a run detects from the heartbeats that its ranks are gone.
TEST(run_history, running_status_without_heartbeat_is_reported_as_killed) {
  std::mt19937 random(seed_of_run());
  const std::int64_t second = 1'000'000'000, now = wall_nanoseconds();
  for (int trial = 0; trial < 60; ++trial) {
    const Folder folder;
    folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 10}, {"step", 0}}) + "\n" + step_line(1, 11, 3));
    write_outcome(folder.path(), {"running", 0, 0, -1, ""});
    bool lives = false;
    {
      const HeartbeatFile file(heartbeat_path(folder.path()));
      for (int rank = 0; rank < 3; ++rank) {
        Heartbeat h = heartbeat_of({rank, 3, 0}, ProgressSnapshot{}, 0, false);
        const bool elsewhere = random() % 2 > 0, gone = random() % 2 > 0, last = random() % 4 == 0;
        const std::int64_t ago = std::int64_t(std::array{0, 1, 5, 30, 100, 10000}[random() % 6]);
        h.written = now - ago * second;
        if (elsewhere) std::strcpy(h.host, "elsewhere");
        if (gone) h.pid = 0x3fffffff;
        if (last) std::strcpy(h.phase, last_phase);
        file.write(h);
        lives = lives || (!last && ago < (gone && !elsewhere ? 3 : 60));
      }
    }
    if (random() % 4 == 0) {  // an exit record holds the end of this attempt, or of one long before
      const double time = random() % 2 > 0 ? 12 : 1;
      lives = lives && time < 10;
      write_exit_record(exit_record_path(folder.path(), 0), {"here", 5, 1, "SIGSEGV", 0, time});
      EXPECT_EQ(text_of(std::vector{read_history(folder.path())}).find("SIGSEGV") != std::string::npos, time > 10);
    }
    const RunHistory history = read_history(folder.path());
    EXPECT_EQ(history.state, lives ? "running" : "killed");
    EXPECT_EQ(history.count(RunEvent::Kind::killed), lives ? 0 : 1);
  }
}

TEST(run_history, run_without_steps_is_shown_next_to_others) {
  const Folder folder;
  std::filesystem::create_directory(folder / "none");
  folder.write("none/metrics.jsonl", json_text({{"kind", "start"}, {"time", 1}, {"step", 0}, {"ranks", 2}, {"grid", "g"}}) + "\n" +
                                         json_text({{"kind", "end"}, {"time", 5}, {"state", "failed"}, {"code", 80}, {"message", "nan"}}) + "\n");
  folder.write("none/deck.yaml", "train: {steps: 70}\n");
  folder.write("metrics.jsonl", step_line(1, 2, 3));
  const std::vector<RunHistory> runs{read_history(folder / "none"), read_history(folder.path())};
  EXPECT_EQ(facts_of(runs[0])[2].second, "0 of 70");
  const std::string text = text_of(runs), page = page_of(runs);
  for (const std::string& way : {text, page}) EXPECT_NE(way.find("code 80: nan"), way.npos) << way;
  EXPECT_EQ(data_of(page)["runs"][0]["end"], 4.0);
  EXPECT_EQ(picture_of(runs).find("nan"), std::string::npos);
  EXPECT_EQ(error_of([&] { picture_of({runs[0]}); }).code, Exit::data);
}

// An iteration of policy training that was repeated after a restart counts once, with the reward of its last time.
TEST(run_history, repeated_iteration_counts_its_last_reward) {
  const Folder folder;
  std::string metrics;
  double time = 0;
  const auto start = [&] { metrics += json_text({{"kind", "start"}, {"time", ++time}, {"step", 0}, {"ranks", 1}, {"grid", "g"}}) + "\n"; };
  const auto iteration = [&](Index number, double reward) {
    metrics +=
        json_text({{"kind", "iteration"}, {"time", ++time}, {"iteration", number}, {"reward", reward}, {"length", 10 + double(number)}}) + "\n";
    metrics += step_line(number + 1, ++time, 0);
  };
  start(), iteration(0, 0.125), iteration(1, 0.25), start(), iteration(1, 0.5), iteration(2, 0.75);
  folder.write("metrics.jsonl", metrics);
  const RunHistory run = read_history(folder.path());
  const Json curves = data_of(page_of({run}))["runs"][0]["curves"];
  EXPECT_EQ(curves["reward"]["value"], Json::parse("[0.125, 0.5, 0.75]"));
  EXPECT_EQ(curves["answer_length"]["value"], Json::parse("[10, 11, 12]"));
  EXPECT_TRUE(std::regex_search(text_of({run}), std::regex("reward +0\\.1250 .* 0\\.7500 +0\\.1250 +0\\.7500"))) << text_of({run});
}

TEST(run_history, loss_row_shows_first_and_last_values) {
  const Folder folder;
  std::string metrics;
  for (Index step = 1; step <= 5000; ++step) metrics += step_line(step, double(step), step == 5000 ? NAN : 1 + 1.0 / double(step));
  folder.write("metrics.jsonl", metrics);
  const std::string text = text_of(std::vector{read_history(folder.path())});
  EXPECT_TRUE(std::regex_search(text, std::regex("\nloss +2\\.0000 .* 1\\.0002  1\\.0002  2\\.0000\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("\nloss, last 10 +1\\.0002\n"))) << text;  // mean of the last finite losses
}

// All events lie on the page's time axis. Many checkpoints are thinned out, but every start and end of the run is kept.
TEST(run_history, page_and_text_keep_every_end_of_run) {
  const Folder folder;
  std::string metrics;
  double time = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    metrics += json_text({{"kind", "start"}, {"time", time += 1}, {"step", 0}}) + "\n" + step_line(1, time += 1, 3);
    for (int i = 0; i < 100; ++i) metrics += json_text({{"kind", "checkpoint"}, {"time", time += 1}, {"step", 1}, {"bytes", 1}}) + "\n";
  }
  metrics += json_text({{"kind", "end"}, {"time", time += 1}, {"state", "done"}, {"code", 0}, {"message", "the end of all"}}) + "\n";
  folder.write("metrics.jsonl", metrics);
  const RunHistory run = read_history(folder.path());
  const Json json = data_of(page_of({run}))["runs"][0];
  EXPECT_EQ(json["happened"], Json({{"checkpoints", 6000}, {"others", 120}}));
  std::map<std::string, int> shown;
  for (const Json& e : json["events"]) {
    ++shown[e["kind"]];
    EXPECT_LE(e["time"], json["end"]);
  }
  EXPECT_EQ(shown["start"], 60);
  EXPECT_EQ(shown["killed"], 59);
  EXPECT_TRUE(shown["checkpoint"] > 250 && shown["checkpoint"] <= 300) << shown["checkpoint"];
  EXPECT_EQ(json["events"].back()["text"], "code 0: the end of all");
  EXPECT_NE(text_of(std::vector{run}).find("the end of all"), std::string::npos);
}

// Steps that were repeated later form separate parts of the curve, one for each rollback or restart. Steps increase
// within a part.
TEST(run_history, curve_does_not_join_steps_of_different_attempts) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const Folder folder;
    folder.write("metrics.jsonl", drawn(random).metrics);
    const RunHistory run = read_history(folder.path());
    const Json curve = data_of(page_of({run}))["runs"][0]["curves"]["loss_overtaken"];
    std::vector<std::size_t> taken;  // indices into run.steps
    for (std::size_t i = 0; i < run.steps.size(); ++i)
      if (run.steps[i].overtaken) taken.push_back(i);
    ASSERT_EQ(curve.is_null(), taken.empty());
    for (std::size_t i = 1; i < taken.size(); ++i) {
      const bool joined = taken[i] == taken[i - 1] + 1 && run.steps[taken[i]].step > run.steps[taken[i - 1]].step;
      EXPECT_EQ(curve["part"][i] == curve["part"][i - 1], joined);
    }
  }
}

TEST(run_history, thinned_curve_keeps_minimum_and_maximum) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t n = 1 + random() % 300, buckets = 1 + random() % 100;
    std::vector<double> at(n), value(n), finite;
    for (std::size_t i = 0; i < n; ++i) {
      at[i] = double(i), value[i] = random() % 10 == 0 ? NAN : std::ldexp(double(random()), -32);
      if (std::isfinite(value[i])) finite.push_back(value[i]);
    }
    const Thinned thin = thinned(at, value, buckets);
    ASSERT_EQ(thin.mean.size(), std::min(buckets, finite.size()));
    if (finite.empty()) continue;
    EXPECT_EQ(*std::min_element(thin.least.begin(), thin.least.end()), *std::min_element(finite.begin(), finite.end()));
    EXPECT_EQ(*std::max_element(thin.most.begin(), thin.most.end()), *std::max_element(finite.begin(), finite.end()));
    EXPECT_TRUE(std::is_sorted(thin.at.begin(), thin.at.end()));
    if (finite.size() <= buckets) {
      EXPECT_EQ(thin.mean, finite);
    }
    std::sort(finite.begin(), finite.end());
    EXPECT_EQ(median(value), finite[finite.size() / 2]);
  }
}

TEST(run_history, page_holds_data_and_escapes_script_end_tags) {
  const Folder folder;
  std::filesystem::create_directory(folder / "a<b");
  std::string metrics;
  for (Index step = 1; step <= 3000; ++step) metrics += step_line(step, double(step), double(step % 7));
  folder.write("a<b/metrics.jsonl", metrics + json_text({{"kind", "skip"}, {"time", 3001}, {"step", 3000}, {"why", "</script><b>"}}) + "\n");
  folder.write("a<b/deck.yaml", "data: {tokenizer: \"</script>\"}\ntrain: {steps: 5}\n");
  RunHistory one = read_history(folder / "a<b"), two = one;
  two.deck["train.steps"] = "6";
  const std::string page = page_of({one, two});
  const Json json = data_of(page);
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][0]["name"], "a<b");
  EXPECT_EQ(json["runs"][0]["curves"]["loss"]["value"].size(), 1000U);
  EXPECT_EQ(json["runs"][0]["curves"]["loss"]["most"][0], 3.0);  // the first bucket holds the losses 1, 2 and 3
  EXPECT_EQ(json["runs"][0]["events"][0]["text"], "</script><b>");
  EXPECT_EQ(json["differences"], Json::parse(R"([["train.steps", ["5", "6"]]])"));
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg"));  // only the name of the SVG format: the page fetches nothing
}

// A long run with all curves. Rate and MFU fluctuate; the MFU is `mfu(step)` of the rate.
template <class F>
RunHistory long_run(Index steps, const F& mfu) {
  RunHistory run;
  run.name = "long", run.folder = "out/long", run.parameters = 1000000;
  for (Index step = 1; step <= steps; ++step) {
    const double noise = double(step * 7919 % 1000) / 1000, rate = 1e5 * (1 + noise);
    run.steps.push_back({.time = 1.7e9 + double(step) * 1.2345,
                         .step = step,
                         .tokens = double(step) * 524288,
                         .seconds = 524288 / rate,
                         .tokens_per_second = rate,
                         .mfu = rate * mfu(step),
                         .learning_rate = 1e-3 / (1 + noise),
                         .loss = 2 + noise,
                         .grad_norm = 1 + noise / 3,
                         .expert_load = NAN,
                         .memory_bytes = 1e9});
  }
  return run;
}

TEST(run_history, page_of_many_long_runs_stays_small) {
  const RunHistory run = long_run(100000, [](Index) { return 4e-6; });
  const std::string page = page_of({run});
  EXPECT_LT(page.size(), 300000U);
  const Json json = data_of(page)["runs"][0];
  EXPECT_EQ(json["axes"].size(), 1U) << "curves of the same steps share their axes";
  EXPECT_EQ(json["axes"][0]["step"].back(), 100000);
  EXPECT_LT(page_of(std::vector<RunHistory>(20, run)).size(), 1500000U);
}

// A second panel would show the same curve: MFU is the throughput times a constant while the ranks stay the same.
TEST(run_history, mfu_has_a_curve_only_if_not_proportional) {
  const auto json_of = [](const RunHistory& run) { return data_of(page_of({run}))["runs"][0]; };
  const Json steady = json_of(long_run(100, [](Index) { return 4e-6; }));
  EXPECT_FALSE(steady["curves"].contains("mfu"));
  EXPECT_NEAR(steady["mfu_per_rate"].get<double>(), 4e-4, 1e-9);
  EXPECT_EQ(steady["mfu_exact"], true);
  const Json measured_again = json_of(long_run(100, [](Index step) { return step > 50 ? 4e-6 : 4.2e-6; }));
  EXPECT_FALSE(measured_again["curves"].contains("mfu"));
  EXPECT_EQ(measured_again["mfu_exact"], false);
  const Json other_ranks = json_of(long_run(100, [](Index step) { return step > 50 ? 4e-6 : 8e-6; }));
  EXPECT_EQ(other_ranks["curves"]["mfu"]["value"].size(), 100U);
  EXPECT_TRUE(other_ranks["mfu_per_rate"].is_null());
}

TEST(run_history, page_names_host_program_command_and_times) {
  const Folder folder;
  folder.write("metrics.jsonl", json_text({{"kind", "start"},
                                           {"time", 100},
                                           {"step", 0},
                                           {"version", "1.2"},
                                           {"git", "abc"},
                                           {"host", "n7"},
                                           {"command", "gyrfalcon train 'a b.yaml'"}}) +
                                    "\n" + step_line(1, 103, 3) +
                                    json_text({{"kind", "end"}, {"time", 105}, {"state", "done"}, {"code", 0}, {"message", ""}}) + "\n");
  const Json json = data_of(page_of({read_history(folder.path())}))["runs"][0];
  EXPECT_EQ(json["host"], "n7");
  EXPECT_EQ(json["version"], "1.2");
  EXPECT_EQ(json["git"], "abc");
  EXPECT_EQ(json["command"], "gyrfalcon train 'a b.yaml'");
  EXPECT_EQ(json["path"], folder.path().string());
  EXPECT_EQ(json["begin"], 100.0);
  EXPECT_EQ(json["end"], 5.0);
  EXPECT_EQ(json["state"], "done");
}

// The elapsed time of drawn attempts: restarts by gyrfalcon run count, pauses before a start by the user do not.
TEST(run_history, elapsed_time_includes_restarts_without_pauses) {
  std::mt19937 random(seed_of_run());
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int trial = 0; trial < 50; ++trial) {
    std::string metrics;
    double time = 1000, elapsed = 0, useful = 0;
    int step = 0;
    for (int start = 0; start < 5; ++start) {
      const int attempt = start == 0 ? 0 : up_to(3) - 1, gap = up_to(100);
      time += gap, elapsed += attempt > 0 ? gap : 0;
      metrics += json_text({{"kind", "start"}, {"time", time}, {"step", step}, {"attempt", attempt}}) + "\n";
      for (int i = up_to(5); i > 0; --i) {
        const int seconds = up_to(9);
        time += seconds, elapsed += seconds, useful += 0.5;  // the seconds of step_line
        metrics += step_line(++step, time, 1);
      }
    }
    const Folder folder;
    folder.write("metrics.jsonl", metrics);
    const UsefulTime all = useful_time(folder / "metrics.jsonl", 0);
    EXPECT_EQ(all.elapsed(), elapsed) << metrics;
    EXPECT_EQ(all.useful(), useful) << metrics;
    EXPECT_EQ(read_history(folder.path()).useful.text(), fmt::format("{:.1f} %", 100 * useful / elapsed));
  }
}

TEST(run_history, summary_counts_repeated_steps_only_in_time) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 50; ++trial) {
    const Drawn d = drawn(random);
    const Folder folder;
    folder.write("metrics.jsonl", d.metrics);
    const RunSummary s = summary_of(read_history(folder.path()));
    double loss = 0;
    const std::size_t last = std::min<std::size_t>(10, d.counts.size());
    for (auto at = std::prev(d.counts.end(), std::ptrdiff_t(last)); at != d.counts.end(); ++at) loss += at->second / double(last);
    EXPECT_NEAR(s.loss, loss, 1e-12);
    EXPECT_EQ(s.tokens, 10 * double(d.counts.rbegin()->first));
    EXPECT_NEAR(s.step_seconds, 0.5 * double(d.taken), 1e-9);
    EXPECT_NEAR(s.kept_seconds, 0.5 * double(d.counts.size()), 1e-9);
    EXPECT_NEAR(useful_time(folder / "metrics.jsonl", 0).useful(), s.kept_seconds, 1e-9);
  }
}

// Element names of an XML document. It must be well-formed: every element is closed in order, and no text has a bare <
// or &.
std::multiset<std::string> elements_of(const std::string& xml) {
  std::multiset<std::string> all;
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      EXPECT_TRUE(std::regex_search(xml.begin() + std::ptrdiff_t(i), xml.end(), std::regex("^&(amp|lt|gt|quot);"))) << xml.substr(i, 20);
    }
    if (xml[i] != '<') continue;
    const std::size_t end = xml.find('>', i);
    EXPECT_NE(end, xml.npos);
    const std::string tag = xml.substr(i + 1, end - i - 1), name = tag.substr(0, tag.find_first_of(" \n/", 1));
    EXPECT_EQ(tag.find('<'), tag.npos) << tag;
    if (tag.starts_with('/')) {
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (all.insert(name), !tag.ends_with('/')) open.push_back(name);
    i = end;
  }
  EXPECT_TRUE(open.empty());
  return all;
}

// Coordinates (x, y) of all points of the path that follows the text `element`.
std::vector<std::pair<double, double>> points_of(const std::string& svg, const std::string& element) {
  const std::size_t from = svg.find("d=\"", svg.find(element)) + 3;
  const std::string d = svg.substr(from, svg.find('"', from) - from);
  std::vector<std::pair<double, double>> points;
  static const std::regex point("[ML](-?[0-9.]+) (-?[0-9.]+)");
  for (std::sregex_iterator at(d.begin(), d.end(), point), end; at != end; ++at) points.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return points;
}

TEST(run_history, picture_shows_each_counted_step_at_its_loss) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const Drawn d = drawn(random);
    const Folder folder;
    std::string metrics = d.metrics;
    const Index validations = Index(random() % 4);
    for (Index v = 0; v < validations; ++v)
      metrics += json_text({{"kind", "validation"}, {"time", 2e9}, {"step", d.counts.rbegin()->first + v}, {"loss", 3}}) + "\n";
    folder.write("metrics.jsonl", metrics);
    RunHistory run = read_history(folder.path());
    run.name = "a<\"b\"&amp;>";
    const std::string svg = picture_of({run});
    const auto elements = elements_of(svg);
    EXPECT_EQ(Index(elements.count("circle")), validations);
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_EQ(svg.find("inf"), svg.npos);
    const std::string drawing = svg.substr(svg.find(">step</text>"));
    const auto points = points_of(drawing, "<path class=\"line\"");
    ASSERT_EQ(points.size(), d.counts.size());
    // A later step is further right, and a smaller loss is further down.
    auto before = d.counts.begin();
    for (std::size_t i = 1; i < points.size(); ++i) {
      const auto now = std::next(before);
      EXPECT_GT(points[i].first, points[i - 1].first - 0.05);
      EXPECT_GE((points[i - 1].second - points[i].second) * (now->second - before->second), -0.1 * std::abs(now->second - before->second));
      before = now;
    }
    for (const auto& [x, y] : points) EXPECT_TRUE(x >= 0 && x <= 760 && y >= 0 && y <= 300) << x << " " << y;
  }
}

// The last mean is written right of the end of its curve, in the colour of the run. Values of equal curves do not overlap.
TEST(run_history, picture_shows_axis_names_and_last_values) {
  const RunHistory run = long_run(7, [](Index) { return 1e-6; });
  static const std::regex last("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" style=\"fill:(#[0-9a-f]+)\">([0-9.]+)</text>");
  std::vector<RunHistory> runs(3, run);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = std::string(1, char('a' + i));
  const std::string svg = picture_of(runs);
  EXPECT_NE(svg.find(">loss</text>"), svg.npos);
  EXPECT_NE(svg.find(">step</text>"), svg.npos);
  std::vector<double> heights;
  std::set<std::string> colours;
  for (std::sregex_iterator at(svg.begin(), svg.end(), last), end; at != end; ++at) {
    EXPECT_EQ((*at)[4], fmt::format("{:.4g}", run.steps.back().loss));
    EXPECT_GT(std::stod((*at)[1]), points_of(svg.substr(svg.find(">step</text>")), "<path class=\"line\"").back().first);
    EXPECT_LE(std::stod((*at)[1]) + 7 * double((*at)[4].length()), 760);
    heights.push_back(std::stod((*at)[2])), colours.insert((*at)[3]);
  }
  ASSERT_EQ(heights.size(), 3U);
  EXPECT_EQ(colours.size(), 3U);
  std::sort(heights.begin(), heights.end());
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 12);

  std::set<std::string> strokes;
  const std::string many = picture_of(std::vector<RunHistory>(20, run));
  static const std::regex stroke("class=\"line\" (stroke=\"[^\"]*\"(?: stroke-dasharray=\"[^\"]*\")?) d=\"M[0-9.]+ [0-9.]+H");
  for (std::sregex_iterator at(many.begin(), many.end(), stroke), end; at != end; ++at) strokes.insert((*at)[1]);
  EXPECT_EQ(strokes.size(), 20U);
}

TEST(run_history, picture_is_small_and_handles_extreme_losses) {
  const Folder folder;
  std::string metrics;
  for (Index step = 1; step <= 100000; ++step) metrics += step_line(step, double(step), 2 + 100.0 / double(step) + double(step % 7) / 10);
  folder.write("metrics.jsonl", metrics);
  const RunHistory run = read_history(folder.path());
  const std::string svg = picture_of({run, run});
  EXPECT_LT(svg.size(), 32768U);
  EXPECT_EQ(elements_of(svg).count("path") - elements_of(svg).count("circle"),
            elements_of(picture_of({run})).count("path") + 3);  // a second run adds three paths: for its name, its band and its line
  RunHistory validated = run;
  for (const TakenStep& s : run.steps)
    if (s.step % 100 == 0)
      validated.validations.push_back(
          {.time = s.time, .step = s.step, .tokens = s.tokens, .loss = s.loss, .accuracy = NAN, .order_accuracy = NAN, .margin = NAN});
  const std::string with_circles = picture_of({validated});
  EXPECT_EQ(elements_of(with_circles).count("circle"), 40U);
  static const std::regex tick("<text class=\"x\" x=\"([0-9.]+)\" y=\"[0-9.]+\">([0-9]+)</text>");
  int ticks = 0;
  for (std::sregex_iterator at(with_circles.begin(), with_circles.end(), tick), end; at != end; ++at, ++ticks)
    EXPECT_LE(std::stod((*at)[1]) + 3.5 * double((*at)[2].length()), 760);
  EXPECT_GE(ticks, 5);
  RunHistory single = run;
  single.steps.resize(1);
  EXPECT_NE(picture_of({single}).find("h0\"/>"), std::string::npos);  // a single step is drawn as a dot

  EXPECT_EQ(points_of(svg, "<path class=\"band\"").size(), 2 * points_of(svg.substr(svg.find("class=\"band\"")), "<path class=\"line\"").size());

  std::vector<RunHistory> many(12, run);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].steps.resize(1 + i), many[i].name = std::string(1 + i * 5, 'n');
  std::set<std::string> places;
  const std::string sweep = picture_of(many);
  static const std::regex name("<text x=\"([0-9.]+)\" y=\"([0-9]+)\">(n+)(\\.\\.\\.)?</text>");
  for (std::sregex_iterator at(sweep.begin(), sweep.end(), name), end; at != end; ++at) {
    places.insert((*at)[1].str() + " " + (*at)[2].str());
    EXPECT_LE(std::stod((*at)[1]) + 7 * double((*at)[3].length()), 760);
    EXPECT_LE((*at)[3].length(), 40);
  }
  EXPECT_EQ(places.size(), many.size());  // no two names overlap

  for (const std::vector<double>& losses :
       {std::vector<double>{5}, {0, 0}, {-1e308, 1e308}, {1e-300, 2e-300}, {3, NAN, INFINITY, 3}, {1e15, 1e15 + 1}}) {
    RunHistory strange = run;
    strange.steps.assign(losses.size(), run.steps[0]);
    for (std::size_t i = 0; i < losses.size(); ++i) strange.steps[i].step = Index(i), strange.steps[i].loss = losses[i];
    const std::string picture = picture_of({strange});
    elements_of(picture);
    EXPECT_EQ(picture.find("nan"), picture.npos) << picture;
    EXPECT_EQ(picture.find("inf"), picture.npos) << picture;
    EXPECT_LT(picture.size(), 8192U);
  }
  RunHistory none = run;
  for (TakenStep& s : none.steps) s.loss = NAN;
  EXPECT_EQ(error_of([&] { picture_of({none}); }).code, Exit::data);
}

TEST(run_history, repeated_end_records_of_ranks_count_once) {
  const Folder folder;
  const std::string end = json_text({{"kind", "end"}, {"state", "hung"}, {"code", 75}, {"message", "rank 3"}}) + "\n";
  folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 1}, {"step", 0}}) + "\n" + step_line(1, 2, 3) + end + end + end);
  const RunHistory history = read_history(folder.path());
  EXPECT_EQ(history.events.size(), 2U);
  EXPECT_EQ(history.state, "failed");
  EXPECT_NE(text_of(std::vector<RunHistory>{history}).find("rank 3"), std::string::npos);
  EXPECT_EQ(sparkline({-1e308, 1e308}), "▁█");
}

TEST(run_history, folder_without_steps_is_an_error) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { read_history(folder.path()); }).code, Exit::missing);
  folder.write("metrics.jsonl", "{\"kind\":\"run\"}\nnonsense\n");
  EXPECT_EQ(error_of([&] { read_history(folder.path()); }).code, Exit::data);
}

// A socket is a file that exists but cannot be opened, not even by root.
TEST(run_history, unreadable_metrics_are_not_reported_as_missing) {
  const Folder folder;
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  std::snprintf(name.sun_path, sizeof name.sun_path, "%s", (folder / "metrics.jsonl").c_str());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(error_of([&] { read_history(folder.path()); }).code, Exit::io);
  ::close(socket);
}

TEST(run_history, sparkline_bars_rise_with_values) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({5, NAN, 5}), "▁ ▁");
}

}  // namespace
}  // namespace gyr::testing::run_history_suite
