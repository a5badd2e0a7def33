// SPDX-License-Identifier: BSD-3-Clause
// Tests of import-hf and export-hf: a round trip keeps every bit, training starts from such folders on any grid, and a
// failure leaves no partial files.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "regression/support/material.hpp"

namespace gyr::testing::huggingface_suite {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const Material& material() { return Material::get(); }

Result must(const Words& arguments, const Options& options = {}) {
  const Result r = run(arguments, options);
  EXPECT_EQ(r.code, 0) << arguments[0] << ": " << output_of(r);
  return r;
}

void expect_refused(const Words& arguments, Exit code, const std::string& part, const Options& options = {}) {
  const Result r = run(arguments, options);
  EXPECT_EQ(r.code, int(code)) << output_of(r);
  EXPECT_NE(r.err.find(part), std::string::npos) << "'" << part << "' is not in: " << r.err;
}

// The trained model as a Hugging Face folder, exported with the stored data type.
const fs::path& exported() {
  static const Folder folder;
  static const fs::path path = [] {
    must({"export-hf", material().trained(), folder / "hf"});
    return folder / "hf";
  }();
  return path;
}

double loss_of(const fs::path& model, const Words& more = {}, int ranks = 0) {
  Words arguments{"eval", model, "--data", material().prefix(), "--sequences", "16", "--length", "32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Result r = must(arguments, {.ranks = ranks});
  double loss = std::nan("");
  EXPECT_EQ(std::sscanf(r.out.c_str(), "loss %lf", &loss), 1) << r.out;
  return loss;
}

// Losses of all steps of a run.
std::vector<double> losses_of(const fs::path& output) {
  std::vector<double> losses;
  for (const std::string& line : lines_of(contents(output / "metrics.jsonl"))) {
    const Json json = Json::parse(line);
    if (json.value("kind", "") == "step") losses.push_back(json["loss"]);
  }
  return losses;
}

std::map<std::string, std::string> weights_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = contents(entry.path());
  return files;
}

// Data type, shape and bytes of every tensor in all safetensors files of a folder, by tensor name.
std::map<std::string, std::string> tensors_in(const fs::path& folder) {
  std::map<std::string, std::string> tensors;
  for (const auto& [name, bytes] : weights_in(folder)) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const Json header = Json::parse(bytes.substr(8, length));
    for (const auto& [tensor, entry] : header.items()) {
      if (tensor == "__metadata__") continue;
      const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      const bool fresh =
          tensors.try_emplace(tensor, entry["dtype"].dump() + entry["shape"].dump() + bytes.substr(8 + length + begin, end - begin)).second;
      EXPECT_TRUE(fresh) << tensor;
    }
  }
  return tensors;
}

}  // namespace

TEST(huggingface, export_import_export_keeps_every_bit) {
  const Folder folder;
  for (const Words& options :
       std::vector<Words>{{}, {"--dtype", "bf16"}, {"--dtype", "fp16"}, {"--dtype", "fp32"}, {"--shard-size", "20KB", "--dtype", "bf16"}}) {
    Words out{"export-hf", material().trained(), folder / "a"};
    out.insert(out.end(), options.begin(), options.end());
    must(out);
    must({"import-hf", folder / "a", folder / "ckpt"});
    must({"export-hf", folder / "ckpt", folder / "b", "--shard-size", options.size() > 2 ? "20KB" : "5GB"});
    EXPECT_EQ(weights_in(folder / "a"), weights_in(folder / "b"));
    EXPECT_EQ(weights_in(folder / "a").size() > 1, options.size() > 2);
    EXPECT_EQ(contents(folder / "a/config.json"), contents(folder / "b/config.json"));
    EXPECT_EQ(contents(folder / "a/tokenizer.json"), contents(folder / "b/tokenizer.json"));
    EXPECT_FALSE(fs::exists(folder / "b.tmp"));
    for (const char* name : {"a", "b", "ckpt"}) fs::remove_all(folder / name);
  }
}

