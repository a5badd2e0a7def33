// SPDX-License-Identifier: BSD-3-Clause
// Tests of the program on emulated GPUs. Every layout computes what one rank does, with ranks that share a GPU or
// communicate by NCCL, and for every emulated order of asynchronous work. Training on hosts and GPUs agrees, and either
// continues from checkpoints of the other. Host and GPU memory are separate: host code that reads GPU memory ends by a
// signal.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "regression/support/material.hpp"

using namespace gyr::testing;

namespace {

Words on_devices(const Words& arguments, int ranks) {
  Words words;
  if (ranks > 1) words = launcher(), words.insert(words.end(), {"-n", std::to_string(ranks)});
  words.push_back(GYR_EMULATED_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// `devices`: GPUs of this machine. With one GPU per rank, ranks communicate by NCCL.
Result run_on_devices(const Words& arguments, int ranks, int devices, const std::string& emulation = "apart") {
  return execute(on_devices(arguments, ranks),
                 {.env = {{"GYR_EMULATION", emulation}, {"GYR_EMULATED_DEVICES", std::to_string(devices)}}, .limit = 120});
}

struct Setting {
  int ranks;
  Words changes;
};

// Axes of a layout of two to four ranks, and settings that change the communication.
Setting drawn_setting(std::mt19937_64& random) {
  const auto one_of = [&](const Words& all) { return all[random() % all.size()]; };
  static const std::vector<std::vector<std::pair<std::string, int>>> layouts = {{{"data", 2}},
                                                                                {{"tensor", 2}},
                                                                                {{"pipeline", 2}},
                                                                                {{"context", 2}},
                                                                                {{"context", 3}},
                                                                                {{"data", 2}, {"pipeline", 2}},
                                                                                {{"data", 2}, {"tensor", 2}},
                                                                                {{"tensor", 2}, {"pipeline", 2}},
                                                                                {{"context", 2}, {"tensor", 2}},
                                                                                {{"context", 2}, {"pipeline", 2}},
                                                                                {{"pipeline", 4}}};
  const auto& layout = layouts[random() % layouts.size()];
  Setting s{1, {}};
  const auto has = [&](const std::string& axis) { return std::any_of(layout.begin(), layout.end(), [&](const auto& a) { return a.first == axis; }); };
  for (const auto& [axis, ranks] : layout) s.changes.push_back("parallel." + axis + "=" + std::to_string(ranks)), s.ranks *= ranks;
  s.changes.push_back("model.pattern=" + one_of({"P x 4", "PM*-", "M*PP"}));
  if (has("tensor")) s.changes.push_back("parallel.sequence=" + one_of({"true", "false"}));
  if (has("data")) s.changes.push_back("parallel.shard=" + one_of({"none", "optimizer", "gradients", "weights"}));
  // the model has 4 heads, which 3 ranks cannot divide
  if (has("context")) s.changes.push_back("parallel.context_mode=" + (s.ranks == 3 ? "ring" : one_of({"ring", "heads"})));
  s.changes.push_back("activation.recompute=" + one_of({"none", "full"}));
  s.changes.push_back("activation.policy=" + one_of({"keep", "swap", "memo"}));
  return s;
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += " " + word;
  return text;
}

}  // namespace

TEST(devices, layouts_match_single_rank) {
  const char* const given = std::getenv("GYR_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 20261123;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 6; ++i) {
    const Setting s = drawn_setting(random);
    const Words policies{"apart", "apart late", "apart backward any random=" + std::to_string(i)};
    const std::string policy = policies[random() % 3];
    const int devices = random() % 3 == 0 ? 1 : s.ranks;
    Words arguments{"verify", Material::get().deck()};
    arguments.insert(arguments.end(), s.changes.begin(), s.changes.end());
    const Result r = run_on_devices(arguments, s.ranks, devices, policy);
    EXPECT_EQ(r.code, 0) << i << ": " << policy << ", " << devices << " devices:" << text_of(s.changes) << "\n" << r.out << r.err;
  }
}

TEST(devices, training_losses_match_host) {
  const Folder folder;
  constexpr int steps = 8;
  for (const std::string precision : {"fp32", "bf16"}) {
    const auto changed = [&](const std::string& where) {
      return Material::get().train(folder.path() / where, {"train.steps=" + std::to_string(steps), "train.precision=" + precision,
                                                           "optimizer.lr=1e-2", "train.seq_length=16"});
    };
    const Result host = run(changed(precision + "_host")), device = run_on_devices(changed(precision + "_device"), 1, 1);
    ASSERT_EQ(host.code, 0) << host.out << host.err;
    ASSERT_EQ(device.code, 0) << device.out << device.err;
    const auto left = losses(folder.path() / (precision + "_host")), right = losses(folder.path() / (precision + "_device"));
    ASSERT_EQ(left.size(), std::size_t(steps));
    ASSERT_EQ(right.size(), std::size_t(steps));
    EXPECT_LT(right.at(steps), 0.95 * right.at(1));
    for (const auto& [step, loss] : left) EXPECT_NEAR(right.at(step), loss, (precision == "fp32" ? 1e-4 : 1e-2) * loss) << precision << " " << step;
  }
}

// The results are bitwise identical for every order of asynchronous work and after resuming on GPUs, and a host resumes
// from a GPU's checkpoint.
TEST(devices, resumed_training_is_bitwise_identical) {
  const Folder folder;
  const auto trained = [&](const std::string& where, int steps, const std::string& policy) {
    const Words words = Material::get().train(folder.path() / where, {"train.steps=" + std::to_string(steps), "optimizer.decay_steps=6",
                                                                      "parallel.data=2", "parallel.shard=optimizer", "--resume"});
    const Result r = run_on_devices(words, 2, 2, policy);
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  };
  trained("whole", 4, "apart");
  trained("late", 4, "apart late");
  trained("parts", 2, "apart backward any random=3");
  trained("parts", 4, "apart random=4");
  expect_bitwise_equal_runs(folder.path() / "whole", folder.path() / "late", 4);
  expect_bitwise_equal_runs(folder.path() / "whole", folder.path() / "parts", 4);
  const Result host = run(Material::get().train(folder.path() / "parts", {"train.steps=6", "optimizer.decay_steps=6", "--resume"}));
  EXPECT_EQ(host.code, 0) << host.out << host.err;
  EXPECT_EQ(losses(folder.path() / "parts").size(), 6u);
}

// Generation with CUDA graphs gives the text of generation without graphs, for every layout. Graphs include NCCL
// communication. No graph is captured if tensor-parallel ranks share one GPU.
TEST(devices, generation_with_cuda_graphs_gives_same_text) {
  const Words ask{"generate", Material::get().trained(), "--tokens", "24", "--greedy", "--prompt", "ka",
                  "--prompt", "lomi tusha ven",          "--prompt", "or"};
  const auto generated = [&](const Words& more, int ranks, int devices, const std::string& emulation, const std::string& graphs) {
    Words words = ask;
    words.insert(words.end(), more.begin(), more.end());
    const Result r = execute(
        on_devices(words, ranks),
        {.env = {{"GYR_EMULATION", emulation}, {"GYR_EMULATED_DEVICES", std::to_string(devices)}, {"GYR_CUDA_GRAPHS", graphs}}, .limit = 120});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    EXPECT_EQ(graphs == "off" || (ranks == 2 && devices == 1 && more.empty()), r.err.find(" with 1 CUDA graph") == std::string::npos) << r.err;
    return r.out;
  };
  const std::string text = generated({}, 1, 1, "apart", "off");
  const std::string of_two = generated({}, 2, 2, "apart", "off");
  EXPECT_EQ(lines_of(text).size(), 5u) << text;
  for (const char* emulation : {"apart", "apart late", "apart backward any random=3"}) {
    SCOPED_TRACE(emulation);
    EXPECT_EQ(generated({}, 1, 1, emulation, "on"), text);
    EXPECT_EQ(generated({}, 2, 2, emulation, "on"), of_two);
    EXPECT_EQ(generated({"--pipeline", "2"}, 2, 2, emulation, "on"), text);
  }
  EXPECT_EQ(generated({}, 2, 1, "apart", "on"), of_two);
  EXPECT_EQ(generated({"--weights", "int8"}, 1, 1, "apart", "on"), generated({"--weights", "int8"}, 1, 1, "apart", "off"));
  EXPECT_EQ(execute(on_devices(ask, 1), {.env = {{"GYR_CUDA_GRAPHS", "yes"}}, .limit = 120}).code, 64);
}

// Training with CUDA graphs ends with the same bits as training without, also after a resume. The layouts have
// communication between graphs and inside of graphs.
TEST(devices, training_with_cuda_graphs_is_bitwise_identical) {
  const Folder folder;
  struct Row {
    int ranks, devices;
    Words changes;
    bool micro_batches;
  };
  const std::vector<Row> rows{
      {1, 1, {"train.global_batch_size=6"}, true},
      {2, 2, {"parallel.tensor=2", "parallel.sequence=true", "model.dropout.residual=0.2", "model.dropout.attention=0.1"}, true},
      {2, 2, {"parallel.pipeline=2", "train.global_batch_size=6", "model.dropout.embedding=0.1"}, true},
      {2, 2, {"parallel.data=2", "parallel.shard=optimizer", "activation.recompute=full"}, true},
      {2, 1, {"parallel.tensor=2"}, false}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const auto trained = [&](const std::string& where, int steps, const std::string& emulation, const std::string& graphs) {
      Words more{"train.steps=" + std::to_string(steps), "optimizer.decay_steps=5", "train.global_batch_size=4", "train.seq_length=16", "--resume"};
      more.insert(more.end(), row.changes.begin(), row.changes.end());
      const Result r = execute(
          on_devices(Material::get().train(folder.path() / where, more), row.ranks),
          {.env = {{"GYR_EMULATION", emulation}, {"GYR_EMULATED_DEVICES", std::to_string(row.devices)}, {"GYR_CUDA_GRAPHS", graphs}}, .limit = 120});
      EXPECT_EQ(r.code, 0) << text_of(row.changes) << r.out << r.err;
      EXPECT_EQ(r.out.find("graphs: ") != std::string::npos, graphs == "on") << r.out;
      EXPECT_EQ(r.out.find("graphs: micro-batches, gradient norm and optimizer\n") != std::string::npos, graphs == "on" && row.micro_batches)
          << r.out;
    };
    const std::string kernels = "kernels" + std::to_string(i), graphs = "graphs" + std::to_string(i);
    trained(kernels, 4, "apart", "off");
    trained(graphs, 3, i % 2 == 0 ? "apart late" : "apart backward any random=3", "on");
    trained(graphs, 4, "apart any random=4", "on");
    expect_bitwise_equal_runs(folder.path() / kernels, folder.path() / graphs, 4);
  }
}

// Losses with cuDNN attention, here emulated by plain loops, match those with our own attention up to rounding. They
// are bitwise independent of the order of asynchronous work and of CUDA graphs.
TEST(devices, cudnn_attention_losses_match_builtin_attention) {
  const Folder folder;
  constexpr int steps = 3;
  const auto trained = [&](const std::string& attention, const std::string& emulation, const std::string& graphs) {
    const auto where = folder.path() / (attention + emulation + graphs);
    const Result r = execute(on_devices(Material::get().train(where, {"train.steps=" + std::to_string(steps), "train.precision=bf16",
                                                                      "optimizer.lr=1e-2", "train.seq_length=16"}),
                                        1),
                             {.env = {{"GYR_EMULATION", emulation}, {"GYR_CUDA_ATTENTION", attention}, {"GYR_CUDA_GRAPHS", graphs}}, .limit = 120});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    return losses(where);
  };
  const auto ours = trained("own", "apart", "on"), by_cudnn = trained("cudnn", "apart", "on");
  ASSERT_EQ(by_cudnn.size(), std::size_t(steps));
  for (const auto& [step, loss] : ours) EXPECT_NEAR(by_cudnn.at(step), loss, 1e-2 * loss) << step;
  EXPECT_NE(by_cudnn, ours);
  EXPECT_EQ(trained("cudnn", "apart backward any random=5", "off"), by_cudnn);
}

// The program has code for compute capability 8.0 and later. On an older GPU it exits with one line before training
// starts.
TEST(devices, unsupported_compute_capability_is_rejected) {
  const Folder folder;
  const auto trained = [&](const std::string& capability) {
    return run_on_devices(Material::get().train(folder.path() / capability, {"train.steps=1"}), 1, 1, "capability=" + capability);
  };
  for (const char* known : {"86", "120"}) EXPECT_EQ(trained(known).code, 0) << known;
  const Result r = trained("75");
  EXPECT_EQ(r.code, 69) << r.out << r.err;
  EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
  for (const char* part : {"capability 80 90a 100+", "has 75", "make cuda GPUS=75"}) EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "75"));
}

