// SPDX-License-Identifier: BSD-3-Clause
// Tests of the command line: complete help, output that other programs can parse, files that do not depend on the
// number of ranks, and plans of models too large for this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "regression/support/material.hpp"

namespace gyr::testing::commands_suite {

namespace fs = std::filesystem;

namespace {

const Material& material() { return Material::get(); }

struct Help {
  Words command;
  std::set<std::string> options;
};

const Help helps[] = {
    {{"train"},
     {"--help", "--init-from", "--replan", "--resume", "--anew", "--accept-changes", "--take-over", "--dry-run", "--ranks", "--attempt",
      "--exit-record", "--supervisor"}},
    {{"plan"},
     {"--help", "--init-from", "--ranks", "--cluster", "--explain", "--explain-layout", "--html", "--longest", "--profile", "--search-seconds",
      "--tokens"}},
    {{"probe"}, {"--help", "--out", "--overwrite"}},
    {{"selftest"}, {"--help", "--against", "--fault", "--folder", "--megabytes", "--out", "--overwrite", "--seconds", "--seed"}},
    {{"run"}, {"--help", "--ranks", "--launcher", "--spares", "--accept-changes", "--take-over"}},
    {{"profile"}, {"--help", "--init-from", "--ranks", "--out", "--overwrite"}},
    {{"verify"}, {"--help", "--init-from", "--ranks", "--launcher"}},
    {{"ps"}, {"--help"}},
    {{"import-hf"}, {"--help", "--adapters", "--overwrite"}},
    {{"export-hf"}, {"--help", "--adapters", "--dtype", "--shard-size", "--like", "--overwrite"}},
    {{"export-gguf"}, {"--help", "--dtype", "--tokenizer", "--no-tokenizer", "--split-rule", "--overwrite"}},
    {{"eval"}, {"--objective", "--help",     "--data",       "--text",      "--lambada",   "--choices",          "--split",     "--limit",
                "--length",    "--stride",   "--documents",  "--separator", "--key",       "--skip-invalid",     "--tokenizer", "--begin",
                "--delimiter", "--json",     "--mask-token", "--records",   "--overwrite", "--logits",           "--batch",     "--batch-tokens",
                "--tensor",    "--pipeline", "--precision",  "--weights",   "--retrieval", "--shuffle-neighbors"}},
    {{"generate"}, {"--help",  "--prompt",   "--template", "--tokenizer", "--tokens",    "--temperature", "--chat",      "--greedy",
                    "--top-k", "--top-p",    "--seed",     "--stop",      "--pipeline",  "--data",        "--precision", "--plain",
                    "--batch", "--together", "--limit",    "--weights",   "--retrieval", "--align",       "--cite",      "--in-context"}},
    {{"info"}, {"--help", "--check", "--statistics"}},
    {{"diff"}, {"--help", "--tolerance", "--tolerances"}},
    {{"reshard"}, {"--help", "--files", "--deflate"}},
    {{"report"}, {"--help", "--html", "--svg", "--samples", "--iterations", "--tokenizer", "--page-megabytes"}},
    {{"manual"}, {"--help"}},
    {{"help"}, {"--help"}},
    {{"keys"}, {"--help"}},
    {{"version"}, {"--help"}},
    {{"trace"}, {"--help"}},
    {{"trace", "show"}, {"--help"}},
    {{"tokenizer"}, {"--help"}},
    {{"tokenizer", "train"}, {"--help", "--vocab-size", "--min-frequency", "--documents", "--separator", "--key", "--skip-invalid", "--overwrite"}},
    {{"tokenizer", "encode"}, {"--help", "--text", "--special", "--json"}},
    {{"tokenizer", "decode"}, {"--help", "--skip-special", "--json"}},
    {{"retro"}, {"--help"}},
    {{"retro", "build-db"}, {"--help", "--data", "--split", "--database", "--chunk", "--block", "--tokenizer"}},
    {{"retro", "index"}, {"--help", "--common", "--index", "--probes", "--retriever"}},
    {{"retro", "query"}, {"--help", "--candidates", "--overlap", "--saved"}},
    {{"retro", "search"}, {"--help", "--text", "--most", "--tokenizer"}},
    {{"retro", "inspect"}, {"--help", "--chunk", "--tokenizer"}},
    {{"retro", "check"}, {"--help", "--share", "--seed"}},
    {{"data"}, {"--help"}},
    {{"data", "info"}, {"--help"}},
    {{"data", "build"}, {"--help",       "--tokenizer",    "--documents",    "--separator", "--key",         "--skip-invalid", "--template",
                         "--prompt-key", "--response-key", "--messages-key", "--role-key",  "--content-key", "--assistant",    "--classes",
                         "--tags",       "--pairs",        "--prompts",      "--source",    "--no-end",      "--special",      "--overwrite"}},
};

// Names of the options that a help text describes.
std::set<std::string> options_of(const std::string& help) {
  std::set<std::string> names;
  for (const std::string& line : lines_of(help)) {
    const auto at = line.find("--");
    if (line.starts_with("  -") && at != std::string::npos) names.insert(line.substr(at, line.find_first_of(" ,", at) - at));
  }
  return names;
}

// Paths of the keys of a deck, such as model.attention.num_heads.
std::set<std::string> keys_of_deck(const std::string& deck) {
  std::set<std::string> keys;
  Words sections;
  for (const std::string& line : lines_of(deck)) {
    const auto indent = line.find_first_not_of(' '), colon = line.find(':');
    if (indent == std::string::npos || colon == std::string::npos) continue;
    sections.resize(indent / 2);
    sections.push_back(line.substr(indent, colon - indent));
    if (colon + 1 == line.size()) continue;
    std::string path;
    for (const std::string& s : sections) path += (path.empty() ? "" : ".") + s;
    keys.insert(path);
  }
  return keys;
}

// Paths of the keys in the help's key table: a heading such as "model.attention: ..." is followed by one line per key.
std::set<std::string> keys_of_help(const std::string& help) {
  std::set<std::string> keys;
  std::string section;
  for (const std::string& line : lines_of(help)) {
    const std::string word = line.substr(0, line.find(' '));
    if (word.empty()) continue;
    if (word.back() == ':') section = word.substr(0, word.size() - 1);
    else if (!section.empty()) keys.insert(section + "." + word);
  }
  return keys;
}

std::string random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(count, 0);
  for (char& c : bytes) c = char(random());
  return bytes;
}

}  // namespace