TEST(huggingface, sharded_export_holds_the_same_tensors) {
  const Folder folder;
  must({"export-hf", material().trained(), folder / "a", "--shard-size", "20KB"});
  EXPECT_EQ(tensors_in(folder / "a"), tensors_in(exported()));
  const Json index = Json::parse(contents(folder / "a/model.safetensors.index.json"));
  std::size_t total = 0;
  for (const auto& [name, file] : index["weight_map"].items()) EXPECT_TRUE(fs::exists(folder / "a" / file.get<std::string>())) << name;
  for (const auto& [name, bytes] : weights_in(folder / "a")) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    total += bytes.size() - 8 - length;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_FALSE(fs::exists(folder / "a/model.safetensors"));
  expect_refused({"export-hf", material().trained(), folder / "c", "--shard-size", "0"}, Exit::usage, "--shard-size");
  expect_refused({"export-hf", material().trained(), folder / "c", "--shard-size", "5 apples"}, Exit::usage, "--shard-size");
}

TEST(huggingface, tied_output_head_is_stored_once) {
  const Folder folder;
  must(material().train(folder / "out", {"model.tie_word_embeddings=true", "train.steps=1", "train.precision=bf16"}));
  must({"export-hf", Material::checkpoint(folder / "out", 1), folder / "a"});
  EXPECT_FALSE(tensors_in(folder / "a").contains("lm_head.weight"));
  must({"import-hf", folder / "a", folder / "ckpt"});
  must({"export-hf", folder / "ckpt", folder / "b"});
  EXPECT_EQ(weights_in(folder / "a"), weights_in(folder / "b"));
  // Exported in fp32, the weights of a bf16 run are its fp32 master weights, which have more digits than its bf16
  // weights.
  must({"export-hf", Material::checkpoint(folder / "out", 1), folder / "fine", "--dtype", "fp32"});
  const std::string name = "model.layers.0.mamba.in_proj.weight";
  const std::string fine = tensors_in(folder / "fine")[name], coarse = tensors_in(folder / "a")[name];
  EXPECT_TRUE(fine.starts_with("\"F32\""));
  EXPECT_TRUE(coarse.starts_with("\"BF16\""));
  bool finer = false;
  const std::size_t start = fine.find(']') + 1;
  for (std::size_t i = start; i < fine.size(); i += 4) finer = finer || fine[i] != 0 || fine[i + 1] != 0;
  EXPECT_TRUE(finer);
}

TEST(huggingface, exported_folder_scores_and_generates_as_its_checkpoint) {
  const Folder folder;
  must({"import-hf", exported(), folder / "ckpt"});
  const double wanted = loss_of(material().trained());
  EXPECT_EQ(loss_of(exported()), wanted);
  EXPECT_EQ(loss_of(folder / "ckpt"), wanted);
  for (const int ranks : {2, 4}) EXPECT_NEAR(loss_of(exported(), {"--tensor", std::to_string(ranks)}, ranks), wanted, 1e-5);
  const auto generated = [](const fs::path& model) { return must({"generate", model, "--prompt", "ka", "--greedy", "--tokens", "20"}).out; };
  EXPECT_EQ(generated(exported()), generated(material().trained()));
  EXPECT_EQ(generated(folder / "ckpt"), generated(material().trained()));
}

