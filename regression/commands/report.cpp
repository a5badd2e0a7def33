// SPDX-License-Identifier: BSD-3-Clause
// Tests of `gyrfalcon report` on a killed and on an undisturbed run, as text and as an HTML page.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <regex>
#include <thread>

#include "regression/support/material.hpp"

namespace gyr::testing::report_suite {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const Material& material() { return Material::get(); }

// The line that begins with this word, with repeated spaces removed.
std::string line_with(const std::string& text, const std::string& word) {
  for (const std::string& line : lines_of(text))
    if (line.starts_with(word + " ")) {
      std::string words;
      for (const char c : line)
        if (c != ' ' || words.back() != ' ') words += c;
      return words;
    }
  return "";
}

}  // namespace

TEST(report, ps_shows_a_run_that_is_starting) {
  const Folder folder;
  Json owner{{"host", "elsewhere"}, {"pid", 7}, {"job", "12"}};  // as src/job/run_lock.cpp writes it
  put_contents(folder / "lock", owner.dump());
  const Result r = run({"ps", folder.path()});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(r.out, "state: starting (process 7 on elsewhere, job 12; its ranks have sent no heartbeat yet)\n");
  put_contents(folder / "lock", "");
  EXPECT_EQ(run({"ps", folder.path()}).code, int(Exit::missing));
}

TEST(report, supervisor_and_report_state_the_same_useful_time) {
  const Folder folder;
  Words words = material().train(folder.path(), {"train.steps=30", "checkpoint.every=10", "fault.kind=kill", "fault.step=25"});
  words[0] = "run";
  words.insert(words.end(), {"-n", "1", "--launcher", "none"});
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << output_of(r);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(r.out, found, std::regex("useful time ([0-9.]+ %): .* elapsed between the first and the last record; 1 restart")))
      << r.out;
  const double percent = std::stod(found[1]);
  EXPECT_GT(percent, 0);
  EXPECT_LT(percent, 100);
  EXPECT_EQ(line_with(run({"report", folder.path()}).out, "useful time"), "useful time " + found[1].str());
}

TEST(report, report_shows_kills_and_differences_between_decks) {
  const Folder killed, full;
  // The two steps after the checkpoint are repeated. The first rank may not have logged the second of them before the
  // kill.
  const Words steps{"train.steps=6", "optimizer.decay_steps=6", "checkpoint.every=3"};
  Words with = steps;
  with.insert(with.end(), {"fault.kind=kill", "fault.rank=1", "fault.step=6"});
  run(material().train(killed.path(), with), {.ranks = 2});
  // After three missing heartbeats the run is reported as killed, whatever status.json contains.
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  EXPECT_EQ(line_with(run({"report", killed.path().string()}).out, "state"), "state killed");
  const std::string state = last_line_of(run({"ps", killed.path()}).out);
  EXPECT_TRUE(std::regex_match(state, std::regex(R"(state: killed \(no final record, no heartbeat for \d+ s; last at step [0-6]\))"))) << state;
  // Between two attempts, only the supervisor lives.
  put_contents(killed / "supervisor.lock", Json{{"host", "elsewhere"}, {"pid", 7}, {"job", "12"}}.dump());
  EXPECT_EQ(line_with(run({"report", killed.path().string()}).out, "state"), "state restarting");
  EXPECT_EQ(last_line_of(run({"ps", killed.path()}).out),
            "state: restarting (process 7 on elsewhere, job 12; the heartbeats are those of an earlier attempt)");
  fs::remove(killed / "supervisor.lock");
  Words again = material().train(killed.path(), steps);
  again.push_back("--resume");
  Result r = run(again, {.ranks = 2});
  ASSERT_EQ(r.code, 0) << output_of(r);
  Words other = steps;
  other.push_back("optimizer.lr=1e-4");
  r = run(material().train(full.path(), other), {.ranks = 2});
  ASSERT_EQ(r.code, 0) << output_of(r);

  r = run({"report", killed.path().string()});
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(line_with(r.out, "step"), "step 6 of 6");
  EXPECT_EQ(line_with(r.out, "starts"), "starts 2");
  EXPECT_EQ(line_with(r.out, "kills"), "kills 1");
  EXPECT_NE(r.out.find(" killed "), r.out.npos) << r.out;
  EXPECT_NE(r.out.find("slowest rank"), r.out.npos) << r.out;

  r = run({"report", killed.path().string(), full.path().string()});
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_TRUE(line_with(r.out, "optimizer.lr").ends_with(" 0.0001")) << r.out;
  EXPECT_EQ(line_with(r.out, "train.steps"), "") << r.out;

  const fs::path page = killed / "page.html";
  r = run({"report", killed.path().string(), full.path().string(), "--html", page.string()});
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(r.out, "wrote " + page.string() + " (2 runs)\n");
  const std::string text = contents(page), begin = "id=\"numbers\">";
  const std::size_t from = text.find(begin) + begin.size();
  const Json data = Json::parse(text.substr(from, text.find("</script>", from) - from));
  const Json& first = data["runs"][0];
  EXPECT_EQ(first["axes"][first["curves"]["loss"]["axis"].get<std::size_t>()]["step"], Json({1, 2, 3, 4, 5, 6}));
  EXPECT_NE(first["command"].get<std::string>().find(" --resume"), std::string::npos);
  EXPECT_FALSE(first["host"].get<std::string>().empty() || first["git"].get<std::string>().empty());
  EXPECT_FALSE(data["runs"][0]["curves"]["loss_overtaken"].is_null());
  EXPECT_TRUE(data["runs"][1]["curves"]["loss_overtaken"].is_null());
  EXPECT_GT(data["runs"][0]["memory"].size(), 3U);
}