TEST(commands, help_names_every_option) {
  for (const auto& [command, options] : helps) {
    Words arguments = command;
    arguments.push_back("--help");
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 0) << command.back();
    EXPECT_EQ(options_of(r.out), options) << command.back();
    EXPECT_EQ(r.err, "");
  }
  const Result r = run({"--help"});
  EXPECT_EQ(r.code, 0);
  for (const auto& [command, options] : helps) EXPECT_NE(r.out.find("\n  " + command[0] + " "), std::string::npos) << command[0];
  for (const char* code : {"64", "65", "66", "69", "70", "74", "75", "78", "80", "81"}) EXPECT_NE(r.out.find(code), std::string::npos) << code;
}

TEST(commands, keys_lists_every_key_of_the_deck) {
  const auto keys = keys_of_deck(contents(material().output() / "deck.yaml"));
  EXPECT_GT(keys.size(), 70u);
  const Result all = run({"keys"}, {.env = {{"COLUMNS", "120"}}});
  EXPECT_EQ(all.code, 0) << all.err;
  const auto listed = keys_of_help(all.out);
  for (const std::string& key : keys) EXPECT_TRUE(listed.contains(key)) << "gyrfalcon keys does not list " << key;
  for (const std::string& line : lines_of(all.out)) EXPECT_LE(line.size(), 120u) << line;
  const auto section = keys_of_help(run({"keys", "optimizer", "model.mamba"}).out);
  EXPECT_TRUE(section.contains("optimizer.lr") && section.contains("model.mamba.state_size"));
  EXPECT_FALSE(section.contains("train.steps") || section.contains("model.hidden_size"));
  EXPECT_EQ(run({"keys", "model.m"}).code, int(Exit::usage));
  const Result wrong = run({"keys", "optimiser"});
  EXPECT_EQ(wrong.code, int(Exit::usage));
  EXPECT_NE(wrong.err.find("did you mean `optimizer`?"), std::string::npos) << wrong.err;
}

TEST(commands, help_prints_commands_and_keys) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "train"}).out, run({"train", "--help"}).out);
  EXPECT_EQ(run({"help", "data", "build"}).out, run({"data", "build", "--help"}).out);
  EXPECT_EQ(run({"version"}).out, run({"--version"}).out);
  for (const char* name : {"optimizer.lr", "lr"}) {
    const Result key = run({"help", name});
    EXPECT_EQ(key.code, 0) << key.err;
    for (const char* part : {"optimizer.lr\n", "peak learning rate", "0.001", ">= 0, finite", "optimizer: {lr: 0.001}", "optimizer.lr=0.001"})
      EXPECT_NE(key.out.find(part), std::string::npos) << part << " is not in " << key.out;
  }
  const Result foreign = run({"help", "learning_rate"});
  for (const char* part : {"it is called optimizer.lr here", "\noptimizer.lr\n", "peak learning rate", ">= 0, finite", "optimizer: {lr: 0.001}"})
    EXPECT_NE(foreign.out.find(part), std::string::npos) << part << " is not in " << foreign.out;
  const Result section = run({"help", "model.mamba"});
  EXPECT_NE(section.out.find("state_size"), std::string::npos) << section.out;
  const Result none = run({"help", "trian"});
  EXPECT_EQ(none.code, int(Exit::usage));
  EXPECT_NE(none.err.find("did you mean `train`?"), std::string::npos) << none.err;
}

TEST(commands, help_environment_prints_the_page_of_variables) {
  const Result r = run({"help", "environment"}, {.env = {{"COLUMNS", "120"}}});
  EXPECT_EQ(r.code, 0) << r.err;
  const Words lines = lines_of(r.out);
  EXPECT_GT(lines.size(), 60u);
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 120u) << line;
    EXPECT_EQ(line.find_first_of("`|"), line.npos) << line;
  }
  for (const char* name : {"GYR_PROGRESS", "NO_COLOR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA", "GYR_INSTALL", "GYRFALCON_SITE"})
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(name); })) << name;
}

