// SPDX-License-Identifier: BSD-3-Clause
// Untrusted files. No printed text may contain control sequences, start a line that the file chooses, imitate the last
// line of a run (RUN OK), or repeat long names. Damaged files of any kind end a command with a documented code, soon.
//   GYR_HOSTILE=DRAWS:SEED sets the number of draws and the seed
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::hostile_suite {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const Material& material() { return Material::get(); }

// Control characters in a text: ASCII controls except line feed, C1 controls in UTF-8, byte 0xff, and the right-to-left
// override.
std::vector<std::string> forbidden_in(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]), next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if ((c < 0x20 && c != '\n') || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0) || c == 0xff || text.compare(i, 3, "\xe2\x80\xae") == 0)
      found.push_back(fmt::format("byte {:#04x} at {}", c, i));
  }
  return found;
}

// Expects no control characters in either stream, and no line that begins with RUN except the last line of a command
// that prints one, and of each attempt that gyrfalcon run has started.
void expect_no_forged_output(const Result& r, bool last_line) {
  for (const std::string* text : {&r.out, &r.err}) EXPECT_TRUE(forbidden_in(*text).empty()) << forbidden_in(*text)[0] << "\n" << *text;
  Words forged;
  for (const std::string& line : lines_of(r.err))
    if (line.starts_with("RUN")) forged.push_back(line);
  const Words out = lines_of(r.out);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].starts_with("RUN") && !(last_line && i + 1 == out.size())) forged.push_back(out[i]);
  Words attempts;
  for (const std::string& line : out)
    if (line.starts_with("gyrfalcon run: attempt ")) attempts.push_back(line);
  forged.resize(forged.size() - std::min(forged.size(), attempts.size()));
  EXPECT_TRUE(forged.empty()) << forged[0] << "\n" << r.out << r.err;
  for (const std::string& line : lines_of(r.err)) EXPECT_LT(line.size(), 4200u) << line;
  EXPECT_LT(r.code, 128) << r.out << r.err;
  EXPECT_NE(r.code, int(Exit::internal)) << r.out << r.err;
}

// Draws random names made of a few hostile pieces.
class Names {
 public:
  explicit Names(unsigned seed) : random_(seed) {}
  std::string draw() {
    static const Words pieces{"\n",
                              "\nRUN OK\n",
                              "RUN OK",
                              "\x1b[2J",
                              "\x1b]0;x\x07",
                              "\r",
                              "\b\b",
                              "\t",
                              "\x7f",
                              "\xc2\x9b"
                              "2J",
                              "\xe2\x80\xae",
                              "a",
                              "weight",
                              "{}",
                              "%s%n"};
    std::string name;
    if (random_() % 4 == 0) name = std::string(5000, 'k') + "\n";
    for (unsigned n = 1 + random_() % 4; n > 0; --n) name += pieces[random_() % pieces.size()];
    return name + "\nRUN OK";
  }
  // Name of a file: limited to 100 bytes.
  std::string draw_file() {
    std::string name = draw();
    return name.substr(0, 100);
  }

 private:
  std::mt19937 random_;
};

struct Draws {
  int draws = 6;
  unsigned seed = 1;
};

Draws draws_of_run() {
  Draws e;
  if (const char* wanted = std::getenv("GYR_HOSTILE")) std::sscanf(wanted, "%d:%u", &e.draws, &e.seed);
  return e;
}

std::string safetensors(const std::string& header) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

Json small_config() {
  return {{"model_type", "falcon_h1"}, {"hidden_size", 16},        {"num_hidden_layers", 1}, {"rope_theta", 1e4},
          {"num_attention_heads", 2},  {"num_key_value_heads", 1}, {"mamba_d_ssm", 16},      {"mamba_n_heads", 2},
          {"mamba_d_state", 4},        {"intermediate_size", 16},  {"vocab_size", 32}};
}

void refuse_model_folder(const Folder& folder, Names& names, const std::string& config, const std::string& weights) {
  const fs::path model = folder / names.draw_file();
  fs::create_directory(model);
  put_contents(model / "config.json", config);
  put_contents(model / "model.safetensors", weights);
  expect_no_forged_output(run({"import-hf", model, folder / "to"}), false);
  expect_no_forged_output(run({"eval", model, "--data", material().prefix()}), true);
}

}  // namespace

