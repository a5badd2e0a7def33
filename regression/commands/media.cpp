// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon data media: a store that h5py reads, equal bytes on any number of ranks and after kills, and bad files and
// lines, which are named and refused or skipped.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "regression/support/base64.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::media_suite {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const json& golden() {
  static const json all = json::parse(contents(fs::path(GYR_SOURCE_DIR) / "regression/golden/media_images.json"));
  return all;
}

// A folder of pictures, lines that name them in all three forms, and processors.
struct Pictures {
  Folder folder;
  fs::path lines = folder / "lines.jsonl", processor = folder / "tiles", one = folder / "one";
  std::string text;

  Pictures() {
    fs::create_directory(folder / "pictures");
    std::vector<std::string> names;
    for (const auto& file : golden()["files"]) {
      names.push_back("pictures/" + file["name"].get<std::string>());
      put_contents(folder / names.back(), bytes_of_base64(file["data"]));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string a = names[i], b = names[(5 * i + 1) % names.size()];
      const json row =
          i % 3 == 0 ? json{{"messages", {{{"role", "user"}, {"content", {image_part(a), {{"type", "text"}, {"text", "Is this <image>?"}}}}}}}}
          : i % 3 == 1
              ? json{{"image", {a, b}}, {"conversations", {{{"from", "human"}, {"value", "<image> or <image>"}}, {{"from", "gpt"}, {"value", "a"}}}}}
              : json{{"text", "<image> is shown."}, {"images", {a}}};
      text += row.dump() + "\n";
      if (i % 7 == 0) text += "\n{\"text\": \"no picture\"}\n";
    }
    put_contents(lines, text);
    for (const auto& [name, config] : golden()["processors"].items()) {
      fs::create_directory(folder / name);
      put_contents(folder / name / "preprocessor_config.json", config.dump());
    }
    const Result r = run(command(one));
    EXPECT_EQ(r.code, 0) << output_of(r);
  }
  static json image_part(const std::string& path) { return {{"type", "image"}, {"path", path}}; }
  Words command(const fs::path& prefix) const { return {"data", "media", lines, prefix, "--processor", processor, "--block", "3"}; }
};

const Pictures& pictures() {
  static const Pictures all;
  return all;
}

std::string store_of(const fs::path& prefix) { return contents(prefix.string() + ".media.h5"); }

class media : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result r = run({"data", "media", "none.jsonl", "none", "--processor", pictures().processor});
    if (r.err.find("this build cannot decode images") != r.err.npos) GTEST_SKIP() << r.err;
  }
};

void expect_refused(const Words& words, Exit code, const std::string& part) {
  const Result r = run(words);
  EXPECT_EQ(r.code, int(code)) << output_of(r);
  EXPECT_NE(r.err.find(part), std::string::npos) << part << "\n" << output_of(r);
}

// Runs the command on these lines, with further words.
Result run_on(const std::string& lines, const Words& further = {}) {
  const fs::path file = pictures().folder / "bad.jsonl";
  put_contents(file, lines);
  Words words{"data", "media", file, pictures().folder / "bad", "--processor", pictures().processor, "--overwrite"};
  words.insert(words.end(), further.begin(), further.end());
  return run(words);
}

std::string line_of(const std::string& path) { return json{{"text", "<image>"}, {"images", {path}}}.dump() + "\n"; }

}  // namespace

