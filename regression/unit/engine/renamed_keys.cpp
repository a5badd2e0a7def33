// SPDX-License-Identifier: BSD-3-Clause
// Renamed deck keys. In a user's deck an old key is refused, and the error names the new key. In the stored deck of a
// checkpoint old keys are still read.
#include "src/deck/renamed_keys.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"
#include "src/config/deck_changes.hpp"
#include "src/config/run_config.hpp"

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

TEST(renamed_keys, error_for_foreign_program_key_names_our_key) {
  Deck deck = Deck::describe();
  read_run_config(deck);
  const auto settings = deck.settings();
  for (const RenamedKey& key : foreign_keys()) {
    const auto named = [&](std::string_view path) {
      return std::any_of(settings.begin(), settings.end(), [&](const Declaration& d) { return d.path == path; });
    };
    EXPECT_TRUE(named(key.now) && !named(key.before)) << key.before;
    const std::string change = std::string(key.before) + "=1", expected = fmt::format("{} is called {} here", key.before, key.now);
    EXPECT_NE(refusal("train: {steps: 1}\n", {change}).find("command line `" + change + "`: " + expected), std::string::npos) << change;
  }
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
