// SPDX-License-Identifier: BSD-3-Clause
// Every key of the JSON files that a run writes is in the tables of src/files.md, and every key of the tables occurs in
// the files of these short runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "regression/support/material.hpp"

namespace gyr::testing::files_suite {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Keys = std::set<std::string>;

namespace {

// Words in backticks in the first cell of the table rows below each heading of the page. The row of titles is skipped.
std::map<std::string, Keys> tables_of_page() {
  std::map<std::string, Keys> tables;
  std::string heading, row;
  for (const std::string& line : lines_of(contents(fs::path(GYR_SOURCE_DIR) / "src/files.md"))) {
    if (line.starts_with("#")) heading = line.substr(line.find(' ') + 1);
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find('|', 1));
    static const std::regex word("`([^`]+)`");
    for (std::sregex_iterator w(cell.begin(), cell.end(), word), end; w != end; ++w) tables[heading].insert((*w)[1]);
  }
  return tables;
}

const Keys& table(const std::string& heading) {
  static const auto tables = tables_of_page();
  return tables.at(heading);
}

// Paths of all values: a.b for objects, a[].b for arrays of objects.
void add_keys(const Json& json, const std::string& path, Keys& keys) {
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) add_keys(value, path.empty() ? name : path + "." + name, keys);
  } else if (json.is_array() && !json.empty() && json[0].is_object()) {
    for (const Json& element : json) add_keys(element, path + "[]", keys);
  } else {
    keys.insert(path);
  }
}

// True if the key of the page stands for the key of a file: they are equal, or the page has a.* for all keys of a.
bool stands_for(const std::string& of_page, const std::string& of_file) {
  return of_page == of_file || (of_page.ends_with(".*") && of_file.starts_with(of_page.substr(0, of_page.size() - 1)));
}

void expect_documented(const Keys& page, const Keys& files, const std::string& what) {
  EXPECT_FALSE(files.empty()) << what;
  for (const std::string& key : files)
    EXPECT_TRUE(std::any_of(page.begin(), page.end(), [&](const std::string& p) { return stands_for(p, key); }))
        << what << ": " << key << " is not in src/files.md";
}

void expect_written(const Keys& page, const Keys& files, const std::string& what) {
  for (const std::string& key : page)
    EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const std::string& f) { return stands_for(key, f); }))
        << what << ": no run has written " << key << ", which is in src/files.md";
}

void expect_same(const std::vector<Json>& files, const std::string& heading) {
  Keys keys;
  for (const Json& file : files) add_keys(file, "", keys);
  expect_documented(table(heading), keys, heading);
  expect_written(table(heading), keys, heading);
}

fs::path trained(const Folder& folder, const std::string& name, Words changes, int ranks = 0, int code = 0) {
  changes.insert(changes.begin(), {"train.steps=3", "checkpoint.every=2", "train.eval_every=2", "train.eval_batches=1"});
  const Result r = run(Material::get().train(folder / name, changes), {.ranks = ranks});
  EXPECT_EQ(r.code, code) << name << "\n" << output_of(r);
  return folder / name;
}

const Words encoder{"model.pattern='*-*-'", "model.attention.causal=false", "data.order=documents", "data.documents=separate"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Token files of texts with a class each.
fs::path classes(const Folder& folder) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += Json{{"text", i % 2 ? "ka lo" : "mi ren"}, {"label", i % 2}}.dump() + "\n";
  put_contents(folder / "classes.jsonl", lines);
  const Result r =
      run({"data", "build", folder / "classes.jsonl", folder / "classes", "--tokenizer", Material::get().tokenizer(), "--classes", "a,b"});
  EXPECT_EQ(r.code, 0) << output_of(r);
  return folder / "classes";
}

// Output folders of runs that write every event and every optional key.
std::vector<fs::path> runs(const Folder& folder) {
  const Words experts{"model.pattern=*E", "model.moe.experts=4", "model.moe.intermediate_size=8", "model.moe.capacity_factor=1"};
  const std::string cluster = "parallel.cluster=" + std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml";
  const Words classifier{"train.objective=classify", "train.classify.labels=[a, b]", "data.prefixes=[" + classes(folder).string() + "]"};
  const Words ordered{"train.objective=mlm", "train.mlm.mask_token=1", "train.mlm.sentence_order=true", "model.type_vocab_size=2"};
  const Words broken{"fault.kind=nan", "fault.step=2"};
  return {trained(folder, "experts", experts),
          trained(folder, "ahead", {"train.objective=mtp", "train.mtp.depths=1"}),
          trained(folder, "ordered", with(encoder, ordered)),
          trained(folder, "classes", with(encoder, classifier)),
          trained(folder, "planned", {"parallel.plan=auto", cluster}),
          trained(folder, "skipped", with(broken, {"train.non_finite=skip"})),
          trained(folder, "rolled back", with(broken, {"train.non_finite=rollback"}))};
}