TEST_F(media, stores_are_equal_on_any_number_of_ranks) {
  const std::string expected = store_of(pictures().one);
  EXPECT_GT(expected.size(), 100'000u);
  for (const int ranks : {2, 3}) {
    const fs::path prefix = pictures().folder / fmt::format("ranks{}", ranks);
    const Result r = run(pictures().command(prefix), {.ranks = ranks});
    ASSERT_EQ(r.code, 0) << output_of(r);
    EXPECT_TRUE(store_of(prefix) == expected) << ranks;
    EXPECT_FALSE(fs::exists(prefix.string() + ".media.parts"));
  }
}

TEST_F(media, relative_paths_give_the_same_store) {
  const std::string command = "cd '" + pictures().folder.path().string() + "' && exec '" + program() +
                              "' data media lines.jsonl relative --processor tiles/preprocessor_config.json --block 3 --root .";
  const Result r = execute({"/bin/sh", "-c", command});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_TRUE(store_of(pictures().folder / "relative") == store_of(pictures().one));
}

TEST_F(media, killed_builds_continue_with_equal_bytes) {
  std::mt19937 random(seed_of_run());
  Trials trials("kill of data media");
  const char* const stages[] = {"begun", "filled", "written", "renamed"};
  for (int draw = 0; draw < 6; ++draw)
    trials.attempt([&] {
      const fs::path prefix = pictures().folder / fmt::format("killed{}", draw);
      const int ranks = draw % 2 + 1;
      const std::string point = fmt::format("retro-{}:{}:{}", stages[random() % 4], random() % unsigned(ranks), random() % 4);
      const Result killed = run(pictures().command(prefix), {.ranks = ranks, .env = {{"GYR_FAULT_POINT", point}}});
      ASSERT_NE(killed.code, 0) << point;
      const Result again = run(pictures().command(prefix), {.ranks = 2 - draw % 2});
      ASSERT_EQ(again.code, 0) << point << "\n" << output_of(again);
      EXPECT_TRUE(store_of(prefix) == store_of(pictures().one)) << point;
      EXPECT_FALSE(fs::exists(prefix.string() + ".media.parts")) << point;
    });
}

TEST_F(media, damaged_block_of_an_interrupted_build_is_named) {
  std::mt19937 random(seed_of_run());
  const fs::path prefix = pictures().folder / "damaged";
  const Result killed = run(pictures().command(prefix), {.env = {{"GYR_FAULT_POINT", "retro-renamed:0:1"}}});
  ASSERT_NE(killed.code, 0);
  fs::path block;
  for (const auto& entry : fs::recursive_directory_iterator(prefix.string() + ".media.parts"))
    if (entry.path().extension() == ".hdf5") block = std::max(block, entry.path());
  const std::string sound = contents(block);
  ASSERT_FALSE(sound.empty());
  for (int draw = 0; draw < 6; ++draw) {
    std::string bytes = sound;
    if (draw == 0) bytes.resize(bytes.size() / 2);
    else bytes[bytes.size() / 2 + random() % (bytes.size() / 4)] ^= 1;  // inside the pixels, which have checksums
    put_contents(block, bytes);
    const Result r = run(pictures().command(prefix));
    EXPECT_EQ(r.code, int(Exit::data)) << output_of(r);
    EXPECT_NE(r.err.find(block.filename().string()), std::string::npos) << output_of(r);
    EXPECT_FALSE(fs::exists(prefix.string() + ".media.h5"));
  }
  put_contents(block, sound);
  const Result r = run(pictures().command(prefix));
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_NE(r.out.find(", 2 of them from an earlier call"), std::string::npos) << r.out;
  EXPECT_TRUE(store_of(prefix) == store_of(pictures().one));
}

TEST_F(media, store_read_by_h5py_has_the_golden_pictures) {
  if (execute({"/usr/bin/python3", "-c", "import h5py"}).code != 0) GTEST_SKIP() << "h5py is not installed";
  const std::string script =
      "import h5py, json, sys, zlib\n"
      "f = h5py.File(sys.argv[1], 'r')\n"
      "names, data = bytes(f['names'][:]), f['bytes']\n"
      "for line, first, count in f['sequence'][:]:\n"
      "  for item, items, rows, columns, at, length in f['image'][first:first + count].tolist():\n"
      "    parts = [f['item'][t].tolist() for t in range(item, item + items)]\n"
      "    crc = [[h, w, zlib.crc32(bytes(data[o:o + n]))] for o, n, h, w, gh, gw in parts]\n"
      "    print(json.dumps([int(line), names[at:at + length].decode(), [rows, columns], crc]))\n"
      "print(json.dumps([int(f.attrs['format_version']), json.loads(f.attrs['processor'])['tile'], int(f.attrs['most_items'])]))\n";
  const Result r = execute({"/usr/bin/python3", "-c", script, pictures().one.string() + ".media.h5"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  const Words rows = lines_of(r.out);
  std::map<std::int64_t, std::size_t> items_of_line;
  int compared = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    const json found = json::parse(rows[i]);
    items_of_line[found[0].get<std::int64_t>()] += found[3].size();
    for (const auto& expected : golden()["prepared"]) {
      if (expected["processor"] != "tiles" || found[1] != "pictures/" + expected["source"].get<std::string>()) continue;
      EXPECT_EQ(found[2], expected["tiles"]) << rows[i];
      EXPECT_EQ(found[3], expected["crc"]) << rows[i];
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
  std::size_t most = 0;
  for (const auto& [line, items] : items_of_line) most = std::max(most, items);
  EXPECT_EQ(json::parse(rows.back()), json({1, 50, most}));
}

TEST_F(media, bad_files_are_refused_with_line_and_reason) {
  const fs::path folder = pictures().folder.path();
  put_contents(folder / "empty.png", "");
  put_contents(folder / "cut.png", contents(folder / "pictures/rgb.png").substr(0, 300));
  put_contents(folder / "fake.png", "GIF89a not a picture");
  fs::create_directory(folder / "folder.png");
  if (!fs::exists(folder / "outside.png")) fs::create_symlink("/etc/passwd", folder / "outside.png");
  mkfifo((folder / "pipe.png").c_str(), 0600);
  const std::pair<const char*, const char*> cases[] = {
      {"none.png", "none.png cannot be opened: No such file"},
      {"empty.png", "empty.png is an empty file"},
      {"cut.png", "cut.png is a damaged PNG file: it ends"},
      {"fake.png", "fake.png is a GIF file, which is not supported"},
      {"folder.png", "folder.png is not a file"},
      {"outside.png", "outside.png lies outside"},
      {"/etc/passwd", "/etc/passwd lies outside"},
      {"../../etc/passwd", "lies outside"},
      {"pipe.png", "pipe.png is not a file"},
      {"https://x.org/a.png", "https://x.org/a.png is an address; download"},
      {"\x1b[2J.png", "\\x1b[2J.png cannot be opened"},
  };
  for (const auto& [path, part] : cases) {
    const Result r = run_on(line_of("pictures/rgb.png") + line_of(path));
    EXPECT_EQ(r.code, int(Exit::data)) << output_of(r);
    for (const std::string text : {part, "bad.jsonl: line 2: ", "give --bad-items skip"})
      EXPECT_NE(r.err.find(text), std::string::npos) << text << "\n" << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "bad.media.h5"));
  }
}

TEST_F(media, bad_lines_are_refused_with_the_reason) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "the line is not valid JSON"},
      {"[]", "the line is an array, not a JSON object"},
      {R"({"x": 1})", "the line has none of the keys messages, conversations and text (keys: x)"},
      {R"({"text": "<image> <image>", "images": ["a.png"]})", "the line has 2 <image> marks, but names 1 images"},
      {R"({"text": "none", "images": "a.png"})", "the line has 0 <image> marks, but names 1 images"},
      {R"({"conversations": [{"value": "<image>"}]})", "the line has 1 <image> marks, but names 0 images"},
      {R"({"messages": [{"content": [{"type": "audio", "path": "a.wav"}]}]})", "the line has a part of type 'audio' in message 1"},
      {R"({"messages": [{"content": [{"type": "image", "url": "a"}]}]})", "the line has no key 'path' in message 1"},
      {R"({"messages": 3})", "the line has a number under 'messages', not a list"},
      {R"({"text": "<image>", "images": [3]})", "the line has a number under 'images', not a path"},
      {R"({"text": "a", "text": "b"})", "the line has the key 'text' twice"},
  };
  for (const auto& [line, part] : cases) {
    const Result r = run_on(std::string("\n") + line + "\n");
    EXPECT_EQ(r.code, int(Exit::data)) << output_of(r);
    EXPECT_NE(r.err.find(std::string("bad.jsonl: line 2: ") + part), std::string::npos) << part << "\n" << output_of(r);
  }
}