TEST(hostile, names_in_files_cannot_forge_output) {
  const Draws e = draws_of_run();
  std::printf("seed %u, %d draws of each kind\n", e.seed, e.draws);
  Names names(e.seed);
  Trials trials("hostile name in a file");
  for (int draw = 0; draw < e.draws; ++draw) {
    const Folder folder;
    const std::string name = names.draw();
    const auto quoted = [](const std::string& text) { return Json(text).dump(); };
    trials.attempt([&] {  // keys and values of config.json
      Json config = small_config();
      config[name] = 1;
      refuse_model_folder(folder, names, config.dump(), safetensors("{}"));
      config["hidden_act"] = name;
      refuse_model_folder(folder, names, config.dump(), safetensors("{}"));
      refuse_model_folder(folder, names, "{" + quoted(name) + ": " + name, "");
    });
    trials.attempt([&] {  // tensor names and fields of a safetensors header
      refuse_model_folder(folder, names, small_config().dump(),
                          safetensors("{" + quoted(name) + R"(:{"dtype":"F32","shape":[],"data_offsets":[0,0]}})"));
      refuse_model_folder(folder, names, small_config().dump(),
                          safetensors("{" + quoted(name) + R"(:{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}})"));
      refuse_model_folder(folder, names, small_config().dump(), safetensors(R"({"a":{"dtype":)" + quoted(name) + "}}"));
    });
    trials.attempt([&] {  // file names in model.safetensors.index.json
      const fs::path model = folder / "sharded";
      fs::create_directory(model);
      put_contents(model / "config.json", small_config().dump());
      put_contents(model / "model.safetensors.index.json", Json{{"weight_map", {{name, "x" + name}}}}.dump());
      expect_no_forged_output(run({"import-hf", model, folder / "to"}), false);
      put_contents(model / "model.safetensors.index.json", Json{{"weight_map", {{name, "absent"}}}}.dump());
      expect_no_forged_output(run({"import-hf", model, folder / "to"}), false);
    });
    trials.attempt([&] {  // texts in tokenizer.json
      Json tokenizer = Json::parse(contents(material().tokenizer()));
      tokenizer["model"]["type"] = name;
      put_contents(folder / "t.json", tokenizer.dump());
      expect_no_forged_output(run({"tokenizer", "encode", folder / "t.json", "--text", "a"}), false);
      put_contents(folder / "t.json", "{" + quoted(name) + ":" + quoted(name) + "," + quoted(name) + ":1}");
      expect_no_forged_output(run({"tokenizer", "encode", folder / "t.json", "--text", "a"}), false);
    });
    trials.attempt([&] {  // keys and values of a deck, and its file name
      put_contents(folder / "deck.yaml", quoted(name) + ": 1\n");
      expect_no_forged_output(run({"plan", folder / "deck.yaml"}), true);
      put_contents(folder / "deck.yaml", "model:\n  pattern: " + quoted(name) + "\n");
      expect_no_forged_output(run({"plan", folder / "deck.yaml"}), true);
      put_contents(folder / "deck.yaml", "data:\n  prefixes: [" + quoted((folder / name).string()) + "]\n");
      expect_no_forged_output(run({"train", folder / "deck.yaml", "output.folder=" + (folder / "out").string()}), true);
      expect_no_forged_output(run({"plan", folder / names.draw_file()}), true);
      expect_no_forged_output(run({"plan", material().deck(), "train.global_batch_size=" + name}), true);
      expect_no_forged_output(run({names.draw()}), false);
    });
    trials.attempt([&] {  // examples for eval
      put_contents(folder / "e.jsonl", "{" + quoted(name) + ":" + name);
      expect_no_forged_output(run({"eval", material().trained(), "--lambada", folder / "e.jsonl"}), true);
      expect_no_forged_output(run({"eval", material().trained(), "--lambada", folder / names.draw_file()}), true);
      expect_no_forged_output(run({"eval", material().trained(), "--text", material().text(), "--begin", name}), true);
    });
    trials.attempt([&] {  // names in a trace
      const auto event = [](const char* phase, const char* category, const std::string& what, const Json& args) {
        return Json{{"ph", phase}, {"pid", 0}, {"cat", category}, {"name", what}, {"ts", 0}, {"dur", 9}, {"args", args}};
      };
      Json trace{{"otherData", {{"program", "gyrfalcon"}}},
                 {"traceEvents",
                  {event("M", "", "process_name", {{"name", name}, {"host", name}}), event("X", "task", "step", Json::object()),
                   event("X", "wait", name, {{"communicator", name}, {"operation", name}})}}};
      for (const int micro : {0, 1}) trace["traceEvents"].push_back(event("X", "task", "forward" + name, {{"chunk", 0}, {"micro", micro}}));
      Json other = trace["traceEvents"][0];
      other["pid"] = 1;
      trace["traceEvents"].push_back(other);
      Json step = trace["traceEvents"][1];
      step["pid"] = 1, step["dur"] = 4;
      trace["traceEvents"].push_back(step);
      put_contents(folder / "trace.json", trace.dump());
      const Result shown = run({"trace", "show", folder / "trace.json"});
      EXPECT_EQ(shown.code, 0) << shown.err;
      EXPECT_NE(shown.out.find("slow: "), std::string::npos) << shown.out;
      expect_no_forged_output(shown, false);
      trace["traceEvents"][2]["ts"] = name;
      put_contents(folder / "trace.json", trace.dump());
      expect_no_forged_output(run({"trace", "show", folder / "trace.json"}), false);
      expect_no_forged_output(run({"trace", "show", folder / names.draw_file()}), false);
    });
    trials.attempt([&] {  // a checkpoint folder with a hostile name, and texts in status.json
      const fs::path copy = folder / names.draw_file();
      fs::copy(material().trained(), copy);
      expect_no_forged_output(run({"info", copy, "--check"}), false);
      fs::remove(Material::shard(copy));
      expect_no_forged_output(run({"info", copy, "--check"}), false);
      fs::copy(material().output() / "heartbeat.bin", folder / "heartbeat.bin");
      put_contents(folder / "status.json", Json{{"state", name}, {"exit_code", 0}, {"code", 0}, {"step", 1}, {"rank", 0}, {"message", name}}.dump());
      expect_no_forged_output(run({"ps", folder.path()}), false);
    });
  }
}