// A self-test checks wgmma results before training uses them. If they are wrong, the run ends and its message names the
// setting that avoids wgmma.
TEST(devices, wrong_wgmma_result_is_detected_before_training) {
  const Folder folder;
  const auto trained = [&](const std::string& where, const std::string& emulation, const std::map<std::string, std::string>& more) {
    std::map<std::string, std::string> env{{"GYR_EMULATION", emulation}, {"GYR_CUDA_TRIAL", "on"}};
    env.insert(more.begin(), more.end());
    return execute(on_devices(Material::get().train(folder.path() / where, {"train.steps=1", "train.precision=bf16"}), 1),
                   {.env = env, .limit = 120});
  };
  EXPECT_EQ(trained("right", "apart", {}).code, 0);
  const Result r = trained("wrong", "apart wrong", {});
  EXPECT_EQ(r.code, 69) << r.out << r.err;
  EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
  for (const char* part : {"wgmma kernels compute wrong results", "attention differs from", "GYR_CUDA_WARPGROUPS=off"})
    EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
  EXPECT_TRUE(losses(folder.path() / "wrong").empty());
  EXPECT_EQ(trained("without", "apart wrong", {{"GYR_CUDA_WARPGROUPS", "off"}}).code, 0);
  EXPECT_EQ(trained("of_80", "apart wrong capability=80", {}).code, 0);
  EXPECT_EQ(losses(folder.path() / "without"), losses(folder.path() / "of_80"));
}