TEST_F(media, skipped_lines_leave_the_store_of_the_others) {
  std::string lines, others;
  const Words names{"rgb.png", "none.png", "grey.jpg", "lossy.webp", "empty", "turned.png"};
  for (const std::string& name : names) {
    const std::string line = line_of("pictures/" + name);
    lines += line;
    others += name == "none.png" || name == "empty" ? "\n" : line;
  }
  lines += "{\n", others += "\n";
  const Result plain = run_on(others, {"--block", "2"});
  ASSERT_EQ(plain.code, 0) << output_of(plain);
  const std::string expected = store_of(pictures().folder / "bad");
  for (const int ranks : {1, 3}) {
    put_contents(pictures().folder / "bad.jsonl", lines);
    const fs::path prefix = pictures().folder / fmt::format("skipped{}", ranks);
    const Result r =
        run({"data", "media", pictures().folder / "bad.jsonl", prefix, "--processor", pictures().processor, "--bad-items", "skip"}, {.ranks = ranks});
    ASSERT_EQ(r.code, 0) << output_of(r);
    EXPECT_NE(r.out.find("skipped lines: 3"), std::string::npos) << output_of(r);
    EXPECT_NE(r.err.find("line 2: pictures/none.png cannot be opened"), std::string::npos) << output_of(r);
    // The stores differ only in the checksum of the settings and in the number of skipped lines.
    const std::string store = store_of(prefix);
    ASSERT_EQ(store.size(), expected.size());
    std::size_t differing = 0;
    for (std::size_t i = 0; i < store.size(); ++i) differing += store[i] != expected[i];
    EXPECT_LE(differing, 16u + 1 + 8);
  }
  const Result none = run_on(line_of("none.png") + "{\n", {"--bad-items", "skip"});
  EXPECT_EQ(none.code, int(Exit::data)) << output_of(none);
  EXPECT_NE(none.err.find("all 2 lines were skipped, the first one for this reason: "), std::string::npos) << output_of(none);
}

