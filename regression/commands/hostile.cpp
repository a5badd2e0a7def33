// SPDX-License-Identifier: BSD-3-Clause
// Names and texts from untrusted files. No printed text may contain control sequences, start a line that the file
// chooses, or imitate the last line of a run (RUN OK).
//   GYR_HOSTILE=DRAWS:SEED sets the number of draws and the seed
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "regression/support/material.hpp"
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
// that prints one.
void expect_no_forged_output(const Result& r, bool last_line) {
  for (const std::string* text : {&r.out, &r.err}) EXPECT_TRUE(forbidden_in(*text).empty()) << forbidden_in(*text)[0] << "\n" << *text;
  Words forged;
  for (const std::string& line : lines_of(r.err))
    if (line.starts_with("RUN")) forged.push_back(line);
  const Words out = lines_of(r.out);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].starts_with("RUN") && !(last_line && i + 1 == out.size())) forged.push_back(out[i]);
  EXPECT_TRUE(forged.empty()) << forged[0] << "\n" << r.out << r.err;
  EXPECT_LT(r.code, 128);
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

struct RecomputeCost {
  int draws = 6;
  unsigned seed = 1;
};

RecomputeCost recompute_cost() {
  RecomputeCost e;
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
  const RecomputeCost e = recompute_cost();
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

}  // namespace gyr::testing::hostile_suite
