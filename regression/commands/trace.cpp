// SPDX-License-Identifier: BSD-3-Clause
// Tests of trace.on and `gyrfalcon trace show`: tracing changes no bit, times add up, a rank slowed by a fault is
// named, and an invalid file gives one error.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "regression/support/material.hpp"

namespace gyr::testing::trace_suite {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const Material& material() { return Material::get(); }

// Runs on two data-parallel ranks.
Result train(const fs::path& output, Words changes) {
  changes.insert(changes.end(), {"parallel.tensor=1", "parallel.data=2"});
  return run(material().train(output, changes), {.ranks = 2});
}

}  // namespace

TEST(trace, tracing_writes_step_files_and_changes_no_bit) {
  const Folder with, without;
  const Words steps{"train.steps=4", "optimizer.decay_steps=4"};
  Words traced = steps;
  traced.insert(traced.end(), {"trace.on=true", "trace.steps=[2, 4]"});
  Result r = train(without.path(), steps);
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_FALSE(fs::exists(without / "trace"));
  r = train(with.path(), traced);
  ASSERT_EQ(r.code, 0) << output_of(r);
  expect_bitwise_equal_runs(with.path(), without.path(), 4);

  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(with / "trace")) files.insert(entry.path().filename());
  EXPECT_EQ(files, (std::set<std::string>{"step_00000002.json", "step_00000004.json"}));
  const Json trace = json_in(with / "trace/step_00000004.json");
  ASSERT_TRUE(trace.is_object());
  EXPECT_EQ(trace["otherData"]["step"], 4);
  std::map<std::pair<std::string, std::string>, int> seen;  // number of events, by rank and event name
  std::map<int, std::string> names;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "M" && e["name"] == "process_name") names[e["pid"]] = e["args"]["name"];
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] != "M") ++seen[{names.at(e["pid"]), e["cat"].get<std::string>() + " " + std::string(e["name"])}];
  for (const char* rank : {"rank 0: data 0", "rank 1: data 1"})
    for (const char* what : {"task step", "task data", "task forward", "task backward", "task reduce", "task optimizer", "transfer data all_reduce",
                             "wait wait data all_reduce"})
      EXPECT_TRUE((seen.contains({rank, what}))) << rank << ": " << what;
}

TEST(trace, trace_show_summarises_the_files_of_a_run) {
  const Folder folder;
  Result r = train(folder.path(), {"train.steps=4", "trace.on=true", "trace.kernels=true"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  for (const fs::path& from : {folder.path(), folder / "trace", folder / "trace/step_00000003.json"}) {
    r = run({"trace", "show", from});
    EXPECT_EQ(r.code, 0) << output_of(r);
    EXPECT_TRUE(r.err.empty()) << r.err;
    for (const char* word : {"of 2 ranks", "busy ", "wait data ", "rest ", "hidden ", "forward", "backward"})
      EXPECT_NE(r.out.find(word), std::string::npos) << word << "\n" << r.out;
    EXPECT_NE(r.out.find(from.extension() == ".json" ? "step 3 of" : "steps 2, 3, 4 of"), std::string::npos) << "default steps\n" << r.out;
  }
}

// Compares the work of the ranks, because other processes on this machine can also slow a forward pass of one
// millisecond.
TEST(trace, trace_show_names_the_straggler_rank) {
  for (const int slow : {0, 1}) {
    const Folder folder;
    Result r = train(folder.path(), {"train.steps=6", "train.seq_length=128", "trace.on=true", "trace.steps=[4, 5, 6]", "fault.kind=slow:4",
                                     fmt::format("fault.rank={}", slow)});
    ASSERT_EQ(r.code, 0) << output_of(r);
    r = run({"trace", "show", folder.path()});
    ASSERT_EQ(r.code, 0) << output_of(r);
    for (const int rank : {0, 1}) {
      const auto lines = lines_of(r.out);
      const auto line = std::find_if(lines.begin(), lines.end(),
                                     [&](const std::string& l) { return l.starts_with(fmt::format("slow: rank {}: data {} on ", rank, rank)); });
      EXPECT_EQ(line != lines.end() && line->find("work") != std::string::npos, rank == slow) << r.out;
    }
  }
}

TEST(trace, invalid_trace_files_give_one_error_and_code) {
  const Folder folder;
  const auto refused = [&](const fs::path& file, int code, const std::string& why) {
    const Result r = run({"trace", "show", file});
    EXPECT_EQ(r.code, code) << output_of(r);
    EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
    EXPECT_TRUE(r.err.starts_with("gyrfalcon: ")) << r.err;
    EXPECT_NE(r.err.find(why), std::string::npos) << r.err;
    EXPECT_TRUE(r.out.empty()) << r.out;
  };
  refused(folder / "absent.json", 66, "absent.json");
  refused(folder.path(), 66, "trace.on=true");
  refused(material().deck(), 65, "not valid JSON");
  refused(material().tokenizer(), 65, "no trace that gyrfalcon train has written");
  put_contents(folder / "t.json", R"({"otherData":{"program":"gyrfalcon"},"traceEvents":[{"ph":"X","cat":"task","pid":0,"name":"step","ts":0}]})");
  refused(folder / "t.json", 65, "event 0: `dur`");
  EXPECT_EQ(run({"trace"}).code, 64);
  EXPECT_EQ(run({"trace", "show"}).code, 64);
  const Result r = train(folder / "out", {"train.steps=1", "trace.on=true", "trace.steps=[]"});
  EXPECT_EQ(r.code, 78) << output_of(r);
  EXPECT_NE(r.err.find("trace.steps is empty"), std::string::npos) << r.err;
}

}  // namespace gyr::testing::trace_suite
