// SPDX-License-Identifier: BSD-3-Clause
#include "src/deck/renamed_keys.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "modules/settings/foreign_values.hpp"
#include "src/deck/foreign_keys.hpp"

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

// Keys of cluster files (src/planner/machine/cluster.cpp), which users also look for in decks.
constexpr std::string_view cluster_keys =
    "cluster.name cluster.nodes cluster.island_nodes islands.files islands.nodes device.per_node device.memory device.reserve device.gpu "
    "device.memory_bandwidth device.bf16 device.fp32 device.fp64 device.watts device.price device.currency device.fused host.memory "
    "host.bandwidth host.beside storage.bandwidth failures.hours failures.restart errors.published errors.published_steps errors.measured "
    "errors.measured_steps links.beside "
    "links.node.latency links.node.bandwidth links.node.sums links.network.latency links.network.bandwidth links.network.sums "
    "links.islands.latency links.islands.bandwidth links.islands.sums fit.products fit.fused fit.memory fit.links fit.step";

std::string_view last_name(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Row with this name: with its section (Match::path), or its last part (Match::name).
const ForeignKey* foreign_row(std::string_view path, Match match) {
  std::vector<std::string_view> names{last_name(path)};
  if (match == Match::path) {
    names.clear();
    for (std::size_t dot = path.rfind('.'); dot != path.npos; dot = dot == 0 ? path.npos : path.rfind('.', dot - 1)) {
      const std::size_t begin = dot == 0 ? path.npos : path.rfind('.', dot - 1);
      names.push_back(path.substr(begin == path.npos ? 0 : begin + 1));
    }
  }
  const ForeignKey* first = nullptr;  // the rows are in the order of preference
  for (const std::string_view name : names)
    if (const ForeignKey* row = row_with(foreign_key_table, name); row && (!first || row < first)) first = row;
  return first;
}

std::string quoted_for_shell(const std::string& value) {
  const bool plain = value.find_first_of(" []{}*\"'$&|;<>()~#!?") == value.npos;
  return plain ? value : "'" + value + "'";
}

std::string assignment(std::string_view key, const std::string& value, bool in_file) {
  if (!in_file) return fmt::format("{}={}", key, quoted_for_shell(value));
  const auto dot = key.rfind('.');
  return fmt::format("`{}: {}` in section `{}`", key.substr(dot + 1), value, key.substr(0, dot));
}

std::string advice_of(const ForeignKey& row, const UnknownKey& key) {
  if (row.advice.empty()) {
    const std::string_view here = value_here(row.here, key.value);
    const std::string value = key.value.empty() ? "VALUE" : here.empty() ? key.value : std::string(here);
    return fmt::format("it is called {} here: write {}", row.here, assignment(row.here, value, key.in_file));
  }
  std::string value = key.value.empty() ? "N" : key.value, text(row.advice);
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
  for (auto at = text.find("{}"); at != text.npos; at = text.find("{}", at + value.size())) text.replace(at, 2, value);
  return text;
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

std::string_view current_name(std::string_view path) {
  const auto found = std::find_if(std::begin(table), std::end(table), [&](const RenamedKey& key) { return key.before == path; });
  return found == std::end(table) ? std::string_view() : found->now;
}

std::string normalized(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string text(name);
  for (char& c : text) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
  return text;
}

const ForeignKey* row_with(std::span<const ForeignKey> rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ForeignKey& row) { return is_among(row.names, name); });
  return found == rows.end() ? nullptr : &*found;
}

std::span<const ForeignKey> foreign_keys() { return foreign_key_table; }

std::string_view key_called(const std::string& name) {
  if (const std::string_view now = current_name(name); !now.empty()) return now;
  const std::string path = normalized(name);
  const ForeignKey* row = foreign_row(path, Match::path);
  if (!row) row = foreign_row(path, Match::name);
  return row ? row->here : "";
}

bool counts_ranks(const std::string& name) {
  const ForeignKey* row = foreign_row(normalized(name), Match::name);
  return row && is_among(row->names, "num_gpus");
}

std::string remedy_for(const UnknownKey& key, std::span<const std::string> declared, Match match, bool foreign) {
  const std::string path = normalized(key.path);
  const ForeignKey* row = foreign ? foreign_row(path, match) : nullptr;
  if (row && match == Match::name) return advice_of(*row, key);  // before a key of the same name in a section for another purpose, as rl.epochs
  std::string same;
  for (const std::string& known : declared) {
    if (match == Match::path ? path != known : last_name(path) != last_name(known)) continue;
    same += fmt::format("{}`{}{}`", same.empty() ? "" : " or ", known, key.in_file || key.value.empty() ? "" : "=" + quoted_for_shell(key.value));
  }
  if (!same.empty()) return fmt::format("did you mean {}?", same);
  if (foreign && match == Match::path && is_among(cluster_keys, path))
    return fmt::format("it belongs to a cluster file: write {} of the file that `gyrfalcon plan --cluster` reads",
                       assignment(path, key.value.empty() ? "VALUE" : key.value, true));
  return row ? advice_of(*row, key) : "";
}

YamlValue with_current_names(YamlValue deck) {
  rename(deck, "");
  return deck;
}

}  // namespace gyr
