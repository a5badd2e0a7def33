// SPDX-License-Identifier: BSD-3-Clause
#include "src/deck/renamed_keys.hpp"

#include <algorithm>

namespace gyr {

namespace {

constexpr RenamedKey table[] = {
    {"model.vocabulary", "model.vocab_size"},
    {"model.width", "model.hidden_size"},
    {"model.tied", "model.tie_word_embeddings"},
    {"model.epsilon", "model.rms_norm_eps"},
    {"model.padding", "model.pad_token_id"},
    {"model.deviation", "model.init_std"},
    {"model.head_multiplier", "model.lm_head_multiplier"},
    {"model.attention.heads", "model.attention.num_heads"},
    {"model.attention.key_heads", "model.attention.num_kv_heads"},
    {"model.attention.width", "model.attention.head_dim"},
    {"model.attention.theta", "model.attention.rope_theta"},
    {"model.mamba.heads", "model.mamba.num_heads"},
    {"model.mamba.width", "model.mamba.head_dim"},
    {"model.mamba.groups", "model.mamba.num_groups"},
    {"model.mamba.state", "model.mamba.state_size"},
    {"model.mamba.taps", "model.mamba.conv_kernel"},
    {"model.mamba.chunk", "model.mamba.chunk_size"},
    {"model.mamba.convolution_bias", "model.mamba.conv_bias"},
    {"model.mamba.decay_convolution", "model.mamba.decay_conv"},
    {"model.mlp.width", "model.mlp.intermediate_size"},
    {"train.batch", "train.global_batch_size"},
    {"train.micro_batch", "train.micro_batch_size"},
    {"train.length", "train.seq_length"},
    {"optimizer.rate", "optimizer.lr"},
    {"optimizer.rate_floor", "optimizer.min_lr"},
    {"optimizer.warmup", "optimizer.warmup_steps"},
    {"optimizer.decay", "optimizer.weight_decay"},
    {"optimizer.clip", "optimizer.clip_grad"},
    {"optimizer.group_rates", "optimizer.group_lrs"},
    {"optimizer.group_decays", "optimizer.group_weight_decays"},
    {"fault.life", "fault.attempt"},
};

constexpr RenamedKey foreign[] = {
    {"model.num_nextn_predict_layers", "train.mtp.depths"}, {"train.num_nextn_predict_layers", "train.mtp.depths"},
    {"model.mtp_num_layers", "train.mtp.depths"},           {"train.mtp_num_layers", "train.mtp.depths"},
    {"model.mtp_loss_scaling_factor", "train.mtp.weight"},  {"train.mtp_loss_scaling_factor", "train.mtp.weight"},
};

std::string_view name_in(std::span<const RenamedKey> keys, std::string_view path) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const RenamedKey& key) { return key.before == path; });
  return found == keys.end() ? std::string_view() : found->now;
}

void rename(YamlValue& section, const std::string& path) {
  for (std::size_t i = 0; i < section.names.size(); ++i) {
    const std::string key = path.empty() ? section.names[i] : path + "." + section.names[i];
    if (const std::string_view now = current_name(key); !now.empty()) section.names[i] = now.substr(now.rfind('.') + 1);
    else rename(section.items[i], key);
  }
}

}  // namespace

std::span<const RenamedKey> renamed_keys() { return table; }

std::string_view current_name(std::string_view path) { return name_in(table, path); }

std::span<const RenamedKey> foreign_keys() { return foreign; }

std::string_view gyrfalcon_name(std::string_view path) { return name_in(foreign, path); }

YamlValue with_current_names(YamlValue deck) {
  rename(deck, "");
  return deck;
}

}  // namespace gyr