TEST(huggingface, run_starts_from_folder_or_checkpoint_on_grids) {
  const Folder folder;
  // The deck has no model section, so that the model settings must come from the folder.
  std::string text = contents(material().deck());
  text.erase(0, text.find("data:"));
  const fs::path deck = folder.write("deck.yaml", text);
  const auto losses = [&](const std::string& name, const Words& more, int ranks) {
    Words words{"train", deck, "output.folder=" + (folder / name).string(), "train.steps=2"};
    words.insert(words.end(), more.begin(), more.end());
    must(words, {.ranks = ranks});
    return losses_of(folder / name);
  };
  const std::vector<double> one = losses("one", {"--init-from", exported()}, 0);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_LT(one[0], std::log(300.) - 1);  // lower than the loss of an untrained model
  EXPECT_EQ(losses("checkpoint", {"--init-from", material().trained()}, 0), one);
  EXPECT_EQ(losses("key", {"train.init_from=" + exported().string()}, 0), one);
  for (const auto& [name, grid] : std::map<std::string, Words>{{"t2", {"parallel.tensor=2"}},
                                                               {"p2", {"parallel.pipeline=2"}},
                                                               {"t4", {"parallel.tensor=4"}},
                                                               {"p2t2", {"parallel.pipeline=2", "parallel.tensor=2"}}}) {
    Words more = grid;
    more.insert(more.end(), {"--init-from", exported()});
    const std::vector<double> these = losses(name, more, name.size() == 2 && name[1] == '2' ? 2 : 4);
    ASSERT_EQ(these.size(), 2u) << name;
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(these[i], one[i], 2e-5) << name;
  }
  // The effective deck records the folder. With --resume the run continues from its own checkpoints.
  EXPECT_NE(contents(folder / "one/deck.yaml").find("init_from: " + exported().string()), std::string::npos);
  const Result more = must({"train", deck, "output.folder=" + (folder / "one").string(), "train.steps=3", "--init-from", exported(), "--resume"});
  EXPECT_NE(more.out.find("resumed from"), std::string::npos) << more.out;
  // A model key in the deck overrides the folder. If it contradicts the weights, the error names the tensor.
  expect_refused({"train", deck, "output.folder=" + (folder / "x").string(), "--init-from", exported(), "model.mlp.intermediate_size=60"},
                 Exit::config, "gate_proj.weight");
  expect_refused({"train", deck, "output.folder=" + (folder / "x").string(), "--init-from", exported(), "model.tie_word_embeddings=true",
                  "model.attention.bias=true"},
                 Exit::config, "q_proj.bias");
  expect_refused({"train", deck, "output.folder=" + (folder / "x").string(), "--init-from", folder / "absent"}, Exit::missing, "absent");
  // Exporting this run takes the tokenizer from the folder that the run started from.
  const Result out = must({"export-hf", Material::checkpoint(folder / "one", 3), folder / "back"});
  EXPECT_EQ(out.err, "");
  EXPECT_EQ(contents(folder / "back/tokenizer.json"), contents(exported() / "tokenizer.json"));
}

TEST(huggingface, export_like_copies_settings_missing_in_the_deck) {
  const Folder folder;
  fs::copy(exported(), folder / "like");
  Json config = Json::parse(contents(folder / "like/config.json"));
  config["eos_token_id"] = {5, 7}, config["bos_token_id"] = 3, config["max_position_embeddings"] = 4321;
  put_contents(folder / "like/config.json", config.dump());
  put_contents(folder / "like/generation_config.json", "{\"temperature\": 0.5}");
  put_contents(folder / "like/chat_template.jinja", "{{ hello }}");
  put_contents(folder / "like/notes.txt", "private");
  const Result made = must({"export-hf", material().trained(), folder / "a", "--like", folder / "like"});
  EXPECT_EQ(made.err, "");
  const Json written = Json::parse(contents(folder / "a/config.json"));
  EXPECT_EQ(written["eos_token_id"], config["eos_token_id"]);
  EXPECT_EQ(written["bos_token_id"], 3);
  EXPECT_EQ(written["max_position_embeddings"], 4321);
  EXPECT_EQ(contents(folder / "a/generation_config.json"), "{\"temperature\": 0.5}");
  EXPECT_EQ(contents(folder / "a/chat_template.jinja"), "{{ hello }}");
  EXPECT_FALSE(fs::exists(folder / "a/notes.txt"));
  // Without --like, the deck's tokenizer is exported, and a note lists the missing settings.
  const Result without = must({"export-hf", material().trained(), folder / "b"});
  EXPECT_NE(without.err.find("note: no folder provides"), std::string::npos) << without.err;
  EXPECT_EQ(contents(folder / "b/tokenizer.json"), contents(material().tokenizer()));
  EXPECT_EQ(Json::parse(contents(folder / "b/config.json"))["max_position_embeddings"], Material::seq_length);
}