TEST(commands, help_knows_topics_variables_and_cluster_keys) {
  const std::pair<const char*, const char*> topics[] = {{"lora", "input/lora.yaml --init-from DIR"},
                                                        {"lora", "LoRA alpha (PEFT: lora_alpha)"},
                                                        {"merge", "`export-hf OUT NEW` merges the adapters"},
                                                        {"requeue", "jobscripts/README.md"},
                                                        {"scancel", "exit code 75"},
                                                        {"OMP_NUM_THREADS", "threads per rank"},
                                                        {"device.watts", "power of a device under load"},
                                                        {"device.bf16", "peak bf16 GEMM rate"},
                                                        {"device", "memory_bandwidth"},
                                                        {"fit", "fraction of the peak GEMM rate"},
                                                        {"links.network.bandwidth", "as node"},
                                                        {"cooldown", "optimizer.schedule=wsd"},
                                                        {"wsd", "train.branch=true"},
                                                        {"cost", "device hours"},
                                                        {"exit", "lists the exit codes"},
                                                        {"early_stopping", "train.eval_every"},
                                                        {"links", "latency of a message"},
                                                        {"links", "input/clusters/README.md"}};
  for (const auto& [topic, part] : topics) {
    const Result r = run({"help", topic}, {.env = {{"COLUMNS", "120"}}});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " is not in " << r.out;
    for (const std::string& line : lines_of(r.out)) EXPECT_LE(line.size(), 120u) << line;
  }
  EXPECT_EQ(run({"help", "OMP_NUM_THREADS"}).out.find("NCCL"), std::string::npos) << "one variable, not the page";
}

TEST(commands, help_of_options_fits_the_terminal) {
  for (const Words& command : {Words{}, {"plan"}, {"train"}, {"generate"}, {"export-hf"}, {"data", "build"}})
    for (const char* width : {"100", "140"}) {
      Words words{"help"};
      words.insert(words.end(), command.begin(), command.end());
      const std::string help = run(words, {.env = {{"COLUMNS", width}}}).out;
      bool options = true;  // the description of the command, and its options
      for (const std::string& line : lines_of(help)) {
        options = line.empty() ? false : options || line.starts_with("Options:") || line.starts_with("Subcommands:");
        const bool names_only = line.starts_with("  -");  // an option and its values, which are not broken
        EXPECT_TRUE(!options || names_only || line.size() <= std::size_t(std::stoi(width))) << line;
      }
    }
}

TEST(commands, footers_of_help_fit_the_terminal) {
  for (const char* command : {"eval", "run", "profile", "verify", "generate", "train"})
    for (const int width : {80, 120}) {
      const std::string help = run({command, "--help"}, {.env = {{"COLUMNS", std::to_string(width)}}}).out;
      bool of_footer = false;
      for (const std::string& line : lines_of(help)) {
        of_footer = of_footer || line.starts_with("One task") || line.starts_with("The launcher") || line.starts_with("Exit codes") ||
                    line.starts_with("Keys of") || line.starts_with("A dry run") || line.starts_with("The deck");
        EXPECT_TRUE(!of_footer || line.size() <= std::size_t(width)) << command << ": " << line;
      }
      EXPECT_TRUE(of_footer) << command;
    }
}

TEST(commands, help_of_initial_state_names_new_runs) {
  for (const char* key : {"train.init_from", "train.init_head", "train.branch"}) {
    const std::string help = run({"help", key}).out;
    EXPECT_EQ(help.find("rounding"), std::string::npos) << help;
    EXPECT_NE(help.find("a resumed run does not read"), std::string::npos) << help;
  }
  EXPECT_NE(run({"help", "optimizer.wsd_shape"}).out.find("f = 1 - sqrt(x)"), std::string::npos);
}

TEST(commands, help_of_train_fits_on_one_screen) {
  const Words lines = lines_of(run({"train", "--help"}).out);
  EXPECT_LE(lines.size(), 40u);
  for (const char* part : {"gyrfalcon keys", "gyrfalcon help optimizer.lr"})
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != line.npos; })) << part;
}

TEST(commands, effective_deck_reproduces_its_run) {
  const Folder folder;
  fs::copy(material().output() / "deck.yaml", folder / "deck.yaml");
  ASSERT_EQ(run({"train", folder / "deck.yaml", "output.folder=" + (folder / "out").string()}).code, 0);
  EXPECT_EQ(run({"diff", material().trained(), Material::checkpoint(folder / "out", Material::steps)}).code, 0);
}

TEST(commands, version_lists_compiler_mpi_and_libraries) {
  const Result r = run({"--version"});
  EXPECT_EQ(r.code, 0);
  for (const char* fact : {"Gyrfalcon", "git", "compiler", "MPI", "Kokkos", "HDF5", "BLAS"}) {
    const auto lines = lines_of(r.out);
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const std::string& l) { return l.starts_with(fact); });
    ASSERT_NE(line, lines.end()) << fact;
    EXPECT_NE(line->find_first_of("0123456789abcdef", std::string(fact).size()), std::string::npos) << *line;
  }
}

TEST(commands, last_line_of_a_run_states_its_result) {
  const Folder folder;
  const Result good = run(material().train(folder.path(), {"train.steps=3", "train.eval_every=2"}), {.ranks = 2});
  EXPECT_EQ(last_line_of(good.out), "RUN OK");
  EXPECT_EQ(good.err, "");
  const Result bad = run(material().train(folder.path(), {"train.steps=-1"}), {.ranks = 2});
  EXPECT_TRUE(last_line_of(bad.out).starts_with("RUN FAILED 78")) << bad.out;
  for (const std::string& text : {good.out, bad.out, bad.err})
    for (const unsigned char c : text) ASSERT_TRUE(c == '\n' || (c >= 0x20 && c != 0x7f)) << "control character " << int(c) << " in\n" << text;
}

