// SPDX-License-Identifier: BSD-3-Clause
// Renamed deck keys. In a user's deck an old key is refused, and the error names the new key. In the stored deck of a
// checkpoint old keys are still read.
#include "src/deck/renamed_keys.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "kernels/base/error.hpp"
#include "modules/settings/foreign_values.hpp"
#include "regression/support/testing.hpp"
#include "src/config/deck_changes.hpp"
#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr::testing::renamed_keys_suite {
namespace {

// Every value differs from the default of its key.
const char* const older = R"(
model:
  pattern: P*
  vocabulary: 24
  width: 16
  tied: true
  epsilon: 1e-3
  padding: 3
  deviation: 0.5
  head_multiplier: 0.5
  attention: {heads: 4, key_heads: 1, width: 4, theta: 100, key_multiplier: 0.8}
  mamba: {heads: 4, width: 4, groups: 2, state: 4, taps: 3, chunk: 4, convolution_bias: false, decay_convolution: false}
  mlp: {width: 24}
train: {length: 8, batch: 4, micro_batch: 2, precision: fp64}
optimizer: {rate: 1e-2, rate_floor: 1e-4, warmup: 7, decay: 0.2, clip: 0.5, groups: ["*.D"], group_rates: [0.5], group_decays: [0.1]}
fault: {life: 2}
)";
const char* const newer = R"(
model:
  pattern: P*
  vocab_size: 24
  hidden_size: 16
  tie_word_embeddings: true
  rms_norm_eps: 1e-3
  pad_token_id: 3
  init_std: 0.5
  lm_head_multiplier: 0.5
  attention: {num_heads: 4, num_kv_heads: 1, head_dim: 4, rope_theta: 100, key_multiplier: 0.8}
  mamba: {num_heads: 4, head_dim: 4, num_groups: 2, state_size: 4, conv_kernel: 3, chunk_size: 4, conv_bias: false, decay_conv: false}
  mlp: {intermediate_size: 24}
train: {seq_length: 8, global_batch_size: 4, micro_batch_size: 2, precision: fp64}
optimizer: {lr: 1e-2, min_lr: 1e-4, warmup_steps: 7, weight_decay: 0.2, clip_grad: 0.5, groups: ["*.D"], group_lrs: [0.5], group_weight_decays: [0.1]}
fault: {attempt: 2}
)";