TEST(huggingface, export_names_special_tokens_for_transformers) {
  const Folder folder;
  must({"export-hf", material().trained(), folder / "a"});
  const Json settings = Json::parse(contents(folder / "a/tokenizer_config.json"));
  EXPECT_EQ(settings["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(settings["model_max_length"], Material::seq_length);
  EXPECT_EQ(settings["eos_token"], "<|endoftext|>");
  EXPECT_EQ(settings["pad_token"], "<|pad|>");
  const Json tokenizer = Json::parse(contents(folder / "a/tokenizer.json"));
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    bool is_special = !settings.contains(key);
    for (const Json& added : tokenizer["added_tokens"]) is_special = is_special || added["content"] == settings[key];
    EXPECT_TRUE(is_special) << key;
  }
  // An import and another export keep the file.
  must({"import-hf", folder / "a", folder / "ckpt"});
  must({"export-hf", folder / "ckpt", folder / "b"});
  EXPECT_EQ(contents(folder / "b/tokenizer_config.json"), contents(folder / "a/tokenizer_config.json"));
}

TEST(huggingface, llama_quantization_is_answered_with_its_command) {
  const Folder folder;
  const std::string command = "`llama-quantize model.gguf out.gguf q4_k_m`";
  expect_refused({"export-hf", material().trained(), folder / "a", "--dtype", "q4_k_m"}, Exit::usage, command);
  expect_refused({"export-gguf", material().trained(), folder / "a", "--dtype", "q4_k_m"}, Exit::usage, command);
  expect_refused({"export-hf", material().trained(), folder / "a", "--dtype", "q8_0"}, Exit::usage, "model.gguf --dtype q8_0` writes it");
  const Result r = run({"export-hf", material().trained(), folder / "a", "--dtype", "int8"});
  EXPECT_EQ(r.err.find("llama"), r.err.npos) << r.err;
  must({"export-gguf", material().trained(), folder / "new/folder/model.gguf"});
  EXPECT_TRUE(fs::exists(folder / "new/folder/model.gguf"));
  must({"export-hf", material().trained(), folder / "b", "--shard-size", "20k"});
  EXPECT_GT(weights_in(folder / "b").size(), 1u);
}

// generation_config.json, the chat template and the end-of-text tokens are kept in the checkpoint, in checkpoints of
// runs and copies that start from it, and in a later export.
TEST(huggingface, checkpoints_keep_generation_config_and_chat_template) {
  const Folder folder;
  fs::copy(exported(), folder / "hf");
  const fs::path tokenizer = folder / "tokenizer.json";
  fs::copy(exported() / "tokenizer.json", tokenizer);
  Json config = Json::parse(contents(exported() / "config.json"));
  const auto with_config = [&](const Json& ends) {
    config["eos_token_id"] = ends, config["max_position_embeddings"] = 4321;
    put_contents(folder / "hf/config.json", config.dump());
  };
  Json all;  // all token ids, so that any generated token ends the text
  for (int token = 0; token < Material::vocab_size; ++token) all.push_back(token);
  const std::string messages = "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] + '\n' }}{% endfor %}";
  with_config(all);
  put_contents(folder / "hf/generation_config.json", "{ \"temperature\": 0.5,\n \"do_sample\":true}");
  put_contents(folder / "hf/tokenizer_config.json", Json{{"chat_template", messages}, {"eos_token", "<|endoftext|>"}}.dump(3));
  put_contents(folder / "hf/special_tokens_map.json", "{}");
  const auto made = [&](const fs::path& model, const Words& more = {}) {
    Words words{"generate", model, "--prompt", "ka", "--greedy", "--tokens", "20", "--tokenizer", tokenizer};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = must(words);
    EXPECT_NE(r.err.find("note: generation_config.json suggests do_sample true, temperature 0.5: not applied"), std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("the model has a chat template") == std::string::npos, !more.empty()) << r.err;
    int tokens = -1;
    for (const std::string& line : lines_of(r.err))
      if (const auto at = line.rfind(" s, "); line.starts_with("prompt eval ") && at != line.npos) tokens = std::stoi(line.substr(at + 4));
    return std::pair(tokens, r.out);
  };
  EXPECT_EQ(made(folder / "hf").first, 1);  // config.json's eos_token_id is used if generation_config.json has none
  put_contents(folder / "hf/generation_config.json", Json{{"temperature", 0.5}, {"do_sample", true}, {"eos_token_id", all}}.dump(1));
  with_config(nullptr);
  EXPECT_EQ(made(folder / "hf").first, 1);
  const std::string asked = made(folder / "hf", {"--template", "<{role}>{content}\n"}).second;

  must({"import-hf", folder / "hf", folder / "ckpt"});
  const std::map<std::string, std::string> files{{"generation_config.json", contents(folder / "hf/generation_config.json")},
                                                 {"tokenizer_config.json", contents(folder / "hf/tokenizer_config.json")},
                                                 {"special_tokens_map.json", "{}"}};
  fs::rename(folder / "hf", folder / "away");  // from here on the checkpoint must not need the folder
  must({"reshard", folder / "ckpt", folder / "copy", "--files", "2"});
  must({"train", material().deck(), "output.folder=" + (folder / "out").string(), "train.steps=1", "--init-from", folder / "copy"});
  must({"train", material().deck(), "output.folder=" + (folder / "out").string(), "train.steps=2", "--init-from", folder / "copy", "--resume"});
  for (const fs::path& model : {folder / "ckpt", folder / "copy", Material::checkpoint(folder / "out", 1), Material::checkpoint(folder / "out", 2)}) {
    EXPECT_EQ(made(model).first, 1) << model;
    EXPECT_EQ(made(model, {"--chat"}).second, asked) << model;
    must({"export-hf", model, folder / "back", "--overwrite"});
    for (const auto& [name, text] : files) EXPECT_EQ(contents(folder / "back" / name), text) << model << name;
    const Json written = Json::parse(contents(folder / "back/config.json"));
    EXPECT_EQ(written["max_position_embeddings"], 4321);
    EXPECT_EQ(written["eos_token_id"], nullptr);
  }
  // The error for an unsupported chat template names it and suggests --template.
  put_contents(folder / "away/chat_template.jinja", "\n{% include 'x' %}");
  const Result without = must({"generate", folder / "away", "--prompt", "ka", "--greedy", "--tokens", "1", "--tokenizer", tokenizer});
  EXPECT_NE(without.err.find("the model has a chat template"), std::string::npos) << without.err;
  expect_refused({"generate", folder / "away", "--prompt", "ka", "--chat", "--tokenizer", tokenizer}, Exit::data,
                 "away/chat_template.jinja: the chat template cannot be read: line 2: the statement 'include' is not supported");
  expect_refused({"generate", exported(), "--prompt", "ka", "--chat"}, Exit::data, "has no chat template; write one with --template");
  expect_refused({"generate", exported(), "--prompt", "ka", "--chat", "--template", "{role}{content}"}, Exit::usage, "--chat");
  // data build can also use the chat template of the model.
  folder.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "ka"}, {"role": "assistant", "content": "lo"}]})"
                             "\n");
  const Result built =
      must({"data", "build", folder / "chat.jsonl", folder / "by-model", "--tokenizer", tokenizer, "--template", "@" + (folder / "ckpt").string()});
  EXPECT_NE(built.out.find("by-model_mask.bin: targets are from the difference of prefixes: the chat template has no {% generation %} block"),
            std::string::npos)
      << built.out;
  must({"data", "build", folder / "chat.jsonl", folder / "by-hand", "--tokenizer", tokenizer, "--template", "<{role}>{content}\n"});
  for (const char* end : {".bin", ".idx", "_mask.bin"})
    EXPECT_EQ(contents((folder / "by-model").string() + end), contents((folder / "by-hand").string() + end)) << end;
}