// A page or a picture of an earlier report is replaced, and no other file.
TEST(report, report_replaces_only_its_own_files) {
  const Folder folder;
  put_contents(folder / "metrics.jsonl", "{\"kind\": \"step\", \"time\": 1, \"step\": 1, \"loss\": 2}\n");
  for (const std::string option : {"--html", "--svg"}) {
    const fs::path file = folder / ("file" + option);
    const auto report = [&] { return run({"report", folder.path().string(), option, file.string()}); };
    for (const std::string& text : {std::string("a thesis"), std::string("<!doctype html>\n"), std::string()}) {
      put_contents(file, text);
      const Result r = report();
      EXPECT_EQ(r.code, 64);
      EXPECT_NE(r.err.find("file" + option + ": exists, and gyrfalcon did not write it"), r.err.npos) << output_of(r);
      EXPECT_EQ(contents(file), text);
    }
    fs::remove(file);
    for (int time = 0; time < 2; ++time) {
      const Result r = report();
      EXPECT_EQ(r.code, 0) << output_of(r);
    }
  }
}

TEST(report, report_refuses_a_folder_without_metrics) {
  const Folder folder;
  const Result r = run({"report", folder.path().string()});
  EXPECT_EQ(r.code, 66);
  EXPECT_NE(r.err.find("there is no metrics.jsonl"), r.err.npos) << output_of(r);
}

TEST(report, report_refuses_writing_to_pipe_or_full_disk) {
  const Folder folder;
  put_contents(folder / "metrics.jsonl", "{\"kind\": \"step\", \"time\": 1, \"step\": 1, \"loss\": 2}\n");
  const fs::path pipe = folder / "pipe", link = folder / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, link);
  for (const fs::path& name : {pipe, link}) {
    const Result r = run({"report", folder.path().string(), "--html", name.string()});
    EXPECT_EQ(r.code, 74);
    EXPECT_NE(r.err.find("is a device or a pipe"), r.err.npos) << output_of(r);
  }
  EXPECT_TRUE(fs::is_fifo(pipe) && fs::is_symlink(link));
  const Result r = run({"report", folder.path().string()}, {.file_limit = 100});
  EXPECT_EQ(r.code, 74);
  EXPECT_NE(r.err.find("standard output cannot be written"), r.err.npos) << output_of(r);
}

}  // namespace gyr::testing::report_suite