TEST(commands, log_format_selects_short_or_megatron_lines) {
  const Folder folder;
  const auto matching = [](const Result& r, const char* pattern) {
    const auto lines = lines_of(r.out);
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.size() <= (line.starts_with("step ") ? 120u : 600u) && std::regex_search(line, std::regex(pattern));
    });
  };
  const char *brief = R"(^step [1-3]/3  [0-9.]+[kM]? tokens  loss [0-9.]+  norm .*  lr .* tokens/s  MFU .*  left )",
             *megatron = R"(\] iteration +[1-3]/ +3 \|)";
  const Result plain = run(material().train(folder.path() / "short", {"train.steps=3", "train.eval_every=3"}));
  EXPECT_EQ(matching(plain, brief), 3) << plain.out;
  EXPECT_EQ(matching(plain, megatron), 0) << plain.out;
  EXPECT_EQ(matching(plain, "^validation at step 3: loss [0-9.]+, perplexity "), 1) << plain.out;
  const Result fields = run(material().train(folder.path() / "megatron", {"train.steps=3", "train.eval_every=3", "log.format=megatron"}));
  EXPECT_EQ(matching(fields, megatron), 3) << fields.out;
  EXPECT_EQ(matching(fields, brief), 0) << fields.out;
  EXPECT_EQ(matching(fields, "validation loss at iteration 3 \\|"), 1) << fields.out;
}

TEST(commands, unknown_progress_style_is_refused_before_training) {
  const Folder folder;
  const Result r = run(material().train(folder.path() / "out", {"train.steps=1"}), {.env = {{"GYR_PROGRESS", "banana"}}});
  EXPECT_EQ(r.code, 64) << output_of(r);
  EXPECT_NE(r.err.find("GYR_PROGRESS=banana: must be live or plain"), std::string::npos) << output_of(r);
  EXPECT_FALSE(fs::exists(folder.path() / "out" / "metrics.jsonl"));
}

// Lines of tables have two spaces between columns; sentences have not. A plan has no wider sentences either, and one line of
// overrides that is pasted as a whole.
TEST(commands, no_table_is_wider_than_the_terminal) {
  const Folder folder;
  const std::string cluster = std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml",
                    deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-73m.yaml";
  const Options narrow{.env = {{"COLUMNS", "80"}}};
  ASSERT_EQ(run(material().train(folder.path(), {"train.steps=3"})).code, 0);
  for (const Words& words : {Words{"plan", deck, "--ranks", "8", "parallel.tensor=2", "parallel.pipeline=2", "--cluster", cluster},
                             Words{"plan", deck, "--ranks", "8", "--cluster", cluster, "--explain"},
                             Words{"plan", deck, "parallel.tensor=2", "--explain-layout"}, Words{"plan", deck, "--cluster", cluster, "--longest"},
                             Words{"report", folder.path()}, Words{"profile", material().deck()}, Words{"ps", folder.path()}}) {
    const Result r = run(words, narrow);
    ASSERT_EQ(r.code, 0) << output_of(r);
    for (const std::string& line : lines_of(r.out)) {
      const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
      const auto text = line.find_first_not_of(' ');
      const bool in_table = text != line.npos && line.find("  ", text) != line.npos;
      const bool to_copy = line.starts_with("parallel.data=") || line.starts_with("  gyrfalcon plan ");
      const bool fits = in_table || (words.front() == "plan" && !to_copy);
      EXPECT_LE(fits ? width : 0, 80) << line;
    }
  }
}