// A chat template in a file: its {% generation %} blocks are the targets, and its special tokens are those of the
// tokenizer_config.json in its folder.
TEST(huggingface, chat_template_files_select_targets) {
  const Folder folder;
  const fs::path tokenizer = exported() / "tokenizer.json";
  folder.write("chat.jsonl",
               R"({"messages": [{"role": "user", "content": "ka"}, {"role": "assistant", "content": "lo"}], "chat_template_kwargs": {"mark": "mi"}})"
               "\n");
  folder.write("own.jinja",
               "{% for m in messages %}{% if m.role == 'user' %}{{ m.content ~ mark }}{% else %}{% generation %}{{ m.content ~ eos_token }}"
               "{% endgeneration %}{% endif %}{% endfor %}");
  const Words build{"data",         "build",       folder / "chat.jsonl",
                    folder / "out", "--tokenizer", tokenizer,
                    "--no-end",     "--template",  "@" + (folder / "own.jinja").string()};
  expect_refused(build, Exit::data, "own.jinja: the chat template writes eos_token, but there is no tokenizer_config.json in its folder");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  const Result built = must(build);
  EXPECT_NE(built.out.find("out_mask.bin: targets are from the {% generation %} blocks of the chat template"), std::string::npos) << built.out;
  folder.write("pair.jsonl", R"({"prompt": "kami", "response": "lo"})"
                             "\n");
  must({"data", "build", folder / "pair.jsonl", folder / "pair", "--tokenizer", tokenizer, "--no-end", "--template",
        "{prompt}{response}<|endoftext|>"});
  for (const char* end : {".bin", ".idx", "_mask.bin"})
    EXPECT_EQ(contents((folder / "out").string() + end), contents((folder / "pair").string() + end)) << end;
  folder.write("strict.jinja", "{% if messages|length < 3 %}{{ raise_exception('too short') }}{% endif %}");
  expect_refused({"data", "build", folder / "chat.jsonl", folder / "out", "--overwrite", "--tokenizer", tokenizer, "--template",
                  "@" + (folder / "strict.jinja").string()},
                 Exit::data, "chat.jsonl:1: the line cannot be rendered: line 1 of the chat template: too short");
  expect_refused({"generate", exported(), "--prompt", "ka", "--template", "@" + (folder / "strict.jinja").string()}, Exit::data,
                 "strict.jinja: the chat template cannot format the prompt: line 1 of the chat template: too short");
}