// One rank hangs while the other ranks' GPUs wait for it in NCCL and their hosts wait for the GPUs. The watchdog names
// the rank and the operation that the others wait for.
TEST(devices, watchdog_names_hanging_rank) {
  const Folder folder;
  for (const std::string axis : {"data", "tensor", "pipeline"}) {
    SCOPED_TRACE(axis);
    const Result r = run_on_devices(Material::get().train(folder.path() / axis, {"train.steps=4", "parallel." + axis + "=2", "watchdog.seconds=2",
                                                                                 "fault.kind=hang", "fault.rank=1", "fault.step=2"}),
                                    2, 2);
    EXPECT_EQ(r.code, 75) << r.out << r.err;
    EXPECT_NE(r.err.find("cause: rank 1"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("waiting in "), std::string::npos) << r.err;
  }
}

// A program for hosts plans the same memory for described GPUs as the program for GPUs.
TEST(devices, host_program_plans_memory_of_gpu_program) {
  const std::string clusters = std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml";
  for (const char* name : {"falcon-h1-0.5b", "llama-3.2-1b", "mamba2-130m", "gpt2-124m"})
    for (const char* recompute : {"none", "full"}) {
      const Words plan{"plan",
                       std::string(GYR_SOURCE_DIR) + "/input/" + name + ".yaml",
                       "--cluster",
                       clusters,
                       "train.precision=bf16",
                       std::string("activation.recompute=") + recompute};
      Words host{GYR_BINARY};
      host.insert(host.end(), plan.begin(), plan.end());
      const auto memory = [](const Result& r) {
        for (const std::string& line : lines_of(r.out))
          if (line.find("MiB on the rank that uses most") != std::string::npos) return line;
        return r.err;
      };
      EXPECT_EQ(memory(execute(host, {.limit = 120})), memory(run_on_devices(plan, 1, 1))) << name << ", recompute " << recompute;
    }
}

// `plan` and `--version` need no GPU. Training without a GPU ends with one line that says so.
TEST(devices, missing_gpu_is_reported_in_one_line) {
  const Folder folder;
  EXPECT_EQ(run_on_devices({"--version"}, 1, 0).code, 0);
  EXPECT_EQ(run_on_devices({"plan", Material::get().deck()}, 1, 0).code, 0);
  const Result r = run_on_devices(Material::get().train(folder.path() / "none"), 1, 0);
  EXPECT_EQ(r.code, 69) << r.out << r.err;
  EXPECT_NE(r.err.find("computes on NVIDIA GPUs and finds none here"), std::string::npos) << r.err;
  EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
}