// Plans Falcon-H1 34B on 64 ranks in a few seconds, in one process whose memory could not hold the weights.
TEST(commands, plan_of_34b_model_allocates_no_weights) {
  const Folder folder;
  put_contents(folder / "34b.yaml", R"(model:
  pattern: P x 72
  vocab_size: 261120
  hidden_size: 5120
  attention: {num_heads: 20, num_kv_heads: 4, head_dim: 128}
  mamba: {num_heads: 32, head_dim: 128, state_size: 256, num_groups: 2, norm: gate_first}
  mlp: {intermediate_size: 21504}
train:
  precision: bf16
  global_batch_size: 64
  seq_length: 4096
parallel:
  pipeline: 8
  tensor: 4
)");
  const Result r = run({"plan", folder / "34b.yaml", "--ranks", "64"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("33642516224"), std::string::npos) << r.out.substr(0, 400);
  EXPECT_NE(r.out.find("2 data x 8 pipeline x 4 tensor = 64 ranks"), std::string::npos) << r.out.substr(0, 400);
  EXPECT_LT(r.peak_kib, 1 << 20);
  EXPECT_LT(r.cpu_seconds, 10);
  EXPECT_EQ(r.out.find("RUN OK"), std::string::npos) << "nothing has run";
}

// The profile prints a table of every GEMM of a step, and the total time with each GEMM library.
TEST(commands, profile_times_every_gemm_of_a_deck) {
  for (const char* precision : {"train.precision=fp32", "train.precision=bf16", "train.precision=fp64"}) {
    const Result r = run({"profile", material().deck(), precision});
    ASSERT_EQ(r.code, 0) << r.err;
    for (const char* part : {"gemm", "attention", "ssd", "auto", "cblas", "fastest for each shape"}) EXPECT_NE(r.out.find(part), r.out.npos) << r.out;
  }
  EXPECT_EQ(run({"profile", material().deck(), "--ranks", "2", "parallel.tensor=2"}).code, 0);
  EXPECT_EQ(run({"profile", material().deck()}, {.ranks = 2}).code, 0);
  const Result bad = run({"profile", material().deck(), "train.products=mkl"});
  EXPECT_EQ(bad.code, int(Exit::config)) << bad.err;
  EXPECT_NE(bad.err.find("train.products"), bad.err.npos) << bad.err;
}

TEST(commands, dry_run_prints_the_plan) {
  for (const char* change : {"parallel.tensor=2", "train.precision=bf16"}) {
    const Result plan = run({"plan", material().deck(), change, "--ranks", "4"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    EXPECT_EQ(run({"train", material().deck(), change, "--dry-run", "--ranks", "4"}).out, plan.out);
  }
}

TEST(commands, dry_run_compares_shapes_of_initial_weights) {
  for (const Words& command : {Words{"plan"}, Words{"train", "--dry-run"}}) {
    Words words = command;
    words.insert(words.end(), {material().deck().string(), "--init-from", material().trained()});
    EXPECT_EQ(run(words).code, 0);
    words.push_back("model.mlp.intermediate_size=96");
    const Result r = run(words);
    EXPECT_EQ(r.code, int(Exit::config)) << output_of(r);
    EXPECT_NE(r.err.find("has shape 64 x 32, but the deck's model needs 96 x 32"), r.err.npos) << r.err;
  }
}

TEST(commands, tokenizer_round_trips_arbitrary_bytes) {
  for (const std::string& text : {random_bytes(5000, 1), std::string("plain text, with spaces\n"), std::string("\0\n\r\t \xff", 6), std::string()}) {
    const Result ids = run({"tokenizer", "encode", material().tokenizer()}, {.input = text});
    ASSERT_EQ(ids.code, 0) << ids.err;
    const Result back = run({"tokenizer", "decode", material().tokenizer()}, {.input = ids.out});
    ASSERT_EQ(back.code, 0) << back.err;
    EXPECT_EQ(back.out, text);
  }
  const Result shorter = run({"tokenizer", "encode", material().tokenizer(), "--text", "ka lo ka lo"});
  EXPECT_LT(std::count(shorter.out.begin(), shorter.out.end(), ' '), 11) << shorter.out;
}

TEST(commands, tokenizer_reads_and_writes_json_lines) {
  const std::string lines = "\"ka lo\\n\"\n\"\"\n\"<|endoftext|>\\ud83d\\ude00\"\n";
  const Result plain = run({"tokenizer", "encode", material().tokenizer(), "--json"}, {.input = lines});
  const Result special = run({"tokenizer", "encode", material().tokenizer(), "--json", "--special"}, {.input = lines});
  ASSERT_EQ(plain.code, 0) << plain.err;
  const Words ids = lines_of(special.out);
  ASSERT_EQ(ids.size(), 3u) << special.out;
  EXPECT_EQ(ids[0], lines_of(plain.out)[0]);
  EXPECT_EQ(ids[1], "[]");
  EXPECT_TRUE(ids[2].starts_with("[2,")) << ids[2];
  EXPECT_NE(ids[2], lines_of(plain.out)[2]);
  EXPECT_EQ(run({"tokenizer", "decode", material().tokenizer(), "--json"}, {.input = special.out}).out, lines);
  EXPECT_EQ(run({"tokenizer", "decode", material().tokenizer(), "--json", "--skip-special"}, {.input = "[2]\n"}).out, "\"\"\n");
  EXPECT_EQ(run({"tokenizer", "encode", material().tokenizer(), "--json"}, {.input = "{}\n"}).code, int(Exit::data));
}

TEST(commands, token_files_do_not_depend_on_rank_count) {
  const Folder folder;
  put_contents(folder / "b.txt", contents(material().text()).substr(0, 70001));
  std::string bin, idx;
  for (const int ranks : {0, 2, 3}) {
    const fs::path prefix = folder / std::to_string(ranks);
    const Result r =
        run({"data", "build", material().text(), folder / "b.txt", prefix, "--tokenizer", material().tokenizer(), "--documents", "separator"},
            {.ranks = ranks});
    ASSERT_EQ(r.code, 0) << r.err;
    if (bin.empty()) bin = contents(prefix.string() + ".bin"), idx = contents(prefix.string() + ".idx");
    EXPECT_EQ(contents(prefix.string() + ".bin"), bin) << ranks;
    EXPECT_EQ(contents(prefix.string() + ".idx"), idx) << ranks;
  }
  EXPECT_GT(bin.size(), contents(material().prefix().string() + ".bin").size());
}

TEST(commands, existing_token_files_stay_without_overwrite) {
  const Folder folder;
  const fs::path prefix = folder / "p";
  const Words build{"data", "build", material().text(), prefix, "--tokenizer", material().tokenizer()};
  ASSERT_EQ(run(build).code, 0);
  const std::string before = contents(prefix.string() + ".bin");
  EXPECT_EQ(run(build).code, int(Exit::usage));
  EXPECT_EQ(contents(prefix.string() + ".bin"), before);
  Words again = build;
  for (const char* word : {"--overwrite", "--documents", "separator"}) again.push_back(word);
  EXPECT_EQ(run(again).code, 0);
  EXPECT_NE(contents(prefix.string() + ".bin"), before);
}

TEST(commands, data_info_shows_the_tokenizer_and_sources) {
  const Result r = run({"data", "info", material().prefix()});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const std::string& part :
       Words{material().tokenizer().string() + ": 300 tokens", "1 file", material().text().string(), "--documents separator"})
    EXPECT_NE(r.out.find(part), std::string::npos) << r.out;
}

TEST(commands, existing_tokenizer_stays_without_overwrite) {
  const Folder folder;
  const fs::path file = folder / "t.json";
  const Words train{"tokenizer", "train", file, material().text(), "--vocab-size", "290"};
  ASSERT_EQ(run(train).code, 0);
  const std::string before = contents(file);
  Words again = train;
  again.back() = "280";
  const Result refused = run(again);
  EXPECT_EQ(refused.code, int(Exit::usage)) << refused.err;
  EXPECT_NE(refused.err.find("t.json: exists"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
  EXPECT_EQ(contents(file), before);
  again.push_back("--overwrite");
  EXPECT_EQ(run(again).code, 0);
  EXPECT_NE(contents(file), before);
}

TEST(commands, text_in_place_of_the_tokenizer_is_kept) {
  const Folder folder;
  const fs::path text = folder / "my.txt", tokenizer = folder / "t.json";
  put_contents(text, contents(material().text()));
  ASSERT_EQ(run({"tokenizer", "train", tokenizer, text, "--vocab-size", "280"}).code, 0);
  const Result swapped = run({"tokenizer", "train", text, tokenizer, "--vocab-size", "280", "--overwrite"});
  EXPECT_EQ(swapped.code, int(Exit::usage)) << swapped.out << swapped.err;
  EXPECT_NE(swapped.err.find("my.txt: exists and is not a tokenizer; write the tokenizer first"), std::string::npos) << swapped.err;
  EXPECT_EQ(contents(text), contents(material().text()));
}

TEST(commands, existing_output_has_one_exit_code) {
  const Folder folder;
  const fs::path trained = material().trained(), hf = folder / "hf", file = folder / "m.gguf", tokenizer = folder / "t.json", prefix = folder / "p";
  const Words commands[] = {{"export-hf", trained, hf},
                            {"export-gguf", trained, file},
                            {"import-hf", hf, folder / "imported"},
                            {"reshard", trained, folder / "resharded"},
                            {"tokenizer", "train", tokenizer, material().text(), "--vocab-size", "280"},
                            {"data", "build", material().text(), prefix, "--tokenizer", material().tokenizer()}};
  for (const Words& command : commands) {
    const Result first = run(command);
    ASSERT_EQ(first.code, 0) << command[0] << first.err;
    const Result second = run(command);
    EXPECT_EQ(second.code, int(Exit::usage)) << command[0] << second.err;
    EXPECT_NE(second.err.find("exists"), std::string::npos) << second.err;
  }
}

TEST(commands, run_folder_stands_for_its_newest_checkpoint) {
  const Folder folder;
  const fs::path out = material().output(), trained = material().trained();
  const std::string taken = "taking " + trained.string();
  int trial = 0;
  for (const std::string& named : Words{out, out.string() + "/", out / "checkpoints", out / "checkpoints" / "latest"}) {
    SCOPED_TRACE(named);
    const std::string number = std::to_string(++trial);
    const std::pair<Words, Words> pairs[] = {
        {{"info", named}, {"info", trained}},
        {{"info", named, "--check"}, {"info", trained, "--check"}},
        {{"diff", named, trained}, {"diff", trained, trained}},
        {{"eval", named, "--limit", "2"}, {"eval", trained, "--limit", "2"}},
        {{"generate", named, "--prompt", "ka", "--tokens", "2", "--greedy"}, {"generate", trained, "--prompt", "ka", "--tokens", "2", "--greedy"}}};
    for (const auto& [folder_words, checkpoint_words] : pairs) {
      const Result r = run(folder_words), expected = run(checkpoint_words);
      EXPECT_EQ(r.code, 0) << output_of(r);
      EXPECT_EQ(r.out, expected.out);
      EXPECT_NE(r.err.find(taken), std::string::npos) << r.err;
    }
    for (const Words& words : {Words{"reshard", named, folder / ("r" + number)}, Words{"export-hf", named, folder / ("h" + number)},
                               Words{"export-gguf", named, folder / ("g" + number)}, Words{"plan", material().deck(), "--init-from", named}}) {
      const Result r = run(words);
      EXPECT_EQ(r.code, 0) << output_of(r);
      EXPECT_NE(r.err.find(taken), std::string::npos) << r.err;
    }
  }
  EXPECT_EQ(run({"diff", trained, folder / "r1", "--tolerance", "0"}).code, 0);
  const Result two = run({"eval", out, "--limit", "2"}, {.ranks = 2});
  EXPECT_EQ(two.code, 0) << output_of(two);
  EXPECT_EQ(two.err.find(taken), two.err.rfind(taken)) << "rank 0 alone reports the checkpoint";
}

// A file such as index.h5 stands for its folder, except where HDF5 files are inspected by themselves.
TEST(commands, file_in_a_model_stands_for_it) {
  const Folder folder;
  const fs::path trained = material().trained();
  ASSERT_EQ(run({"export-hf", trained, folder / "hf"}).code, 0);
  const auto text_of = [](const fs::path& named) { return run({"generate", named, "--prompt", "ka", "--tokens", "2", "--greedy"}); };
  for (const auto& [model, files] :
       {std::pair{trained, Words{"index.h5", "shard_00000.h5", "manifest.json"}}, {folder / "hf", Words{"config.json", "model.safetensors"}}}) {
    const std::string expected = text_of(model).out;
    for (const std::string& name : files) {
      const Result r = text_of(model / name);
      EXPECT_EQ(r.code, 0) << output_of(r);
      EXPECT_EQ(r.out, expected);
      EXPECT_NE(r.err.find("taking " + model.string()), std::string::npos) << r.err;
      EXPECT_EQ(run({"plan", material().deck(), "--init-from", model / name}).code, 0) << name;
    }
  }
  EXPECT_NE(run({"info", trained / "index.h5"}).out, run({"info", trained}).out);
  ASSERT_EQ(run({"export-gguf", trained, folder / "m.gguf"}).code, 0);
  const Result gguf = text_of(folder / "m.gguf");
  EXPECT_EQ(gguf.code, int(Exit::data)) << output_of(gguf);
  EXPECT_NE(gguf.err.find("GGUF files are written for llama.cpp, not read"), std::string::npos) << gguf.err;
}

TEST(commands, notes_of_a_plan_are_printed_once) {
  const Result r = run({"plan", material().deck(), "--init-from", material().output(), "optimizer.lamb.max_ratio=3"});
  EXPECT_EQ(r.code, 0) << output_of(r);
  for (const char* note : {"is not read: no weight", "taking "}) EXPECT_EQ(r.err.find(note), r.err.rfind(note)) << r.err;
}

TEST(commands, initial_checkpoint_of_run_folder_is_recorded) {
  const Folder folder;
  const Result r = run(material().train(folder / "out", {"train.steps=2", "checkpoint.every=2", "--init-from", material().output()}));
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_NE(contents(folder / "out" / "deck.yaml").find("init_from: " + material().trained().string()), std::string::npos);
}

TEST(commands, run_folder_without_checkpoint_is_refused) {
  const Folder folder;
  fs::create_directories(folder / "run" / "checkpoints");
  put_contents(folder / "run" / "checkpoints" / "latest", "step_00000007\n");
  for (const int ranks : {0, 2}) {
    const Result r = run({"eval", folder / "run"}, {.ranks = ranks});
    EXPECT_EQ(r.code, int(Exit::missing)) << output_of(r);
    EXPECT_NE(r.err.find("run/checkpoints: holds no complete checkpoint"), std::string::npos) << r.err;
  }
  const Result r = run({"info", folder / "run" / "checkpoints" / "latest"});
  EXPECT_EQ(r.code, int(Exit::missing)) << output_of(r);
  EXPECT_NE(r.err.find("names step_00000007, which does not exist"), std::string::npos) << r.err;
}

TEST(commands, metrics_file_holds_one_json_object_per_line) {
  const auto lines = lines_of(contents(material().output() / "metrics.jsonl"));
  int steps = 0;
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    if (json.value("kind", "") != "step") continue;
    EXPECT_EQ(json.at("step"), ++steps);
    EXPECT_GT(json.at("loss").get<double>(), 0);
    EXPECT_EQ(json.at("consumed_tokens"), steps * 8 * Material::seq_length);
  }
  EXPECT_EQ(steps, Material::steps);
}

// The FLOPs per token must not depend on the number of ranks: TFLOP/s per rank times ranks, divided by tokens per
// second, is constant.
TEST(commands, tflops_per_rank_scale_with_rank_count) {
  double of_a_token = 0;
  for (const int ranks : {1, 2}) {
    const Folder folder;
    ASSERT_EQ(run(material().train(folder.path(), {"train.steps=2", "train.eval_every=0"}), {.ranks = ranks}).code, 0);
    for (const auto& step : metrics(folder.path(), "step")) {
      const double all = step.at("tflops_per_rank").get<double>() * ranks / step.at("tokens_per_second").get<double>();
      if (of_a_token == 0) of_a_token = all;
      EXPECT_NEAR(all, of_a_token, 1e-9 * of_a_token) << ranks << " ranks";
    }
  }
  EXPECT_GT(of_a_token, 0);
}

// Each validation batch reads new sequences: the mean over two batches of 8 equals that over one batch of 16, but not
// that over the first 8.
TEST(commands, validation_reads_different_sequences_in_every_batch) {
  const auto validated = [](const std::string& batch, const std::string& batches) {
    const Folder folder;
    const Words changes{"train.steps=1", "optimizer.lr=1e-12", "train.eval_every=1", "train.global_batch_size=" + batch,
                        "train.eval_batches=" + batches};
    EXPECT_EQ(run(material().train(folder.path(), changes)).code, 0);
    return metrics(folder.path(), "validation").at(0).at("loss").get<double>();
  };
  const double two = validated("8", "2");
  EXPECT_NEAR(two, validated("16", "1"), 1e-6);
  EXPECT_GT(std::abs(two - validated("8", "1")), 1e-5);
}

TEST(commands, tensorboard_event_file_is_written) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(material().output() / "tensorboard"))
    if (entry.path().filename().string().find("tfevents") != std::string::npos) {
      files += 1;
      EXPECT_NE(contents(entry.path()).find("brain.Event:2"), std::string::npos);
    }
  EXPECT_GE(files, 1);
}

TEST(commands, open_metrics_show_the_latest_step) {
  const Folder folder;
  const Result r =
      run(material().train(folder / "run", {"train.steps=3", "train.eval_every=3", "log.openmetrics=" + (folder / "run.prom").string()}));
  ASSERT_EQ(r.code, 0) << output_of(r);
  const std::string text = contents(folder / "run.prom"), id = metrics(folder / "run", "run").at(0).at("run");
  EXPECT_NE(text.find("gyrfalcon_step{run=\"" + id + "\",output=\"" + (folder / "run").string() + "\""), std::string::npos) << text;
  std::smatch loss;
  ASSERT_TRUE(std::regex_search(text, loss, std::regex(R"(gyrfalcon_loss\{[^}]*\} (\S+))"))) << text;
  EXPECT_NEAR(std::stod(loss[1]), metrics(folder / "run", "step").back().at("loss").get<double>(), 1e-6);
  const Result none = run(material().train(folder / "none", {"train.steps=1", "log.openmetrics=" + (folder / "no" / "run.prom").string()}));
  EXPECT_EQ(none.code, int(Exit::missing)) << output_of(none);
}

TEST(commands, info_and_diff_distinguish_checkpoints) {
  const fs::path a = Material::checkpoint(material().output(), 30), b = material().trained();
  const Result info = run({"info", b, "--statistics"});
  EXPECT_EQ(info.code, 0) << info.err;
  for (const char* part : {"60", "embed_tokens", "mamba"}) EXPECT_NE(info.out.find(part), std::string::npos) << part;
  EXPECT_EQ(run({"diff", b, b}).code, 0);
  EXPECT_EQ(run({"diff", a, b}).code, int(Exit::data));
  EXPECT_EQ(run({"diff", a, b, "--tolerance", "10"}).code, 0);
  const Folder folder;
  put_contents(folder / "tolerances", "# everything may differ\n* 1e9 0\n");
  EXPECT_EQ(run({"diff", a, b, "--tolerances", folder / "tolerances"}).code, 0);
  put_contents(folder / "tolerances", "* 1e9 0\n/model/embed_tokens/* 0 1e-9\n");
  EXPECT_EQ(run({"diff", a, b, "--tolerances", folder / "tolerances"}).code, int(Exit::data));
  // info and diff also accept single shards and index.h5, the virtual view of all shards.
  EXPECT_EQ(run({"diff", b / "index.h5", b}).code, 0);
  EXPECT_EQ(run({"info", Material::shard(b)}).code, 0);
}

// The step that ends a run with NaN or Inf must also be dumped.
TEST(commands, dumps_compare_across_precisions_and_include_nan_step) {
  const Folder folder;
  const Words changes{"train.steps=1", "dump.steps=[1]", "train.precision=fp32"};
  const Result wide = run(material().train(folder / "wide", changes));
  ASSERT_EQ(wide.code, 0) << wide.err;
  EXPECT_NE(wide.out.find("dump "), std::string::npos);
  EXPECT_EQ(run(material().train(folder / "narrow", {"train.steps=1", "dump.steps=[1]", "train.precision=bf16"}), {.ranks = 2}).code, 0);
  const fs::path a = folder / "wide" / "dumps" / "step_00000001", b = folder / "narrow" / "dumps" / "step_00000001";
  EXPECT_EQ(run({"diff", a, b}).code, int(Exit::data));
  const Result alike = run({"diff", a, b, "--tolerance", "0.1"});  // relative to the largest value of each tensor
  EXPECT_EQ(alike.code, 0) << alike.out;
  EXPECT_NE(run({"info", b}).out.find("/activations/layers/0/mamba/scan"), std::string::npos);

  const Result bad = run(material().train(folder / "bad", {"dump.steps=[2]", "fault.kind=nan", "fault.step=2"}));
  EXPECT_EQ(bad.code, int(Exit::numeric));
  EXPECT_EQ(run({"info", folder / "bad" / "dumps" / "step_00000002", "--statistics"}).code, 0);
  const Result wrong = run(material().train(folder / "wrong", {"dump.what=[\"gradients/*\"]"}));
  EXPECT_EQ(wrong.code, int(Exit::config));
  EXPECT_NE(wrong.err.find("dump.what"), std::string::npos) << wrong.err;
}

TEST(commands, resharded_checkpoint_holds_the_same_tensors) {
  const Folder folder;
  const fs::path trained = material().trained();
  const Result r = run({"reshard", trained, folder / "three", "--files", "3"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(fs::exists(folder / "three" / "shard_00002.h5") && !fs::exists(folder / "three" / "shard_00003.h5"));
  EXPECT_EQ(run({"reshard", folder / "three", folder / "one", "--deflate", "6"}).code, 0);
  EXPECT_EQ(run({"diff", trained, folder / "one"}).code, 0);
  EXPECT_EQ(run({"eval", folder / "three"}).out, run({"eval", trained}).out);
  EXPECT_EQ(run({"reshard", trained, folder / "one"}).code, int(Exit::usage));
}

TEST(commands, h5py_reads_a_weight_by_its_name) {
  const char* python = "/usr/bin/python3";
  if (!fs::exists(python) || execute({python, "-c", "import h5py"}).code != 0) GTEST_SKIP() << "no h5py";
  const Result r = execute({python, "-c",
                            "import sys, h5py, numpy; w = h5py.File(sys.argv[1])['/model/embed_tokens/weight'][...]; "
                            "print(w.shape, w.dtype, numpy.isfinite(w).all() and w.std() > 0)",
                            material().trained() / "index.h5"});
  EXPECT_EQ(r.out, "(300, 32) float32 True\n") << r.err;
}

// Minimum over several attempts, because the machine may be busy.
TEST(commands, first_step_ends_within_two_seconds) {
  double least = 1e9;
  for (int attempt = 0; attempt < 4 && least >= 2; ++attempt) {
    const Folder folder;
    double first = -1;
    const auto begin = std::chrono::steady_clock::now();
    const Result r = run(material().train(folder.path(), {"train.steps=3"}), {.kill_when = [&] {
                           if (first < 0 && contents(folder / "metrics.jsonl").find('\n') != std::string::npos)
                             first = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                           return false;
                         }});
    ASSERT_EQ(r.code, 0) << r.err;
    least = std::min(least, first < 0 ? r.seconds : first);
  }
  EXPECT_LT(least, 2);
}

}  // namespace gyr::testing::commands_suite