TEST(huggingface, existing_files_are_never_overwritten_by_mistake) {
  const Folder folder;
  folder.write("notes", "precious");
  expect_refused({"import-hf", exported(), folder / "notes", "--overwrite"}, Exit::usage, "is not a checkpoint");
  EXPECT_EQ(contents(folder / "notes"), "precious");
  must({"import-hf", exported(), folder / "ckpt"});
  expect_refused({"import-hf", exported(), folder / "ckpt"}, Exit::usage, "--overwrite");
  must({"import-hf", exported(), folder / "ckpt", "--overwrite"});
  fs::create_directory(folder / "dir");
  must({"export-hf", folder / "ckpt", folder / "dir"});  // an empty folder may be used without --overwrite
  expect_refused({"export-hf", folder / "ckpt", folder / "dir"}, Exit::usage, "--overwrite");
  must({"export-hf", folder / "ckpt", folder / "dir/", "--overwrite", "--shard-size", "20KB"});
  EXPECT_FALSE(fs::exists(folder / "dir/model.safetensors"));  // the file of the earlier export is removed
  folder.write("dir/thesis.tex", "precious");
  expect_refused({"export-hf", folder / "ckpt", folder / "dir", "--overwrite"}, Exit::usage, "thesis.tex");
  EXPECT_EQ(contents(folder / "dir/thesis.tex"), "precious");
  EXPECT_TRUE(fs::exists(folder / "dir/config.json"));
  expect_refused({"export-hf", folder / "ckpt", folder / "ckpt"}, Exit::usage, "not empty");
  expect_refused({"export-hf", folder / "ckpt", folder / "ckpt", "--overwrite"}, Exit::usage, "does not belong");
  expect_refused({"export-hf", folder / "ckpt", folder / "notes"}, Exit::usage, "not a folder");
  fs::create_directory(folder / "x.tmp");
  expect_refused({"export-hf", folder / "ckpt", folder / "x"}, Exit::usage, "x.tmp");
  must({"export-hf", folder / "ckpt", folder / "x", "--overwrite"});
  EXPECT_EQ(folder.files(), 4u);
}

TEST(huggingface, full_disk_leaves_no_partial_files) {
  const Folder folder;
  const long weights = long(fs::file_size(exported() / "model.safetensors"));
  for (const long limit : {0L, 100L, weights / 2, weights - 1}) {
    // The file-size limit also cuts the error message, because standard error is a file here.
    const Result r = run({"export-hf", material().trained(), folder / "a"}, {.file_limit = limit});
    EXPECT_EQ(r.code, int(Exit::io)) << output_of(r);
    if (limit > 1000) {
      EXPECT_NE(r.err.find("nothing was kept"), std::string::npos) << r.err;
    }
    EXPECT_EQ(folder.files(), 0u) << limit;
    EXPECT_EQ(run({"import-hf", exported(), folder / "ckpt"}, {.file_limit = limit}).code, int(Exit::io));
    EXPECT_EQ(folder.files(), 0u) << limit;
  }
}

