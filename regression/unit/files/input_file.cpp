// SPDX-License-Identifier: BSD-3-Clause
// Files from outside: only regular files are read, without waiting, and JSON lines of any shape are survived.
#include "src/base/input_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/base/json.hpp"
#include "src/base/runs_near.hpp"
#include "src/history/useful_time.hpp"
#include "src/train/recent_metrics.hpp"

namespace gyr::testing::input_file_suite {
namespace {

namespace fs = std::filesystem;

TEST(input_file, only_regular_files_are_opened) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder / "folder");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  const std::pair<fs::path, Exit> cases[] = {{folder / "pipe", Exit::data},        {folder / "folder", Exit::data},  {"/dev/zero", Exit::data},
                                             {folder / "dangling", Exit::missing}, {folder / "none", Exit::missing}, {folder / "loop", Exit::io}};
  for (const auto& [path, code] : cases) {
    const Error error = error_of([&] { text_of_file(path, 100); });
    EXPECT_EQ(error.code, code) << path;
    EXPECT_TRUE(std::string(error.what()).starts_with(path.string() + ": ")) << error.what();
    EXPECT_EQ(text_or_nothing(path, 100), "");
  }
}

TEST(input_file, text_is_read_up_to_its_limit) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    const std::size_t size = random() % 200'000, most = random() % 200'000;
    std::string text(size, '\0');
    for (char& c : text) c = char(random());
    const fs::path file = folder.write("file", text);
    EXPECT_EQ(text_or_nothing(file, most), size <= most ? text : "");
    const std::int64_t offset = std::int64_t(random() % (size + 10));
    const std::size_t count = random() % 300'000;
    std::string part(count, '\0');
    part.resize(InputFile(file).read(offset, part.data(), count));
    EXPECT_EQ(part, std::size_t(offset) < size ? text.substr(std::size_t(offset), count) : "");
  }
  EXPECT_GT(text_or_nothing("/proc/self/stat", 4096).size(), 20u);  // its size is 0 until it is read
}

TEST(input_file, json_lines_of_any_length_are_split) {
  const Folder folder;
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 60; ++draw) {
    std::string text;
    std::vector<Json> expected;
    std::int64_t broken = 0;
    for (unsigned n = random() % 9; n > 0; --n) {
      const unsigned kind = random() % 6;
      const std::size_t size = random() % 3 == 0 ? random() % 200'000 : random() % 100;
      const Json object{{"a", std::string(size, 'x')}, {"n", n}};
      const std::string line = kind == 0 ? "" : kind == 1 ? std::string(size + 1, 'z') : kind == 2 ? "[1, 2]" : object.dump();
      if (kind > 2 && line.size() <= most_json) expected.push_back(object);
      else broken += !line.empty();
      text += line + (n == 1 && random() % 2 ? "" : "\n");
    }
    std::vector<Json> found;
    EXPECT_EQ(visit_json_lines(folder.write("lines", text), [&](const Json& line) { found.push_back(line); }), broken);
    EXPECT_EQ(found, expected);
    const std::int64_t last = std::int64_t(random() % (text.size() + 2));
    std::size_t count = 0;
    visit_json_lines(
        folder / "lines", [&](const Json&) { ++count; }, last);
    EXPECT_LE(count, expected.size());
  }
}

TEST(input_file, json_fields_of_another_type_count_as_absent) {
  Mutation mutation(seed_of_run());
  for (int draw = 0; draw < 500; ++draw) {
    const Json object{{"a", mutation.value()}};
    const Json& value = object["a"];
    EXPECT_EQ(text_in(object, "a"), value.is_string() ? value.get<std::string>() : "");
    EXPECT_EQ(std::isnan(number_in(object, "a")), !value.is_number());
    const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63);
    ASSERT_EQ(integer_in(object, "a").has_value(), fits) << value;
    if (fits) {
      EXPECT_EQ(*integer_in(object, "a"), value.get<std::int64_t>());
    }
    EXPECT_FALSE(integer_in(object, "b") || !std::isnan(number_in(object, "b")) || !text_in(object, "b").empty());
  }
}

// Lines of another shape are skipped: the losses and seconds of all other lines are found.
TEST(input_file, metrics_with_damaged_lines_keep_all_others) {
  const Folder folder;
  Mutation mutation(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    std::string text;
    std::vector<double> losses;
    double seconds = 0;
    for (int step = 1; step <= 20; ++step) {
      Json line{{"kind", "step"}, {"time", 5}, {"step", step}, {"loss", 1.0 / step}, {"seconds", 0.5}};
      const char* const damaged[] = {"kind", "step", "loss"};
      if (mutation.up_to(3) == 0) {
        Json other = mutation.value();
        const char* key = damaged[mutation.up_to(2)];
        if (mutation.up_to(3) == 0) line = other;
        else line[key] = other.is_number() ? Json("number") : other;
        if (line.is_object() && std::string(key) == "loss" && line != other) seconds += 0.5;  // the step itself is still known
      } else {
        losses.push_back(1.0 / step), seconds += 0.5;
      }
      text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    const fs::path file = folder.write("metrics.jsonl", text);
    if (text.find("\"kind\":\"run\"") != text.npos) continue;  // a line that sets all lines before it aside
    EXPECT_EQ(recent_metrics(file, 20, 100).losses, losses) << text;
    EXPECT_EQ(useful_time(file, 1).useful(), seconds) << text;
  }
  EXPECT_TRUE(recent_metrics(folder / "none", 3, 9).losses.empty());
  EXPECT_EQ(useful_time(folder.path(), 1).useful(), 0);
}

// Messages about a folder name the runs in it, or the run that it belongs to.
TEST(input_file, message_names_runs_below_and_above) {
  const Folder folder;
  const auto outer = folder.path() / "out";
  for (const char* name : {"b", "a", "other"}) std::filesystem::create_directories(outer / name / "checkpoints" / "step_00000001");
  EXPECT_EQ(runs_near(outer), "");
  EXPECT_EQ(runs_near(folder.path() / "missing"), "");
  for (const char* run : {"b", "a"}) std::ofstream(outer / run / "metrics.jsonl") << "{}\n";
  EXPECT_EQ(runs_near(outer), "; runs below " + outer.string() + ": " + (outer / "a").string() + ", " + (outer / "b").string());
  for (const char* inside : {"checkpoints", "checkpoints/", "checkpoints/step_00000001"})
    EXPECT_EQ(runs_near(outer / "a" / inside), "; the folder of the run is " + (outer / "a").string()) << inside;
  EXPECT_EQ(runs_near(outer / "other"), "");
}

}  // namespace
}  // namespace gyr::testing::input_file_suite
