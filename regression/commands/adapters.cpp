// SPDX-License-Identifier: BSD-3-Clause
// Tests of LoRA (finetune.lora) with the program: training on several grids, export of the merged model, and export and
// import of a PEFT adapter folder.
#include <gtest/gtest.h>

#include <regex>

#include "regression/support/material.hpp"

namespace gyr::testing::adapters_suite {

namespace fs = std::filesystem;

namespace {

// A pretrained model exported as a Hugging Face folder, and runs that train LoRA adapters on it.
struct Adapted {
  Folder folder;
  fs::path base = folder / "base";
  const Words lora{"finetune.lora.rank=3", "finetune.lora.alpha=6", "finetune.lora.targets=[q_proj, v_proj, o_proj, in_proj, down_proj]"};

  Adapted() {
    const Result trained = run(Material::get().train(folder / "before", {"train.steps=10", "optimizer.decay_steps=10"}));
    EXPECT_EQ(trained.code, 0) << output_of(trained);
    const Result out = run({"export-hf", Material::checkpoint(folder / "before", 10), base});
    EXPECT_EQ(out.code, 0) << output_of(out);
  }
  // Trains the adapters for six steps with these settings; returns the output folder.
  fs::path train(const std::string& name, Words changes, int ranks) const {
    changes.insert(changes.end(), {"train.steps=6", "optimizer.decay_steps=6", "train.init_from=" + base.string()});
    changes.insert(changes.begin(), lora.begin(), lora.end());
    const Result r = run(Material::get().train(folder / name, changes), {.ranks = ranks});
    EXPECT_EQ(r.code, 0) << output_of(r);
    return folder / name;
  }
};

const Adapted& adapted() {
  static const Adapted adapted;
  return adapted;
}

double loss_of(const fs::path& model) {
  const Result r = run({"eval", model.string(), "--data", Material::get().prefix().string(), "--length", "32"});
  double loss = 0;
  EXPECT_EQ(std::sscanf(r.out.substr(r.out.find("loss ")).c_str(), "loss %lf", &loss), 1) << output_of(r);
  return loss;
}

}  // namespace

TEST(adapters, lora_losses_agree_on_grids_base_stays_frozen) {
  const fs::path one = adapted().train("one", {"parallel.tensor=1"}, 1),
                 many = adapted().train("many", {"parallel.tensor=2", "parallel.pipeline=1"}, 2);
  const auto a = metrics(one, "step"), b = metrics(many, "step");
  ASSERT_EQ(a.size(), 6U);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(double(a[i].at("loss")), double(b[i].at("loss")), 1e-5 * double(a[i].at("loss"))) << "step " << i + 1;

  // The merged model must score as the model with separate adapters, and its file must keep its size.
  const Result merged = run({"export-hf", Material::checkpoint(one, 6), (adapted().folder / "sum").string()});
  ASSERT_EQ(merged.code, 0) << output_of(merged);
  EXPECT_NE(contents(adapted().folder / "sum/model.safetensors"), contents(adapted().base / "model.safetensors"));
  EXPECT_EQ(fs::file_size(adapted().folder / "sum/model.safetensors"), fs::file_size(adapted().base / "model.safetensors"));
  const double sum = loss_of(adapted().folder / "sum"), with_adapters = loss_of(Material::checkpoint(one, 6));
  EXPECT_NEAR(sum, with_adapters, 1e-5 * with_adapters);
  EXPECT_LT(with_adapters, loss_of(adapted().base));
}

TEST(adapters, lora_on_frozen_random_weights_gives_a_warning) {
  const auto output = [](const std::string& name, Words changes) {
    changes.insert(changes.end(), {"train.steps=1", "optimizer.decay_steps=1", "finetune.lora.rank=2"});
    const Result r = run(Material::get().train(adapted().folder / name, changes));
    EXPECT_EQ(r.code, 0) << output_of(r);
    return r.out;
  };
  EXPECT_TRUE(std::regex_search(output("counted", {}), std::regex("[0-9]+ parameters \\([0-9]+ trainable, [0-9.]+ %\\) in fp32")));
  EXPECT_EQ(output("counted all", {"finetune.lora.also=[\"*\"]"}).find("trainable"), std::string::npos);
  const std::string warning = "warning: LoRA (finetune.lora) on frozen random weights learns little; did you forget --init-from DIR";
  EXPECT_NE(output("drawn", {}).find(warning), std::string::npos);
  EXPECT_EQ(output("all", {"finetune.lora.also=[\"*\"]"}).find(warning), std::string::npos);
  EXPECT_EQ(output("given", {"train.init_from=" + adapted().base.string()}).find(warning), std::string::npos);
}

TEST(adapters, targets_that_peft_refuses_are_named_before_training) {
  const std::string note = "will refuse the adapters of this run";
  const auto planned = [&](const std::string& targets) {
    return run({"plan", Material::get().deck(), "--init-from", adapted().base, "finetune.lora.rank=2", "finetune.lora.targets=" + targets});
  };
  const Result refused = planned("[q_proj, out_proj]"), accepted = planned("[q_proj, in_proj]");
  EXPECT_EQ(refused.code, 0) << output_of(refused);
  EXPECT_NE(refused.out.find("note: `export-hf --adapters` " + note), std::string::npos) << output_of(refused);
  EXPECT_NE(refused.out.find("PEFT refuses adapters on out_proj of"), std::string::npos) << output_of(refused);
  EXPECT_EQ(accepted.out.find(note), std::string::npos) << output_of(accepted);
  const Result trained =
      run(Material::get().train(adapted().folder / "out_proj", {"train.steps=1", "finetune.lora.rank=2", "finetune.lora.targets=[out_proj]",
                                                                "train.init_from=" + adapted().base.string()}));
  EXPECT_EQ(trained.code, 0) << output_of(trained);
  EXPECT_LT(trained.out.find(note), trained.out.find("step 1/1")) << output_of(trained);
}

TEST(adapters, lora_without_model_is_refused) {
  const Folder folder;
  const fs::path deck = folder / "lora.yaml";
  put_contents(deck, "finetune: {lora: {rank: 2}}\ndata: {prefixes: [" + Material::get().prefix().string() + "]}\noutput: {folder: " +
                         (folder / "out").string() + "}\ntrain: {precision: fp32, steps: 2, seq_length: 32}\ncheckpoint: {every: 1}\n");
  for (const char* command : {"train", "plan"}) {
    const Result r = run({command, deck});
    EXPECT_EQ(r.code, 78) << output_of(r);
    EXPECT_NE(r.err.find("lora.yaml: finetune.lora adapts a trained model, and the deck names none; give --init-from DIR"), r.err.npos)
        << output_of(r);
  }
  const Result resumed = run({"train", deck, "--resume"});
  EXPECT_NE(resumed.err.find("and the deck names none, and " + (folder / "out").string() + " has no run to resume; give --init-from DIR"),
            resumed.err.npos)
      << output_of(resumed);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// The shape of the model is that of the checkpoint, even if the model that the run started from is gone.
TEST(adapters, resumed_run_remembers_initial_model) {
  const Folder folder;
  const fs::path deck = folder / "lora.yaml", base = folder / "base";
  fs::copy(adapted().base, base, fs::copy_options::recursive);
  put_contents(deck, "finetune: {lora: {rank: 2}}\ndata: {prefixes: [" + Material::get().prefix().string() + "]}\noutput: {folder: " +
                         (folder / "out").string() + "}\ntrain: {precision: fp32, seq_length: 32}\ncheckpoint: {every: 1}\n");
  const auto resumed = [&](const std::string& steps) {
    const Result r = run({"train", deck, "--resume", "train.steps=" + steps});
    EXPECT_EQ(r.code, 0) << output_of(r);
    EXPECT_NE(contents(folder / "out/deck.yaml").find("init_from: " + base.string()), std::string::npos);
    return r.out;
  };
  // A run that was killed before its first checkpoint starts again from the same model.
  const Result killed = run({"train", deck, "--init-from", base.string(), "train.steps=0"});
  EXPECT_EQ(killed.code, 0) << output_of(killed);
  EXPECT_NE(resumed("1").find("initial weights from " + base.string()), std::string::npos);
  const Result first = run({"train", deck, "--init-from", base.string(), "train.steps=2", "--anew"});
  ASSERT_EQ(first.code, 0) << output_of(first);
  EXPECT_EQ(resumed("3").find("model."), std::string::npos);
  for (const auto& file : fs::directory_iterator(adapted().base))
    if (file.path().filename() != "tokenizer.json") fs::remove(base / file.path().filename());
  const std::string out = resumed("4");
  EXPECT_NE(out.find("at step 3"), std::string::npos) << out;
  EXPECT_EQ(out.find("model."), std::string::npos) << out;
  EXPECT_EQ(metrics(folder / "out", "step").size(), 4U);
  fs::copy(base / "tokenizer.json", folder / "tokenizer.json");
  fs::remove_all(base);
  const Result r = run({"train", deck, "--resume", "train.steps=5"});
  EXPECT_EQ(r.code, 66) << output_of(r);
  EXPECT_NE(r.err.find("this run was started with --init-from " + base.string() + ", and its tokenizer"), r.err.npos) << output_of(r);
  const Result moved = run({"train", deck, "--resume", "train.steps=5", "data.tokenizer=" + (folder / "tokenizer.json").string()});
  EXPECT_EQ(moved.code, 0) << output_of(moved);
}

TEST(adapters, peft_export_and_import_keep_every_byte) {
  const fs::path run_folder = adapted().train("out", {"parallel.tensor=1"}, 1), checkpoint = Material::checkpoint(run_folder, 6);
  const fs::path folder = adapted().folder / "adapters", again = adapted().folder / "again", back = adapted().folder / "back";
  Result r = run({"export-hf", checkpoint, folder, "--adapters"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  const auto config = nlohmann::json::parse(contents(folder / "adapter_config.json"));
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["target_modules"], nlohmann::json({"down_proj", "in_proj", "o_proj", "q_proj", "v_proj"}));
  r = run({"import-hf", adapted().base, back, "--adapters", folder.string()});
  ASSERT_EQ(r.code, 0) << output_of(r);
  r = run({"export-hf", back, again, "--adapters"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(contents(again / "adapter_model.safetensors"), contents(folder / "adapter_model.safetensors"));
  const double loss = loss_of(checkpoint);
  EXPECT_NEAR(loss_of(back), loss, 1e-6 * loss);

  // Adapters on one layer only: target_modules must hold the full layer name, because PEFT applies a short name to all
  // layers.
  const fs::path of_one = adapted().train("of_one", {"finetune.lora.targets=[\"model.layers.0.*.o_proj\", q_proj]"}, 1);
  r = run({"export-hf", Material::checkpoint(of_one, 6), folder, "--adapters", "--overwrite"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(nlohmann::json::parse(contents(folder / "adapter_config.json"))["target_modules"],
            nlohmann::json({"model.layers.0.self_attn.o_proj", "q_proj"}));
  r = run({"import-hf", adapted().base, back, "--adapters", folder.string(), "--overwrite"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  r = run({"export-hf", back, again, "--adapters", "--overwrite"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  for (const char* file : {"adapter_model.safetensors", "adapter_config.json"}) EXPECT_EQ(contents(again / file), contents(folder / file));

  put_contents(folder / "adapter_config.json", std::regex_replace(contents(folder / "adapter_config.json"), std::regex("\"r\": 3"), "\"r\": 2"));
  r = run({"import-hf", adapted().base, back, "--adapters", folder.string(), "--overwrite"});
  EXPECT_EQ(r.code, 65);
  EXPECT_NE(r.err.find("but adapter_config.json needs 2 x 32"), r.err.npos) << output_of(r);

  // A new run can start from a checkpoint with adapters: with the same adapter rank, or with the adapters merged.
  // Another adapter rank is refused.
  const auto first_loss = [&](const std::string& name, const Words& changes) {
    Words words{"train.steps=1", "optimizer.decay_steps=1", "train.init_from=" + checkpoint.string()};
    words.insert(words.end(), changes.begin(), changes.end());
    const Result started = run(Material::get().train(adapted().folder / name, words), {.ranks = 2});
    EXPECT_EQ(started.code, 0) << output_of(started);
    return double(metrics(adapted().folder / name, "step").front().at("loss"));
  };
  const double on = first_loss("on", {});
  EXPECT_NEAR(on, first_loss("sum_on", {"finetune.lora.rank=0"}), 1e-5);
  EXPECT_NEAR(on, first_loss("sum_on_tensor", {"finetune.lora.rank=0", "parallel.tensor=2", "parallel.pipeline=1"}), 1e-5);
  r = run(Material::get().train(adapted().folder / "other", {"train.init_from=" + checkpoint.string(), "finetune.lora.rank=2"}), {.ranks = 2});
  EXPECT_EQ(r.code, 78);
  EXPECT_NE(r.err.find("has adapters of rank 3"), r.err.npos) << output_of(r);
}

TEST(adapters, unsupported_peft_folders_are_refused) {
  const fs::path run_folder = adapted().train("refused", {"parallel.tensor=1"}, 1), folder = adapted().folder / "theirs";
  ASSERT_EQ(run({"export-hf", Material::checkpoint(run_folder, 6), folder, "--adapters"}).code, 0);
  const auto good = nlohmann::json::parse(contents(folder / "adapter_config.json"));
  const auto refusal = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[key] = value;
    put_contents(folder / "adapter_config.json", bad.dump());
    const Result r = run({"import-hf", adapted().base, adapted().folder / "none", "--adapters", folder.string()});
    EXPECT_EQ(r.code, 65) << key << output_of(r);
    return r.err;
  };
  EXPECT_NE(refusal("use_dora", true).find("use_dora is set, and this PEFT option is not supported"), std::string::npos);
  EXPECT_NE(refusal("rank_pattern", {{"q_proj", 8}}).find("rank_pattern is set, and this PEFT option is not supported"), std::string::npos);
  EXPECT_NE(refusal("peft_type", "IA3").find("peft_type is not LORA"), std::string::npos);
  EXPECT_NE(refusal("peft_type", 3).find("peft_type is not LORA"), std::string::npos);
  EXPECT_NE(refusal("bias", "some").find("bias"), std::string::npos);
  for (const char* initial : {"pissa", "pissa_niter_4", "olora", "OLoRA", "corda", "loftq", "lora_ga"})
    EXPECT_NE(refusal("init_lora_weights", initial).find("init_lora_weights is \"" + std::string(initial)), std::string::npos);
  EXPECT_NE(refusal("next_option", 1).find("next_option is set, and this PEFT option is not supported"), std::string::npos);
  EXPECT_NE(refusal("target_modules", ".*proj").find("is not a list of names"), std::string::npos);
  EXPECT_NE(refusal("target_modules", {"no_proj"}).find("selects no layer of this model that takes an adapter; those are down_proj, "),
            std::string::npos);
  EXPECT_NE(refusal("target_modules", {"q_proj"}).find("adapter_model.safetensors"), std::string::npos);
  EXPECT_NE(refusal("r", 5).find("lora_A"), std::string::npos);
  const Result plain = run({"export-hf", Material::checkpoint(adapted().folder / "before", 10), adapted().folder / "none", "--adapters"});
  EXPECT_EQ(plain.code, 78);
  EXPECT_NE(plain.err.find("has no adapters"), plain.err.npos) << output_of(plain);
}

}  // namespace gyr::testing::adapters_suite