TEST(huggingface, unsupported_or_inconsistent_models_are_refused) {
  const Folder folder;
  expect_refused({"import-hf", folder / "absent", folder / "ckpt"}, Exit::missing, "absent: is not a folder");
  expect_refused({"import-hf", material().trained(), folder / "ckpt"}, Exit::missing, "config.json");
  expect_refused({"import-hf", folder.path(), folder / "ckpt"}, Exit::missing, "config.json");
  fs::copy(exported(), folder / "a");
  const auto with = [&](const std::string& key, const Json& value) {
    Json config = Json::parse(contents(exported() / "config.json"));
    config[key] = value;
    put_contents(folder / "a/config.json", config.dump());
  };
  with("model_type", "opt");
  expect_refused({"import-hf", folder / "a", folder / "ckpt"}, Exit::data, "model_type is \"opt\"");
  expect_refused({"generate", folder / "a", "--prompt", "x"}, Exit::data, "model_type is \"opt\"");
  with("intermediate_size", 63);
  expect_refused({"import-hf", folder / "a", folder / "ckpt"}, Exit::data, "gate_proj.weight");
  with("num_hidden_layers", 1);
  expect_refused({"import-hf", folder / "a", folder / "ckpt"}, Exit::data, "model.layers.1.");
  with("num_hidden_layers", 3);
  expect_refused({"import-hf", folder / "a", folder / "ckpt"}, Exit::data, "model.layers.2.");
  with("frobnicate", 1);
  const Result noted = must({"import-hf", folder / "a", folder / "ckpt"});
  EXPECT_NE(noted.err.find("note: "), std::string::npos);
  EXPECT_NE(noted.err.find("`frobnicate`"), std::string::npos) << noted.err;
  // A truncated safetensors file.
  fs::resize_file(folder / "a/model.safetensors", fs::file_size(folder / "a/model.safetensors") - 1);
  expect_refused({"import-hf", folder / "a", folder / "other"}, Exit::data, "cut short");
  EXPECT_FALSE(fs::exists(folder / "other"));
  // Models that no class of transformers can represent.
  must(material().train(folder / "out", {"model.pattern=P*", "train.steps=1"}));
  expect_refused({"export-hf", Material::checkpoint(folder / "out", 1), folder / "c"}, Exit::config, "model.pattern is");
  EXPECT_FALSE(fs::exists(folder / "c"));
  expect_refused({"export-hf", exported() / "model.safetensors", folder / "c"}, Exit::data, "is a Hugging Face folder");
}

// Tensors are copied in pieces: with a tensor of 64 MiB, import and export may use at most half of that on top of
// `info`.
TEST(huggingface, import_and_export_memory_is_below_tensor_size) {
  const Folder folder;
  fs::create_directory(folder / "big");
  const long vocab_size = 32768, width = 1024;
  Json config = Json::parse(contents(exported() / "config.json"));
  config.update({{"vocab_size", vocab_size},
                 {"hidden_size", width},
                 {"num_hidden_layers", 1},
                 {"tie_word_embeddings", true},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 8},
                 {"intermediate_size", 16},
                 {"mamba_d_ssm", 16},
                 {"mamba_n_heads", 2},
                 {"mamba_d_head", 8},
                 {"mamba_d_state", 4},
                 {"dtype", "bfloat16"},
                 {"torch_dtype", "bfloat16"}});
  folder.write("big/config.json", config.dump());
  const std::string layer = "model.layers.0.";
  const std::map<std::string, std::vector<long>> shapes{{"model.embed_tokens.weight", {vocab_size, width}},
                                                        {"model.final_layernorm.weight", {width}},
                                                        {layer + "input_layernorm.weight", {width}},
                                                        {layer + "pre_ff_layernorm.weight", {width}},
                                                        {layer + "self_attn.q_proj.weight", {16, width}},
                                                        {layer + "self_attn.k_proj.weight", {8, width}},
                                                        {layer + "self_attn.v_proj.weight", {8, width}},
                                                        {layer + "self_attn.o_proj.weight", {width, 16}},
                                                        {layer + "mamba.in_proj.weight", {2 * 16 + 2 * 4 + 2, width}},
                                                        {layer + "mamba.conv1d.weight", {16 + 2 * 4, 1, 4}},
                                                        {layer + "mamba.conv1d.bias", {16 + 2 * 4}},
                                                        {layer + "mamba.A_log", {2}},
                                                        {layer + "mamba.D", {2}},
                                                        {layer + "mamba.dt_bias", {2}},
                                                        {layer + "mamba.norm.weight", {16}},
                                                        {layer + "mamba.out_proj.weight", {width, 16}},
                                                        {layer + "feed_forward.gate_proj.weight", {16, width}},
                                                        {layer + "feed_forward.up_proj.weight", {16, width}},
                                                        {layer + "feed_forward.down_proj.weight", {width, 16}}};
  Json header;
  std::uint64_t end = 0;
  for (const auto& [name, shape] : shapes) {
    const std::uint64_t begin = end;
    std::uint64_t bytes = 2;
    for (const long extent : shape) bytes *= std::uint64_t(extent);
    end += bytes;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, end}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  folder.write("big/model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text);
  fs::resize_file(folder / "big/model.safetensors", 8 + length + end);  // a sparse file of zeros, which takes no disk space

  const long tensor = vocab_size * width * 2 / 1024, base = must({"info", material().trained()}).peak_kib;
  const long in = must({"import-hf", folder / "big", folder / "ckpt"}).peak_kib - base;
  const long out = must({"export-hf", folder / "ckpt", folder / "b"}).peak_kib - base;
  const long widened = must({"export-hf", folder / "ckpt", folder / "b", "--overwrite", "--dtype", "fp16"}).peak_kib - base;
  if (address_sanitizer) GTEST_SKIP() << "the sanitizer keeps freed memory";
  // Buffers take half a tensor; the process needs some more pages, whose number varies from run to run.
  for (const long more : {in, out, widened}) EXPECT_LT(more, tensor / 2 + 2048) << "KiB";
}