TEST_F(media, wrong_arguments_are_refused_with_a_remedy) {
  const fs::path folder = pictures().folder.path(), lines = pictures().lines, processor = pictures().processor;
  expect_refused(pictures().command(pictures().one), Exit::usage, "one.media.h5: exists already; give --overwrite");
  expect_refused({"data", "media", folder / "none.jsonl", folder / "x", "--processor", processor}, Exit::missing,
                 "none.jsonl: cannot be opened: No such file");
  expect_refused({"data", "media", lines, folder / "x", "--processor", folder / "none"}, Exit::missing, "none");
  expect_refused({"data", "media", lines, folder / "x", "--processor", folder / "pictures"}, Exit::missing,
                 "preprocessor_config.json: cannot be opened: No such file");
  expect_refused({"data", "media", lines, folder / "x", "--processor", processor, "--root", folder / "none"}, Exit::missing, "--root");
  expect_refused({"data", "media", lines, folder / "x", "--processor", processor, "--root", processor}, Exit::data, "lies outside");
  expect_refused({"data", "media", lines, folder / "x", "--processor", processor, "--max-pixels", "500"}, Exit::data,
                 "the limit is 500 (--max-pixels)");
  expect_refused({"data", "media", lines, folder / "x", "--processor", processor, "--bad-items", "ignore"}, Exit::usage, "refuse");
  put_contents(folder / "blank.jsonl", "\n \n");
  expect_refused({"data", "media", folder / "blank.jsonl", folder / "x", "--processor", processor}, Exit::data, "blank.jsonl: has no line");
}

}  // namespace gyr::testing::media_suite