// Checkpoint of a model from a Hugging Face folder, which keeps the small files of the folder.
fs::path imported(const Folder& folder) {
  for (const Words& words : {Words{"export-hf", Material::get().trained(), folder / "hf"}, Words{"import-hf", folder / "hf", folder / "imported"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << output_of(r);
  }
  return folder / "imported";
}

// Headings of the page by event.
const std::map<std::string, std::string> event_headings{{"run", "run and start"},
                                                        {"start", "run and start"},
                                                        {"step", "step"},
                                                        {"validation", "validation"},
                                                        {"checkpoint", "checkpoint, skip, rollback, prediction, timers, end"},
                                                        {"skip", "checkpoint, skip, rollback, prediction, timers, end"},
                                                        {"rollback", "checkpoint, skip, rollback, prediction, timers, end"},
                                                        {"prediction", "checkpoint, skip, rollback, prediction, timers, end"},
                                                        {"timers", "checkpoint, skip, rollback, prediction, timers, end"},
                                                        {"end", "checkpoint, skip, rollback, prediction, timers, end"}};

TEST(files, every_key_of_metrics_is_documented) {
  const Folder folder;
  std::map<std::string, Keys> keys;  // by event
  for (const fs::path& output : runs(folder))
    for (const std::string& line : lines_of(contents(output / "metrics.jsonl"))) {
      const Json event = Json::parse(line);
      ASSERT_TRUE(event_headings.contains(event.at("kind"))) << line;
      add_keys(event, "", keys[event.at("kind")]);
    }
  std::map<std::string, Keys> of_heading{{"validation", {"margin"}}};  // written by objectives that need logits of a reference
  for (const auto& [event, heading] : event_headings) {
    Keys allowed = table("metrics.jsonl");
    allowed.insert(table(heading).begin(), table(heading).end());
    expect_documented(allowed, keys[event], event);
    of_heading[heading].insert(keys[event].begin(), keys[event].end());
  }
  for (const auto& [heading, found] : of_heading) expect_written(table(heading), found, heading);
  EXPECT_EQ(table("metrics.jsonl"), (Keys{"kind", "time"}));
}

TEST(files, every_key_of_run_files_is_documented) {
  const Folder folder;
  const fs::path output = trained(folder, "run", {"trace.on=true", "trace.steps=[2]", "dump.steps=[2]", "parallel.data=2"}, 2);
  expect_same({json_in(output / "status.json")}, "status.json");
  expect_same({json_in(output / "run.json")}, "run.json");
  expect_same({json_in(Material::get().prefix().string() + ".json")}, "PREFIX.json");
  expect_same({json_in(output / "trace/step_00000002.json")}, "trace");
  std::vector<Json> manifests;
  for (const fs::path& stored : {output / "checkpoints/step_00000002", output / "dumps/step_00000002", imported(folder)}) {
    const Json file = json_in(stored / "manifest.json");
    EXPECT_EQ(file.size(), 2u) << file.dump();
    EXPECT_TRUE(file.contains("xxh3"));
    manifests.push_back(file.at("manifest"));
  }
  expect_same(manifests, "manifest.json");
  Keys found;  // files and folders of the run, as in the first table
  for (const auto& entry : fs::directory_iterator(output)) found.insert(entry.path().filename());
  const Keys& named = table("Files that a run writes");
  for (const std::string& name : found)
    EXPECT_TRUE(std::any_of(named.begin(), named.end(), [&](const std::string& n) { return n.substr(0, n.find('/')) == name; })) << name;
}

TEST(files, every_key_of_supervisor_is_documented) {
  const Folder folder;
  Words words = Material::get().train(folder / "run", {"train.steps=3", "checkpoint.every=1", "fault.kind=kill", "fault.step=2"});
  words[0] = "run";
  for (const char* more : {"-n", "2"}) words.push_back(more);
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << output_of(r);
  expect_same({json_in(folder / "run/supervisor.json"), json_in(folder / "run/exit_record.0.json")}, "supervisor.json");
}

}  // namespace

}  // namespace gyr::testing::files_suite