std::string effective(Deck deck) {
  read_run_config(deck);
  deck.finish();
  return deck.effective();
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    effective(Deck::parse(text, "run.yaml", overrides));
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace

TEST(renamed_keys, renamed_keys_are_declared_only_under_new_names) {
  Deck deck = Deck::describe();
  read_run_config(deck);
  const auto settings = deck.settings();
  const auto declared = [&](std::string_view path) {
    return std::any_of(settings.begin(), settings.end(), [&](const Declaration& d) { return d.path == path; });
  };
  for (const RenamedKey& key : renamed_keys()) {
    EXPECT_TRUE(declared(key.now)) << key.now;
    EXPECT_FALSE(declared(key.before)) << key.before;
    EXPECT_EQ(key.before.substr(0, key.before.rfind('.')), key.now.substr(0, key.now.rfind('.'))) << key.before << " moved to another section";
  }
}

TEST(renamed_keys, error_for_old_key_names_the_new_key) {
  for (const RenamedKey& key : renamed_keys()) {
    const std::string change = std::string(key.before) + "=1", expected = fmt::format("{} is called {} now", key.before, key.now);
    EXPECT_NE(refusal("train: {steps: 1}\n", {change}).find("command line `" + change + "`: " + expected), std::string::npos) << change;
  }
  const std::string message = refusal(older);
  EXPECT_NE(message.find("run.yaml:4: model.vocabulary is called model.vocab_size now\nrun.yaml:5: model.width is called"), std::string::npos)
      << message;
  EXPECT_NE(message.find("and 21 more"), std::string::npos) << message;
}

namespace {

std::vector<std::string> words_of(std::string_view names) {
  std::vector<std::string> words;
  std::istringstream in{std::string(names)};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<Declaration> declared_keys() {
  Deck deck = Deck::describe();
  read_run_config(deck);
  return deck.settings();
}

// A deck in flow style that sets only this key.
std::string write_section(const std::string& path, const std::string& value) {
  std::string text = path + ": " + value, end;
  for (auto dot = text.find('.'); dot != text.npos; dot = text.find('.', dot)) text.replace(dot, 1, ": {"), end += "}";
  return text + end + "\n";
}

void expect_advice(const std::string& change, const std::string& advice) {
  const std::string message = refusal("train: {steps: 1}\n", {change});
  EXPECT_NE(message.find("command line `" + change + "`"), std::string::npos) << message;
  EXPECT_NE(message.find(advice), std::string::npos) << change << ": " << message;
}

}  // namespace

TEST(renamed_keys, table_of_foreign_keys_fits_declared_keys) {
  std::set<std::string> paths, last, seen;
  for (const Declaration& d : declared_keys()) {
    paths.insert(d.path);
    if (!d.path.starts_with("rl.")) last.insert(d.path.substr(d.path.rfind('.') + 1));  // rl.epochs counts something else than other epochs
  }
  for (const ForeignKey& row : foreign_keys()) {
    EXPECT_TRUE(paths.contains(std::string(row.here))) << row.here;
    for (const std::string& name : words_of(row.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " is listed twice";
      EXPECT_FALSE(paths.contains(name) || last.contains(name)) << name << " is a key of ours";
      EXPECT_EQ(name.find_first_of("-ABCDEFGHIJKLMNOPQRSTUVWXYZ"), std::string::npos) << name;
    }
    for (const std::string& part : words_of(row.advice))
      if (const auto equals = part.find('='); equals != part.npos && part.find('.') < equals) {
        EXPECT_TRUE(paths.contains(part.substr(0, equals))) << part;
      }
  }
  EXPECT_GT(seen.size(), 500u);
}

TEST(renamed_keys, error_for_cluster_key_names_cluster_file) {
  for (const Declaration& key : cluster_settings()) {
    const auto dot = key.path.rfind('.');
    const std::string name = key.path.substr(dot + 1), section = key.path.substr(0, dot);
    expect_advice(key.path + "=7", fmt::format("it belongs to a cluster file: write `{}: 7` in section `{}`", name, section));
    const std::string message = refusal(write_section(key.path, "7"));
    EXPECT_NE(message.find(fmt::format("write `{}: 7` in section `{}`", name, section)), std::string::npos) << message;
  }
}

TEST(renamed_keys, error_for_foreign_key_names_our_key) {
  for (const ForeignKey& row : foreign_keys())
    for (const std::string& name : words_of(row.names)) {
      const std::string key = name.find('.') == name.npos ? "other." + name : name;
      const std::string message = refusal("train: {steps: 1}\n", {key + "=7"});
      const auto end = row.advice.find("{}");
      const std::string expected =
          row.advice.empty() ? fmt::format("it is called {} here: write {}=", row.here, row.here) : std::string(row.advice.substr(0, end));
      EXPECT_NE(message.find("unknown key `" + key + "`; " + expected), std::string::npos) << message;
    }
}

TEST(renamed_keys, well_known_names_are_answered_with_ours) {
  expect_advice("optimizer.learning_rate=3e-4", "unknown key `optimizer.learning_rate`; it is called optimizer.lr here: write optimizer.lr=3e-4");
  expect_advice("train.lr=1e-4", "unknown key `train.lr`; did you mean `optimizer.lr=1e-4`?");
  expect_advice("train.max_steps=9", "write train.steps=9");
  expect_advice("model.num_hidden_layers=24", "write model.pattern=\"P x 24\" for 24 Falcon-H1 layers");
  expect_advice("train.gradient_accumulation_steps=4", "train.global_batch_size / (train.micro_batch_size x data-parallel ranks)");
  expect_advice("train.batch_size=4", "train.micro_batch_size that of one forward pass");
  expect_advice("parallel.tensor-model-parallel-size=2", "write parallel.tensor=2");
  expect_advice("parallel.tp=2", "write parallel.tensor=2");
  expect_advice("train.dtype=bfloat16", "write train.precision=bf16");
  expect_advice("parallel.zero=3", "write parallel.shard=weights");
  expect_advice("optimizer.type=sgd", "it is called optimizer.name here: write optimizer.name=sgd");
  expect_advice("data.path=corpus", "write data.prefixes='[corpus]'");
  expect_advice("output.dir=out/x", "write output.folder=out/x");
  expect_advice("checkpoint.interval=50", "write checkpoint.every=50");
  expect_advice("log.wandb=true", "are not sent to Weights & Biases");
  expect_advice("zero_optimization.stage=2", "write parallel.shard=gradients");
  expect_advice("TRAIN.STEPS=3", "did you mean `train.steps=3`?");
  expect_advice("model.num_nextn_predict_layers=1", "it is called train.mtp.depths here, and applies with train.objective=mtp");
  const std::string message = refusal("training: {local_batch_size: 4, zeal: 5}\nlr_scheduler: {decay_type: linear}\n");
  for (const char* part :
       {"run.yaml:1: unknown key `training.local_batch_size`; it is called train.micro_batch_size here: write `micro_batch_size: 4` in "
        "section `train`",
        "run.yaml:1: unknown key `training.zeal`\n",
        "run.yaml:2: unknown key `lr_scheduler.decay_type`; it is called optimizer.schedule here: write `schedule: linear`"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

TEST(renamed_keys, table_of_foreign_values_fits_declared_ranges) {
  for (const ForeignValue& row : foreign_values) {
    const auto keys = declared_keys();
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Declaration& d) { return d.path == row.key; });
    ASSERT_NE(key, keys.end()) << row.key;
    EXPECT_EQ(row.here.empty(), !row.advice.empty()) << row.words;
    if (!row.here.empty()) {
      EXPECT_NE(key->range().find(row.here), std::string::npos) << row.key << " has no value " << row.here;
    }
    for (const std::string& word : words_of(row.words)) {
      const std::string change = fmt::format("{}={}", row.key, word);
      expect_advice(change, row.here.empty() ? std::string(row.advice) : fmt::format("; did you mean `{}`?", row.here));
    }
  }
  expect_advice("train.precision=BFloat16", "did you mean `bf16`?");
  expect_advice("train.precision=16", "fp16 is not supported");
  expect_advice("train.recompute_activations=true", "write activation.recompute=selective");
  expect_advice("parallel.overlap_grad_reduce=true", "communication always overlaps with computation: leave this key out");
  expect_advice("optimizer.schedule=Cosine", "did you mean `cosine`?");
  expect_advice("optimizer.name=adamw_torch", "adamw");
  expect_advice("optimizer.name=adafactor", "adamw is the usual choice");
}

TEST(renamed_keys, old_keys_of_a_stored_deck_are_read) {
  const std::string now = effective(Deck::parse(newer, "run.yaml"));
  EXPECT_EQ(effective(Deck::stored(older, "model")), now);
  EXPECT_EQ(effective(Deck::stored(newer, "model")), now);
  EXPECT_TRUE(deck_changes(older, newer).empty());
  for (const RenamedKey& key : renamed_keys())
    EXPECT_NE(std::string(older).find(key.before.substr(key.before.rfind('.') + 1)), std::string::npos) << key.before;
}

}  // namespace gyr::testing::renamed_keys_suite