// A sharded model is exported in the same shards, and config.json keys that do not concern the model are kept.
TEST(huggingface, export_keeps_shards_and_unused_config_keys) {
  const Folder folder;
  must(material().train(folder / "out", {"model.mamba.norm=none", "train.steps=1"}));
  must({"export-hf", Material::checkpoint(folder / "out", 1), folder / "a", "--shard-size", "20KB"});
  Json config = Json::parse(contents(folder / "a/config.json"));
  for (const bool before : {true, false}) {
    config["mamba_norm_before_gate"] = before;
    put_contents(folder / "a/config.json", config.dump());
    must({"import-hf", folder / "a", folder / "ckpt", "--overwrite"});
    must({"export-hf", folder / "ckpt", folder / "b", "--overwrite"});
    EXPECT_GT(weights_in(folder / "a").size(), 1u);
    EXPECT_EQ(weights_in(folder / "a"), weights_in(folder / "b"));
    EXPECT_EQ(Json::parse(contents(folder / "b/config.json"))["mamba_norm_before_gate"], before);
  }
}

TEST(huggingface, errors_for_common_mistakes_state_the_remedy) {
  const Folder folder;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3087467144\n";
  fs::create_directory(folder / "lfs");
  fs::copy(exported() / "config.json", folder / "lfs");
  put_contents(folder / "lfs/model.safetensors", pointer);
  expect_refused({"import-hf", folder / "lfs", folder / "c"}, Exit::data, "git lfs pull");
  put_contents(folder / "tokenizer.json", pointer);
  expect_refused({"tokenizer", "encode", folder / "tokenizer.json", "--text", "a"}, Exit::data, "git lfs pull");
  expect_refused({"tokenizer", "encode", exported(), "--text", "a"}, Exit::data, "is a folder; give the path of the tokenizer.json in it");
  for (const Words& command : {Words{"import-hf", "tiiuae/Falcon-H1-0.5B-Base", folder / "c"}, Words{"eval", "tiiuae/Falcon-H1-0.5B-Base"},
                               Words{"generate", "tiiuae/Falcon-H1-0.5B-Base", "--prompt", "x"}})
    expect_refused(command, Exit::missing, "hf download tiiuae/Falcon-H1-0.5B-Base --local-dir DIR");
  fs::create_directory(folder / "adapter");
  put_contents(folder / "adapter/adapter_config.json", "{}");
  put_contents(folder / "adapter/adapter_model.safetensors", "");
  for (const Words& command : {Words{"import-hf", folder / "adapter", folder / "c"}, Words{"eval", folder / "adapter"}})
    expect_refused(command, Exit::missing,
                   "`gyrfalcon import-hf DIR NEW --adapters " + (folder / "adapter").string() + "` joins it with its base model");
  Json config = Json::parse(contents(exported() / "config.json"));
  config["intermediate_size"] = config["intermediate_size"].get<int>() / 2;
  fs::copy(exported(), folder / "other");
  put_contents(folder / "other/config.json", config.dump());
  expect_refused({"import-hf", folder / "other", folder / "c"}, Exit::data, "config.json do not belong together");
  const Result r = run({"import-hf", folder / "other", folder / "c"});
  EXPECT_EQ(r.err.find("deck"), r.err.npos) << r.err;
}

}  // namespace gyr::testing::huggingface_suite