namespace {

// Output folder of a supervised run that lost its rank once, with every kind of file that a run writes.
class Finished {
 public:
  Finished() {
    Words words = settings(folder_ / "out");
    words.insert(words.end(), {"fault.kind=kill", "fault.step=3", "trace.on=true", "trace.steps=[5]", "dump.steps=[5]"});
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << output_of(r);
    put_contents(folder_ / "out/lock", R"({"host": "h", "pid": 1, "job": "", "boot": "b", "token": "t", "beat": "000000000007"})"
                                       "\n");
  }
  static const Finished& get() {
    static const Finished finished;
    return finished;
  }
  static Words settings(const fs::path& output) {
    Words words = material().train(output, {"train.steps=6", "optimizer.decay_steps=6", "checkpoint.every=2", "output.lock_seconds=0.2"});
    words[0] = "run";
    words.insert(words.end(), {"-n", "1", "--launcher", "none"});
    return words;
  }
  void copy_to(const fs::path& to) const { fs::copy(folder_ / "out", to, fs::copy_options::recursive); }

 private:
  Folder folder_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;  // set for links to themselves
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// The commands that read an output folder.
std::vector<Words> commands_on(const fs::path& out) {
  Words more = Finished::settings(out);
  std::replace(more.begin(), more.end(), std::string("train.steps=6"), std::string("train.steps=8"));
  Words train = material().train(out, {"train.steps=8", "optimizer.decay_steps=6", "checkpoint.every=2", "output.lock_seconds=0.2", "--resume"});
  const std::string checkpoint = Material::checkpoint(out, 6);
  return {train,
          more,
          {"report", out},
          {"report", out, "--html", (out / "page.html").string()},
          {"ps", out},
          {"trace", "show", out},
          {"info", checkpoint, "--check"},
          {"generate", checkpoint, "--prompt", "ka", "--tokens", "2"},
          {"export-hf", checkpoint, (out / "hf").string()}};
}

}  // namespace

// One to three files of an output folder are damaged, and a command reads the folder.
TEST(hostile, damaged_output_folders_end_commands_properly) {
  const Draws e = draws_of_run();
  const int draws = 12 * e.draws;
  std::printf("seed %u, %d draws\n", e.seed, draws);
  Trials trials("damaged files in an output folder");
  for (int draw = 0; draw < draws; ++draw) {
    Mutation mutation(e.seed * 100'000 + unsigned(draw));
    const Folder folder;
    const fs::path out = folder / "out";
    Finished::get().copy_to(out);
    std::string done;
    for (unsigned n = 1 + mutation.up_to(2); n > 0; --n) {
      const auto files = files_in(out);
      std::error_code error;
      const bool metrics = mutation.up_to(2) == 0;  // most commands read this file
      const fs::path file =
          metrics && fs::is_regular_file(out / "metrics.jsonl", error) ? out / "metrics.jsonl" : files[mutation.up_to(unsigned(files.size() - 1))];
      done += file.lexically_relative(out).string() + ": " + mutation.damage(file) + "; ";
    }
    const auto commands = commands_on(out);
    const Words command = commands[mutation.up_to(3) > 0 ? mutation.up_to(1) : mutation.up_to(unsigned(commands.size() - 1))];
    SCOPED_TRACE(fmt::format("draw {}: {} of {}", draw, command[0], done));
    trials.attempt([&] {
      const Result r = run(command, {.limit = 60.0 * slowness});
      expect_no_forged_output(r, command[0] == "train" || command[0] == "run");
      EXPECT_LT(r.peak_kib, 2'000'000) << output_of(r);
    });
  }
}

namespace {

// A small model folder with every file that import-hf and generate read, and a folder of adapters for it.
fs::path model_folder(const Folder& folder) {
  const fs::path model = folder / "model";
  const Result out = run({"export-hf", material().trained(), model});
  EXPECT_EQ(out.code, 0) << output_of(out);
  put_contents(model / "tokenizer_config.json", R"({"chat_template": "{{ messages }}", "eos_token": "<|endoftext|>", "add_bos_token": false})");
  put_contents(model / "special_tokens_map.json", R"({"eos_token": {"content": "<|endoftext|>"}})");
  fs::create_directory(folder / "adapters");
  put_contents(
      folder / "adapters/adapter_config.json",
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none", "use_dora": false, "rank_pattern": {}})");
  return model;
}

}  // namespace

// A file of a Hugging Face folder or of a PEFT folder is damaged, and a command reads it.
TEST(hostile, damaged_model_folders_end_commands_properly) {
  const Draws e = draws_of_run();
  const int draws = 12 * e.draws;
  std::printf("seed %u, %d draws\n", e.seed, draws);
  const Folder intact;
  model_folder(intact);
  Trials trials("damaged files in a model folder");
  for (int draw = 0; draw < draws; ++draw) {
    Mutation mutation(e.seed * 100'000 + 50'000 + unsigned(draw));
    const Folder folder;
    fs::copy(intact.path(), folder.path(), fs::copy_options::recursive);
    const auto files = files_in(folder.path());
    const fs::path file = mutation.up_to(2) == 0 ? folder / "adapters/adapter_config.json" : files[mutation.up_to(unsigned(files.size() - 1))];
    const std::string done = file.lexically_relative(folder.path()).string() + ": " + mutation.damage(file);
    const std::vector<Words> commands{{"import-hf", folder / "model", folder / "to", "--adapters", folder / "adapters"},
                                      {"import-hf", folder / "model", folder / "to"},
                                      {"generate", folder / "model", "--prompt", "ka", "--tokens", "2"},
                                      {"export-gguf", folder / "model", folder / "x.gguf"},
                                      {"tokenizer", "encode", folder / "model/tokenizer.json", "--text", "ka"}};
    const Words command = commands[mutation.up_to(file.parent_path().filename() == "adapters" ? 0 : unsigned(commands.size() - 1))];
    SCOPED_TRACE(fmt::format("draw {}: {} of {}", draw, command[0], done));
    trials.attempt([&] { expect_no_forged_output(run(command, {.limit = 60.0 * slowness}), command[0] == "generate"); });
  }
}

// Files of unusual types next to token files, and a template of more than a megabyte. No error is an internal one.
TEST(hostile, unusual_file_types_end_commands_with_documented_codes) {
  const auto copy = [](const Folder& folder) {
    for (const char* name : {"text.bin", "text.idx"}) fs::copy(fs::path(material().prefix()).replace_filename(name), folder / name);
    return (folder / "text").string();
  };
  const Folder fingerprint, loop, large;
  fs::create_directory(fs::path(copy(fingerprint)) += ".json");
  const Result folder = run({"data", "info", fingerprint / "text"});
  EXPECT_EQ(folder.code, int(Exit::data)) << folder.out;
  EXPECT_NE(folder.err.find("text.json: is not a regular file"), std::string::npos) << folder.err;

  fs::create_symlink("heartbeat.bin", loop / "heartbeat.bin");
  const Result endless = run({"ps", loop.path()});
  EXPECT_EQ(endless.code, int(Exit::io)) << endless.out << endless.err;
  EXPECT_NE(endless.err.find("heartbeat.bin"), std::string::npos) << endless.err;

  std::ofstream(large / "template.txt") << std::string((1 << 20) + 1, 'a');
  const Result refused = run({"generate", material().trained(), "--prompt", "ka", "--template", "@" + (large / "template.txt").string()});
  EXPECT_EQ(refused.code, int(Exit::data)) << refused.out << refused.err;
}

}  // namespace gyr::testing::hostile_suite
