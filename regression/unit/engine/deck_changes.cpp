// SPDX-License-Identifier: BSD-3-Clause
// Declared effect of a changed deck key on a resumed run, against its real effect. Each key gets another value here. For
// keys of the model, of fine-tuning and of the optimizer, the loss and two training steps are computed with both values.
#include "src/config/deck_changes.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "regression/support/folder.hpp"
#include "regression/support/images.hpp"
#include "regression/support/tensors.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::deck_changes_suite {
namespace {

// A deck in which no value is the default, so that a change of any key can have an effect.
const char* const base_deck = R"(
model: {pattern: "P*WELGC", vocab_size: 24, hidden_size: 16, rms_norm_eps: 1e-3, embedding_multiplier: 1.5, lm_head_multiplier: 0.5, lm_head_soft_cap: 3, pad_token_id: 3,
        attention: {num_heads: 4, num_kv_heads: 2, head_dim: 4, rope_theta: 100, in_multiplier: 1.2, key_multiplier: 0.8, out_multiplier: 0.9, soft_cap: 2,
                    rope: {type: llama3, factor: 3, original_length: 16, low_freq_factor: 1.5, high_freq_factor: 5}},
        window: {size: 3, rope_theta: 50},
        latent: {num_heads: 2, head_dim: 4, rope_dim: 4, v_head_dim: 4, q_rank: 6, kv_rank: 5, rope_theta: 100, norm_eps: 1e-3,
                 rope: {type: llama3, factor: 3, original_length: 16, low_freq_factor: 1.5, high_freq_factor: 5}},
        mamba: {num_heads: 4, head_dim: 4, num_groups: 2, state_size: 4, chunk_size: 4, norm: gate_first, dt_limit: [0.01, 0.5], in_multiplier: 1.1, out_multiplier: 0.7,
                multipliers: [1.1, 0.9, 1.2, 0.8, 1.3]},
        delta: {num_heads: 4, num_key_heads: 2, head_dim: 4, key_dim: 4, chunk_size: 4}, short_conv: {kernel: 4},
        mlp: {intermediate_size: 24, gate_multiplier: 1.2, down_multiplier: 0.9},
        moe: {experts: 4, top_k: 2, intermediate_size: 8, shared_intermediate_size: 6, routed_scale: 1.5, groups: 2, aux_loss: 0.5, z_loss: 0.5}}
data: {prefixes: [x], weights: [1]}
activation: {policy: memo, recompute: selective}
train: {seq_length: 8, global_batch_size: 4, micro_batch_size: 2, precision: fp64}
optimizer: {lr: 1e-2, clip_grad: 0.5, weight_decay: 0.2, groups: ["*.A_log", "*embed*"], group_lrs: [0.5, 0.25], group_weight_decays: [0.1, 0.3]}
)";

const std::map<std::string, std::pair<const char*, Effect>>& another_value() {
  using enum Effect;
  static const std::map<std::string, std::pair<const char*, Effect>> all{{"model.layers", {"1", none}},
                                                                         {"model.attention_ratio", {"0.1", none}},
                                                                         {"model.mlp_ratio", {"0.1", none}},
                                                                         {"model.pattern", {"P-", function}},
                                                                         {"model.vocab_size", {"32", function}},
                                                                         {"model.hidden_size", {"32", function}},
                                                                         {"model.positions", {"8", function}},
                                                                         {"model.type_vocab_size", {"2", function}},
                                                                         {"model.norm", {"layer", function}},
                                                                         {"model.norm_placement", {"both", function}},
                                                                         {"model.norm_offset", {"1", function}},
                                                                         {"model.embed_norm", {"true", function}},
                                                                         {"model.rms_norm_eps", {"1e-2", function}},
                                                                         {"model.tie_word_embeddings", {"true", function}},
                                                                         {"model.embedding_multiplier", {"2", function}},
                                                                         {"model.lm_head_multiplier", {"1", function}},
                                                                         {"model.linear", {"ternary", function}},
                                                                         {"model.init_std", {"0.5", none}},
                                                                         {"model.pad_token_id", {"-1", course}},
                                                                         {"model.lm_head_soft_cap", {"0", function}},
                                                                         {"model.decoder_start_token_id", {"5", function}},
                                                                         {"model.dropout.embedding", {"0.3", course}},
                                                                         {"model.dropout.residual", {"0.3", course}},
                                                                         {"model.dropout.attention", {"0.3", course}},
                                                                         {"model.dropout.head", {"0.3", course}},
                                                                         {"model.attention.num_heads", {"2", function}},
                                                                         {"model.attention.num_kv_heads", {"1", function}},
                                                                         {"model.attention.head_dim", {"8", function}},
                                                                         {"model.attention.rope_theta", {"1e4", function}},
                                                                         {"model.attention.rotary_fraction", {"0.5", function}},
                                                                         {"model.attention.rope.type", {"linear", function}},
                                                                         {"model.attention.rope.factor", {"2", function}},
                                                                         {"model.attention.rope.original_length", {"20", function}},
                                                                         {"model.attention.rope.low_freq_factor", {"1", function}},
                                                                         {"model.attention.rope.high_freq_factor", {"4", function}},
                                                                         {"model.attention.rope.attention_factor", {"2", function}},
                                                                         {"model.attention.rope.truncate", {"false", function}},
                                                                         {"model.attention.bias", {"true", function}},
                                                                         {"model.attention.qkv_bias", {"true", function}},
                                                                         {"model.attention.qk_norm", {"true", function}},
                                                                         {"model.attention.qk_norm_all_heads", {"true", function}},
                                                                         {"model.attention.causal", {"false", function}},
                                                                         {"model.attention.in_multiplier", {"1", function}},
                                                                         {"model.attention.key_multiplier", {"1", function}},
                                                                         {"model.attention.out_multiplier", {"1", function}},
                                                                         {"model.attention.soft_cap", {"0", function}},
                                                                         {"model.attention.relative_bias.buckets", {"8", function}},
                                                                         {"model.attention.relative_bias.max_distance", {"5", function}},
                                                                         {"model.attention.sinks", {"true", function}},
                                                                         {"model.attention.output_gate", {"true", function}},
                                                                         {"model.encoder.hidden_size", {"8", function}},
                                                                         {"model.encoder.norm", {"layer", function}},
                                                                         {"model.encoder.rms_norm_eps", {"1e-2", function}},
                                                                         {"model.encoder.attention.num_heads", {"2", function}},
                                                                         {"model.encoder.attention.num_kv_heads", {"1", function}},
                                                                         {"model.encoder.attention.head_dim", {"8", function}},
                                                                         {"model.encoder.mlp.intermediate_size", {"32", function}},
                                                                         {"model.window.size", {"5", function}},
                                                                         {"model.window.rope_theta", {"0", function}},
                                                                         {"model.window.rotary", {"false", function}},
                                                                         {"model.latent.num_heads", {"4", function}},
                                                                         {"model.latent.head_dim", {"6", function}},
                                                                         {"model.latent.rope_dim", {"8", function}},
                                                                         {"model.latent.v_head_dim", {"6", function}},
                                                                         {"model.latent.q_rank", {"0", function}},
                                                                         {"model.latent.kv_rank", {"7", function}},
                                                                         {"model.latent.rope_theta", {"1e4", function}},
                                                                         {"model.latent.rope.type", {"linear", function}},
                                                                         {"model.latent.rope.factor", {"2", function}},
                                                                         {"model.latent.rope.original_length", {"20", function}},
                                                                         {"model.latent.rope.low_freq_factor", {"1", function}},
                                                                         {"model.latent.rope.high_freq_factor", {"4", function}},
                                                                         {"model.latent.rope.attention_factor", {"2", function}},
                                                                         {"model.latent.rope.truncate", {"false", function}},
                                                                         {"model.latent.neighbours", {"false", function}},
                                                                         {"model.latent.norm_eps", {"1e-2", function}},
                                                                         {"model.latent.score_growth", {"2", function}},
                                                                         {"model.latent.bias", {"true", function}},
                                                                         {"model.mamba.num_heads", {"8", function}},
                                                                         {"model.mamba.head_dim", {"8", function}},
                                                                         {"model.mamba.num_groups", {"1", function}},
                                                                         {"model.mamba.state_size", {"8", function}},
                                                                         {"model.mamba.conv_kernel", {"3", function}},
                                                                         {"model.mamba.chunk_size", {"8", none}},
                                                                         {"model.mamba.norm", {"norm_first", function}},
                                                                         {"model.mamba.conv_bias", {"false", function}},
                                                                         {"model.mamba.in_bias", {"true", function}},
                                                                         {"model.mamba.out_bias", {"true", function}},
                                                                         {"model.mamba.dt_limit", {"[0.3, 0.4]", function}},
                                                                         {"model.mamba.dt_init_low", {"0.01", none}},
                                                                         {"model.mamba.dt_init_high", {"0.5", none}},
                                                                         {"model.mamba.in_multiplier", {"1", function}},
                                                                         {"model.mamba.out_multiplier", {"1", function}},
                                                                         {"model.mamba.multipliers", {"[1, 1, 1, 1, 1]", function}},
                                                                         {"model.mamba.decay_conv", {"false", course}},
                                                                         {"model.delta.num_heads", {"8", function}},
                                                                         {"model.delta.num_key_heads", {"1", function}},
                                                                         {"model.delta.head_dim", {"8", function}},
                                                                         {"model.delta.key_dim", {"8", function}},
                                                                         {"model.delta.conv_kernel", {"3", function}},
                                                                         {"model.delta.chunk_size", {"8", none}},
                                                                         {"model.retrieval.chunk", {"2", function}},
                                                                         {"model.retrieval.neighbors", {"1", function}},
                                                                         {"model.retrieval.encoder", {"X-", function}},
                                                                         {"model.retrieval.encoder_dropout", {"0.3", course}},
                                                                         {"model.vision.tower", {"siglip", function}},
                                                                         {"model.vision.hidden_size", {"24", function}},
                                                                         {"model.vision.num_heads", {"3", function}},
                                                                         {"model.vision.intermediate_size", {"12", function}},
                                                                         {"model.vision.image_size", {"2", function}},
                                                                         {"model.vision.patch_size", {"4", function}},
                                                                         {"model.vision.activation", {"gelu", function}},
                                                                         {"model.vision.norm_eps", {"0.1", function}},
                                                                         {"model.vision.drop_first_row", {"false", function}},
                                                                         {"model.vision.projector_activation", {"relu", function}},
                                                                         {"model.vision.projector_bias", {"false", function}},
                                                                         {"model.vision.image_token", {"7", function}},
                                                                         {"model.vision.images", {"2", none}},
                                                                         {"model.vision.unused_layers", {"1", function}},
                                                                         {"model.vision.mean", {"[0.1, 0.2, 0.3]", function}},
                                                                         {"model.vision.std", {"[0.1, 0.2, 0.3]", function}},
                                                                         {"model.short_conv.kernel", {"3", function}},
                                                                         {"model.short_conv.bias", {"true", function}},
                                                                         {"model.mlp.intermediate_size", {"32", function}},
                                                                         {"model.mlp.activation", {"relu2", function}},
                                                                         {"model.mlp.gated", {"false", function}},
                                                                         {"model.mlp.bias", {"true", function}},
                                                                         {"model.mlp.gate_multiplier", {"1", function}},
                                                                         {"model.mlp.down_multiplier", {"1", function}},
                                                                         {"model.moe.experts", {"8", function}},
                                                                         {"model.moe.top_k", {"1", function}},
                                                                         {"model.moe.intermediate_size", {"16", function}},
                                                                         {"model.moe.latent_size", {"4", function}},
                                                                         {"model.moe.shared_intermediate_size", {"0", function}},
                                                                         {"model.moe.shared_gate", {"true", function}},
                                                                         {"model.moe.activation", {"gelu", function}},
                                                                         {"model.moe.gated", {"false", function}},
                                                                         {"model.moe.shared_multiplier", {"2", function}},
                                                                         {"model.moe.expert_bias", {"true", function}},
                                                                         {"model.moe.router_bias", {"true", function}},
                                                                         {"model.moe.score", {"sigmoid", function}},
                                                                         {"model.moe.normalize_top_k", {"false", function}},
                                                                         {"model.moe.routed_scale", {"1", function}},
                                                                         {"model.moe.groups", {"1", function}},
                                                                         {"model.moe.top_groups", {"2", function}},
                                                                         {"model.moe.bias", {"true", function}},
                                                                         {"model.moe.bias_update_rate", {"0.001", course}},
                                                                         {"model.moe.capacity_factor", {"0.5", course}},
                                                                         {"model.moe.token_drop_policy", {"probability", course}},
                                                                         {"model.moe.aux_loss", {"0.1", course}},
                                                                         {"model.moe.z_loss", {"0.1", course}},
                                                                         {"data.prefixes", {"[a]", course}},
                                                                         {"data.weights", {"[2]", course}},
                                                                         {"data.stages", {"[\"8 samples: 3\"]", course}},
                                                                         {"data.max_epochs", {"[3]", course}},
                                                                         {"data.fim.rate", {"0.5", course}},
                                                                         {"data.fim.spm", {"0.25", course}},
                                                                         {"data.fim.tokens", {"[a, b, c]", course}},
                                                                         {"data.split", {"1,0,0", course}},
                                                                         {"data.order", {"documents", course}},
                                                                         {"data.documents", {"separate", course}},
                                                                         {"data.tokenizer", {"t.json", none}},
                                                                         {"data.seed", {"7", course}},
                                                                         {"data.skip", {"[\"0:8\"]", course}},
                                                                         {"retro.project", {"facts", course}},
                                                                         {"retro.shuffle", {"7", course}},
                                                                         {"retro.layers", {"auto", function}},
                                                                         {"retro.neighbors", {"facts", course}},
                                                                         {"retro.continuation", {"database", course}},
                                                                         {"retro.padding", {"seen", course}},
                                                                         {"train.objective", {"reward", function}},  // from unit/objective.cpp
                                                                         {"train.mlm.mask_token", {"5", course}},
                                                                         {"train.mlm.share", {"0.3", course}},
                                                                         {"train.mlm.max_ngram", {"3", course}},
                                                                         {"train.mlm.seed", {"7", course}},
                                                                         {"train.mlm.head_bias", {"false", function}},
                                                                         {"train.mlm.sentence_order", {"true", function}},
                                                                         {"train.mtp.depths", {"2", function}},
                                                                         {"train.mtp.pattern", {"M", function}},
                                                                         {"train.mtp.weight", {"0.1", course}},
                                                                         {"train.span_corruption.share", {"0.3", course}},
                                                                         {"train.span_corruption.mean_length", {"2", course}},
                                                                         {"train.span_corruption.end_token", {"7", course}},
                                                                         {"train.span_corruption.first_sentinel", {"20", course}},
                                                                         {"train.span_corruption.seed", {"7", course}},
                                                                         {"train.seq2seq.source_length", {"4", course}},
                                                                         {"train.seq2seq.end_token", {"7", course}},
                                                                         {"train.preference.beta", {"0.5", course}},
                                                                         {"train.reward.center", {"0.5", course}},
                                                                         {"train.init_from", {"model", none}},
                                                                         {"rl.algorithm", {"rloo", function}},
                                                                         {"rl.iterations", {"3", course}},
                                                                         {"rl.prompts", {"3", function}},
                                                                         {"rl.num_generations", {"3", function}},
                                                                         {"rl.epochs", {"2", function}},
                                                                         {"rl.minibatches", {"2", function}},
                                                                         {"rl.seed", {"2", course}},
                                                                         {"rl.staleness", {"1", function}},
                                                                         {"rl.old_logp", {"said", course}},
                                                                         {"rl.overlong", {"mask", course}},
                                                                         {"rl.overlong_buffer", {"3", course}},
                                                                         {"rl.dynamic_sampling", {"3", course}},
                                                                         {"rl.skip_ratio", {"3", course}},
                                                                         {"rl.loss.ratio", {"sequence", course}},
                                                                         {"rl.loss.aggregate", {"constant", course}},
                                                                         {"rl.loss.clip_low", {"0.1", course}},
                                                                         {"rl.loss.clip_high", {"0.3", course}},
                                                                         {"rl.loss.dual_clip", {"3", course}},
                                                                         {"rl.loss.entropy_coefficient", {"0.1", course}},
                                                                         {"rl.kl.coefficient", {"0.1", course}},
                                                                         {"rl.kl.where", {"reward", course}},
                                                                         {"rl.kl.estimator", {"k2", course}},
                                                                         {"rl.kl.target", {"2", course}},
                                                                         {"rl.kl.horizon", {"20", course}},
                                                                         {"rl.advantage.scale", {"none", course}},
                                                                         {"rl.advantage.gamma", {"0.9", course}},
                                                                         {"rl.advantage.lambda", {"0.9", course}},
                                                                         {"rl.advantage.truncated", {"bootstrap", course}},
                                                                         {"rl.correction.weights", {"token", course}},
                                                                         {"rl.correction.low", {"0.1", course}},
                                                                         {"rl.correction.high", {"3", course}},
                                                                         {"rl.correction.outside", {"mask", course}},
                                                                         {"rl.critic.lr_factor", {"2", course}},
                                                                         {"rl.critic.clip", {"0.1", course}},
                                                                         {"rl.critic.warmup_iterations", {"2", course}},
                                                                         {"rl.generate.max_new_tokens", {"3", course}},
                                                                         {"rl.generate.temperature", {"2", course}},
                                                                         {"rl.generate.sequences_together", {"3", none}},
                                                                         {"rl.generate.exact", {"true", course}},
                                                                         {"rl.generate.ranks", {"0-1", none}},
                                                                         {"rl.generate.pipeline", {"2", none}},
                                                                         {"rl.generate.tensor", {"2", none}},
                                                                         {"rl.generate.precision", {"fp32", course}},
                                                                         {"rl.generate.separate", {"true", none}},
                                                                         {"rl.generate.end_tokens", {"[3]", course}},
                                                                         {"rl.plan.prompt_tokens", {"3", none}},
                                                                         {"rl.plan.answer_tokens", {"3", none}},
                                                                         {"rl.plan.reward_seconds", {"0.5", none}},
                                                                         {"rl.rewards.NAME.type", {"number", course}},
                                                                         {"rl.rewards.NAME.weight", {"2", course}},
                                                                         {"rl.rewards.NAME.clip", {"[0, 1]", course}},
                                                                         {"rl.rewards.NAME.field", {"other", course}},
                                                                         {"rl.rewards.NAME.normalize", {"[lower]", course}},
                                                                         {"rl.rewards.NAME.pattern", {"b", course}},
                                                                         {"rl.rewards.NAME.mode", {"match", course}},
                                                                         {"rl.rewards.NAME.most_steps", {"5", course}},
                                                                         {"rl.rewards.NAME.options", {"[c]", course}},
                                                                         {"rl.rewards.NAME.whole_words", {"true", course}},
                                                                         {"rl.rewards.NAME.tolerance", {"0.1", course}},
                                                                         {"rl.rewards.NAME.tags", {"[think]", course}},
                                                                         {"rl.rewards.NAME.target", {"5", course}},
                                                                         {"rl.rewards.NAME.most", {"5", course}},
                                                                         {"rl.rewards.NAME.scale", {"2", course}},
                                                                         {"rl.rewards.NAME.ngram", {"2", course}},
                                                                         {"rl.rewards.NAME.model", {"other", course}},
                                                                         {"rl.rewards.NAME.shift", {"2", course}},
                                                                         {"rl.rewards.NAME.template", {"a", course}},
                                                                         {"rl.rewards.NAME.command", {"[cat]", course}},
                                                                         {"rl.rewards.NAME.processes", {"2", none}},
                                                                         {"rl.rewards.NAME.timeout_seconds", {"2", course}},
                                                                         {"rl.rewards.NAME.on_failure", {"zero", course}},
                                                                         {"rl.rewards.NAME.restarts", {"2", none}},
                                                                         {"models.NAME.init_from", {"model", course}},
                                                                         {"models.NAME.precision", {"bf16", course}},
                                                                         {"models.NAME.ranks", {"0-3", none}},
                                                                         {"models.NAME.data", {"2", none}},
                                                                         {"models.NAME.pipeline", {"2", none}},
                                                                         {"models.NAME.context", {"2", none}},
                                                                         {"models.NAME.tensor", {"2", none}},
                                                                         {"models.NAME.expert", {"2", none}},
                                                                         {"models.NAME.micro_batch_size", {"2", none}},
                                                                         {"models.NAME.seq_length", {"2", none}},
                                                                         {"train.init_head", {"new", none}},
                                                                         {"train.classify.labels", {"[a, b]", function}},
                                                                         {"train.classify.num_labels", {"3", function}},
                                                                         {"train.classify.pool", {"last", function}},
                                                                         {"train.classify.head", {"transform", function}},
                                                                         {"train.tag.head", {"transform", function}},
                                                                         {"train.tag.labels", {"[a, b]", function}},
                                                                         {"train.tag.num_labels", {"3", function}},
                                                                         {"train.precision", {"bf16", course}},
                                                                         {"train.branch", {"true", none}},
                                                                         {"train.products", {"cblas", none}},
                                                                         {"train.fp8", {"blocks", course}},
                                                                         {"train.steps", {"7", course}},
                                                                         {"train.global_batch_size", {"8", course}},
                                                                         {"train.micro_batch_size", {"1", none}},
                                                                         {"train.seq_length", {"16", course}},
                                                                         {"train.ramp", {"[\"0:4\"]", course}},
                                                                         {"train.eval_every", {"7", operation}},
                                                                         {"train.eval_batches", {"7", operation}},
                                                                         {"train.log_every", {"7", operation}},
                                                                         {"train.seed", {"7", course}},
                                                                         {"train.walltime", {"1:00:00", operation}},
                                                                         {"train.non_finite", {"skip", course}},
                                                                         {"train.max_skips", {"7", course}},
                                                                         {"train.spike", {"2", course}},
                                                                         {"train.check_replicas", {"7", operation}},
                                                                         {"optimizer.beta1", {"0.5", course}},
                                                                         {"optimizer.beta2", {"0.5", course}},
                                                                         {"optimizer.epsilon", {"1e-2", course}},
                                                                         {"optimizer.weight_decay", {"0.5", course}},
                                                                         {"optimizer.clip_grad", {"0.1", course}},
                                                                         {"optimizer.groups", {"[\"*.D\", \"*embed*\"]", course}},
                                                                         {"optimizer.group_lrs", {"[2, 3]", course}},
                                                                         {"optimizer.group_weight_decays", {"[2, 3]", course}},
                                                                         {"optimizer.name", {"lion", course}},
                                                                         {"optimizer.group_rules", {"[sgd, lamb]", course}},
                                                                         {"optimizer.lamb.exclude", {"none", course}},
                                                                         {"optimizer.lamb.min_ratio", {"9", course}},
                                                                         {"optimizer.lamb.max_ratio", {"1e-3", course}},
                                                                         {"optimizer.lion.beta1", {"0.1", course}},
                                                                         {"optimizer.lion.beta2", {"0.5", course}},
                                                                         {"optimizer.muon.momentum", {"0.5", course}},
                                                                         {"optimizer.muon.nesterov", {"false", course}},
                                                                         {"optimizer.muon.ns_steps", {"2", course}},
                                                                         {"optimizer.muon.coefficients", {"quintic", course}},
                                                                         {"optimizer.muon.scale", {"spectral", course}},
                                                                         {"optimizer.muon.split", {"whole", course}},
                                                                         {"optimizer.muon.distribute", {"gather", none}},
                                                                         {"optimizer.muon.scalar", {"sgd", course}},
                                                                         {"optimizer.muon.scalar_lr", {"0.5", course}},
                                                                         {"optimizer.sgd.momentum", {"0.5", course}},
                                                                         {"optimizer.sgd.nesterov", {"true", course}},
                                                                         {"optimizer.frozen", {"[\"*.D\"]", course}},
                                                                         {"optimizer.schedule", {"linear", course}},
                                                                         {"finetune.lora.rank", {"2", function}},
                                                                         {"finetune.lora.alpha", {"32", function}},
                                                                         {"finetune.lora.targets", {"[o_proj]", function}},
                                                                         {"finetune.lora.also", {"[\"*norm*\"]", course}},
                                                                         {"optimizer.lr", {"0.5", course}},
                                                                         {"optimizer.min_lr", {"1e-4", course}},
                                                                         {"optimizer.warmup_steps", {"7", course}},
                                                                         {"optimizer.weight_decay_schedule", {"linear", course}},
                                                                         {"optimizer.weight_decay_start", {"0.5", course}},
                                                                         {"optimizer.power_b", {"-0.5", course}},
                                                                         {"optimizer.power_a", {"2", course}},
                                                                         {"optimizer.schedule_unit", {"samples", course}},
                                                                         {"optimizer.width_base", {"8", function}},
                                                                         {"optimizer.warmup_lr", {"1e-5", course}},
                                                                         {"optimizer.decay_steps", {"7", course}},
                                                                         {"optimizer.wsd_decay", {"7", course}},
                                                                         {"optimizer.wsd_shape", {"linear", course}},
                                                                         {"parallel.plan", {"auto", none}},
                                                                         {"parallel.cluster", {"x.yaml", none}},
                                                                         {"parallel.profile", {"x", none}},
                                                                         {"parallel.keep", {"[shard]", none}},
                                                                         {"parallel.data", {"2", none}},
                                                                         {"parallel.pipeline", {"2", none}},
                                                                         {"parallel.context", {"2", none}},
                                                                         {"parallel.context_mode", {"heads", none}},
                                                                         {"parallel.tensor", {"2", none}},
                                                                         {"parallel.order", {"[tensor, pipeline, data]", none}},
                                                                         {"parallel.permutation", {"[0]", none}},
                                                                         {"cluster.emulate", {"a:1", none}},
                                                                         {"parallel.mixer", {"auto", none}},
                                                                         {"parallel.attention_ranks", {"1", none}},
                                                                         {"parallel.schedule", {"zero_bubble", none}},
                                                                         {"parallel.virtual_stages", {"2", none}},
                                                                         {"parallel.sequence", {"true", none}},
                                                                         {"parallel.layers", {"[3]", none}},
                                                                         {"parallel.expert", {"2", none}},
                                                                         {"parallel.expert_room", {"2", none}},
                                                                         {"parallel.shard", {"optimizer", none}},
                                                                         {"parallel.bucket", {"1", none}},
                                                                         {"parallel.reduce_dtype", {"bf16", course}},
                                                                         {"train.label_smoothing", {"0.1", course}},
                                                                         {"train.z_loss", {"1e-4", course}},
                                                                         {"train.entropy_bonus", {"1e-2", course}},
                                                                         {"activation.policy", {"swap", none}},
                                                                         {"activation.alpha", {"0.5", none}},
                                                                         {"memory.device_bytes", {"1099511627776", operation}},
                                                                         {"activation.swap_folder", {"/tmp", none}},
                                                                         {"activation.recompute", {"full", none}},
                                                                         {"activation.recompute_types", {"['P:none']", none}},
                                                                         {"checkpoint.every", {"7", operation}},
                                                                         {"checkpoint.at_end", {"false", operation}},
                                                                         {"checkpoint.keep", {"7", operation}},
                                                                         {"checkpoint.keep_every", {"7", operation}},
                                                                         {"checkpoint.keep_best", {"true", operation}},
                                                                         {"checkpoint.files", {"node", operation}},
                                                                         {"checkpoint.async", {"true", operation}},
                                                                         {"checkpoint.deflate", {"1", operation}},
                                                                         {"checkpoint.verify", {"false", operation}},
                                                                         {"checkpoint.read", {"broadcast", operation}},
                                                                         {"dump.steps", {"[1]", operation}},
                                                                         {"dump.what", {"[\"/model/*\"]", operation}},
                                                                         {"trace.on", {"true", operation}},
                                                                         {"trace.steps", {"[7]", operation}},
                                                                         {"trace.kernels", {"true", operation}},
                                                                         {"watchdog.seconds", {"7", operation}},
                                                                         {"watchdog.heartbeat", {"7", operation}},
                                                                         {"supervise.max_restarts", {"7", operation}},
                                                                         {"supervise.stale", {"7", operation}},
                                                                         {"supervise.silent", {"7", operation}},
                                                                         {"supervise.slow", {"7", operation}},
                                                                         {"supervise.slow_steps", {"7", operation}},
                                                                         {"supervise.selftest", {"lost", operation}},
                                                                         {"fault.kind", {"kill", none}},
                                                                         {"fault.rank", {"7", none}},
                                                                         {"fault.step", {"7", none}},
                                                                         {"fault.attempt", {"7", none}},
                                                                         {"log.format", {"megatron", operation}},
                                                                         {"log.openmetrics", {"x.prom", operation}},
                                                                         {"output.folder", {"elsewhere", operation}},
                                                                         {"output.lock_seconds", {"7", operation}}};
  return all;
}

using Overrides = std::vector<std::string>;

// A reward with the required keys of a type that has this key.
Overrides reward_with(const std::string& key) {
  const auto of_type = [](const std::string& type, const std::string& setting) {
    return Overrides{"rl.rewards.NAME.type=" + type, "rl.rewards.NAME." + setting};
  };
  if (key == "pattern" || key == "mode" || key == "most_steps") return of_type("regex", "pattern=a");
  if (key == "options" || key == "whole_words")
    return {"rl.rewards.NAME.type=choice", "rl.rewards.NAME.options=[a, b]", "rl.rewards.NAME.field=target"};
  if (key == "tolerance") return of_type("number", "field=target");
  if (key == "tags") return of_type("format", "tags=[answer]");
  if (key == "target" || key == "scale") return of_type("length", "target=3");
  if (key == "most") return of_type("length", "most=3");
  if (key == "ngram") return of_type("repetition", "ngram=3");
  if (key == "model" || key == "shift" || key == "template") return of_type("model", "model=judge");
  if (key == "command" || key == "processes" || key == "timeout_seconds" || key == "on_failure" || key == "restarts")
    return of_type("process", "command=[true]");
  return of_type("exact", "field=target");
}

// Overrides that the base deck needs so that a key is allowed. model.layers and the ratios need the pattern that they
// produce.
Overrides base_of(const std::string& key) {
  if (key == "model.layers") return {"model.pattern=M"};
  if (key == "model.attention_ratio" || key == "model.mlp_ratio") return {"model.pattern=M", "model.layers=1"};
  if (key.starts_with("finetune.lora.") && key != "finetune.lora.rank") return {"finetune.lora.rank=2"};
  if (key == "train.init_head" || key == "train.branch") return {"train.init_from=model"};
  if (key == "model.attention.causal") return {"model.pattern=P*EL"};  // a pattern without sliding windows
  if (key == "retro.layers") return {"model.retrieval.chunk=4"};
  if (key.starts_with("model.retrieval.")) return {"model.pattern=PR", "model.retrieval.chunk=4"};
  if (key.starts_with("model.vision."))
    return {"model.pattern=*-VM*",
            "model.vision.hidden_size=12",
            "model.vision.num_heads=2",
            "model.vision.intermediate_size=10",
            "model.vision.image_size=4",
            "model.vision.patch_size=2",
            "model.vision.activation=silu",
            "model.vision.norm_eps=1e-5",
            "model.vision.drop_first_row=true",
            "model.vision.image_token=5",
            "model.vision.mean=[0.5, 0.5, 0.5]",
            "model.vision.std=[0.5, 0.5, 0.5]"};
  if (key == "model.linear" || key == "train.fp8") return {"model.pattern=P*WG"};  // layers that can be ternary
  const Overrides without_hybrids{"model.pattern=M*EL", "model.attention.soft_cap=0"};
  if (key == "model.attention.relative_bias.buckets") return without_hybrids;
  if (key == "model.attention.relative_bias.max_distance") return {without_hybrids[0], without_hybrids[1], "model.attention.relative_bias.buckets=8"};
  if (key.starts_with("model.encoder.")) return {"model.pattern=*->XM", "train.objective=span_corruption"};
  if (key == "model.decoder_start_token_id") return {"model.pattern=*>XM", "train.objective=span_corruption"};
  if (key == "model.attention.qk_norm_all_heads") return {"model.attention.qk_norm=true"};
  if (key == "model.moe.bias_update_rate") return {"model.moe.bias=true"};
  if (key == "model.moe.token_drop_policy") return {"model.moe.capacity_factor=0.5"};
  if (key == "model.moe.score") return {"model.moe.z_loss=0"};  // the z-loss requires softmax scores
  if (key == "model.attention.rope.attention_factor") return {"model.attention.rope.type=yarn"};
  if (key == "model.latent.rope.attention_factor") return {"model.latent.rope.type=yarn"};
  if (key == "model.attention.rope.truncate")
    return {"model.attention.rope.type=yarn", "model.attention.head_dim=8", "model.attention.rope.original_length=200"};
  if (key == "model.latent.rope.truncate") return {"model.latent.rope.type=yarn", "model.latent.rope_dim=8", "model.latent.rope.original_length=200"};
  for (const RuleType& type : rule_types())
    if (key.starts_with("optimizer." + type.name + ".")) return {"optimizer.name=" + type.name};
  if (key == "data.fim.rate") return {"data.tokenizer=other.json", "data.fim.tokens=[a, b, c]"};
  if (key == "optimizer.width_base")
    return {"model.embedding_multiplier=1",     "model.lm_head_multiplier=1",
            "model.attention.in_multiplier=1",  "model.attention.key_multiplier=1",
            "model.attention.out_multiplier=1", "model.mamba.in_multiplier=1",
            "model.mamba.out_multiplier=1",     "model.mamba.multipliers=[1, 1, 1, 1, 1]",
            "model.mlp.gate_multiplier=1",      "model.mlp.down_multiplier=1"};
  if (key == "checkpoint.keep_best") return {"train.eval_every=1"};
  if (key.starts_with("models.")) return {"models.NAME.init_from=another"};
  if (key.starts_with("rl.rewards.NAME.")) return reward_with(key.substr(std::string("rl.rewards.NAME.").size()));
  if (key == "model.dropout.head") return {"train.objective=tag", "train.tag.num_labels=24"};
  return {};
}

Overrides changed(const std::string& key) {
  Overrides all = base_of(key);
  all.push_back(key + "=" + another_value().at(key).first);
  return all;
}

Deck deck_with(const Overrides& overrides) { return Deck::parse(base_deck, "base", overrides); }

std::string effective(const Overrides& overrides = {}) {
  Deck deck = deck_with(overrides);
  read_run_config(deck);
  deck.finish();
  return deck.effective();
}

std::vector<std::string> keys() {
  std::vector<std::string> paths;
  Deck deck = Deck::describe();
  read_run_config(deck);
  for (const Declaration& d : deck.settings()) paths.push_back(d.path);
  return paths;
}

TEST(deck_changes, every_changed_key_is_reported_with_effect) {
  EXPECT_EQ(keys().size(), another_value().size());
  for (const std::string& key : keys()) {
    ASSERT_TRUE(another_value().contains(key)) << key << ": add another value of this key and its effect on a resumed run to another_value()";
    const Effect effect = another_value().at(key).second;
    const std::string before = effective(base_of(key));
    EXPECT_TRUE(deck_changes(before, before).empty()) << key;
    const auto changes = deck_changes(before, effective(changed(key)));
    ASSERT_EQ(changes.size(), 1u) << key;
    EXPECT_EQ(changes[0].key, key);
    EXPECT_EQ(int(changes[0].effect), int(effect)) << key;
    EXPECT_NE(changes[0].was, changes[0].is);
    const std::string text = text_of(changes, "step_1");
    EXPECT_NE(text.find(key), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n') + 1, effect == Effect::none || effect == Effect::operation ? 1 : 3) << text;
    EXPECT_EQ(error_of([&] { require_same_function(changes, "step_1"); }).code, effect == Effect::function ? Exit::config : Exit::ok) << key;
  }
}

// Weight shapes of a model, its loss, and its weights after training.
struct Outcome {
  std::map<std::string, Shape> shapes;
  double loss = 0;
  std::vector<double> weights;  // after two steps
};

// The same tokens as samples, from which the model's objective makes encoder input and decoder input.
MicroBatch with_sources(const ModelConfig& m, const MicroBatch& tokens) {
  const auto source = [&](Index i) {
    Sample s{std::vector<std::int32_t>(tokens.tokens.begin() + i * 8, tokens.tokens.begin() + (i + 1) * 8), {}, std::vector<std::uint8_t>(9, 1), {}};
    s.tokens.push_back(0);
    return s;
  };
  return micro_batch_of(source, m, 0, 2, m.objective->lengths(8).text);
}

Outcome outcome_of(const Overrides& overrides) {
  Deck deck = deck_with(overrides);
  const RunConfig run = read_run_config(deck);
  EngineConfig config = engine_config(run, grid_layout(1, 1, 1, {{0, run.model.layers()}}));
  config.micro_batch_size = 2, config.micros = 1;
  Rig<double> rig(config, single_rank_grid(run.model.layers()));
  set_weights(rig.engine);
  MicroBatch batch = micro_batch(0, 2, 8, std::min<Index>(24, run.model.vocab_size));
  if (run.model.objective->has_source()) batch = with_sources(run.model, batch);
  else std::fill_n(batch.tokens.begin(), 4, 3);  // the padding token, whose embedding row gets no gradient
  if (std::mt19937_64 random(1); reads_images(run.model)) add_images(batch, run.model, {1}, random);
  if (reads_neighbours(run.model)) batch.source.length = config.source_length;
  if (reads_neighbours(run.model)) batch.source.tokens = micro_batch(7, 2, config.source_length, 24).tokens;
  const auto source = [&](int) { return batch; };
  Outcome o;
  for (const auto& p : rig.engine.stage().parameters().all()) o.shapes[p->weight.name] = p->weight.shape;
  const auto [sum, tokens] = rig.engine.evaluate(source, 1);
  o.loss = sum / double(tokens);
  rig.engine.train(source, 1, {1, run.lr.lr, 0, std::numeric_limits<double>::infinity()});
  rig.engine.train(source, 1, {2, run.lr.lr, 0, std::numeric_limits<double>::infinity()});
  for (const auto& p : rig.engine.stage().parameters().all())
    for (Index i = 0; i < p->size(); ++i) o.weights.push_back(p->template vector<double>()(i));
  return o;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Settings that act through the course of learning rate and weight decay, which outcome_of() leaves out.
bool is_of_schedule(const std::string& key) {
  for (const char* prefix : {"wsd", "schedule", "power", "weight_decay_", "min_lr", "warmup", "decay_steps"})
    if (key.starts_with(std::string("optimizer.") + prefix)) return true;
  return false;
}

TEST(deck_changes, declared_effect_matches_computed_loss_and_weights) {
  const Outcome usual = outcome_of({});
  for (const std::string& key : keys()) {
    const bool model = key.starts_with("model.") || key.starts_with("finetune."), optimizer = key.starts_with("optimizer.") && !is_of_schedule(key);
    if (!model && !optimizer) continue;
    const Effect effect = another_value().at(key).second;
    const Outcome base = base_of(key).empty() ? usual : outcome_of(base_of(key)), other = outcome_of(changed(key));
    const bool same_shapes = other.shapes == base.shapes, same_loss = same_shapes && std::abs(other.loss - base.loss) < 1e-12;
    EXPECT_EQ(effect == Effect::function, !same_loss) << key << ": loss " << base.loss << " and " << other.loss;
    if (!same_shapes || effect == Effect::function) continue;
    EXPECT_EQ(effect == Effect::course, distance(base.weights, other.weights) > 1e-12)
        << key << ": weights differ by " << distance(base.weights, other.weights);
  }
}

TEST(deck_changes, missing_keys_of_older_decks_mean_defaults) {
  std::string older = effective();
  const auto at = older.find("  log_every: 1\n");
  ASSERT_NE(at, std::string::npos);
  older.erase(at, std::string("  log_every: 1\n").size());
  EXPECT_TRUE(deck_changes(older, effective()).empty());
  const auto changes = deck_changes(older, effective({"train.log_every=5"}));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].was, "1");
  const auto unknown = deck_changes(effective() + "extra:\n  key: 5\n", effective());
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_EQ(unknown[0].key, "extra.key");
  EXPECT_TRUE(deck_changes("", effective()).empty());
}

TEST(deck_changes, keys_of_new_runs_are_named_as_such) {
  const std::vector<DeckChange> changes{{"train.init_from", "", "model", Effect::none}, {"output.folder", "a", "b", Effect::none}};
  EXPECT_EQ(text_of(changes, "step_1"),
            "changed since step_1, with the same results up to rounding: output.folder\n"
            "changed since step_1, and read only by a new run: train.init_from");
  EXPECT_EQ(old_values(changes), "") << "a copied folder stays a copy";
}

TEST(deck_changes, moved_end_of_decay_is_reported) {
  const std::vector<DeckChange> changes{{"train.steps", "180", "260", Effect::course}};
  LearningRate lr{"cosine", 1e-3, 0, 10, 260, 1, "linear"};
  EXPECT_EQ(text_of_moved_decay(changes, lr),
            "the decay of the learning rate ends at step 260 instead of 180, so that the rate changes at once; optimizer.decay_steps=180 keeps the "
            "old one");
  EXPECT_EQ(text_of_moved_decay({}, lr), "");
  lr.decay_steps = 500;
  EXPECT_EQ(text_of_moved_decay(changes, lr), "");
  lr.decay_steps = 260, lr.schedule = "constant";
  EXPECT_EQ(text_of_moved_decay(changes, lr), "");
}

TEST(deck_changes, old_values_are_words_for_a_shell) {
  const std::vector<DeckChange> changes{{"optimizer.lr", "0.002", "0.001", Effect::course},
                                        {"model.pattern", "P x 2", "P", Effect::function},
                                        {"data.tokenizer", "it's", "out", Effect::none},
                                        {"extra.key", "5", "not known to this program", Effect::course},
                                        {"parallel.tensor", "2", "1", Effect::none}};
  EXPECT_EQ(old_values(changes), R"(optimizer.lr=0.002 'model.pattern=P x 2' 'data.tokenizer=it'\''s' parallel.tensor=2)");
  EXPECT_EQ(old_values({changes.back()}), "") << "a run may continue on other ranks";
  EXPECT_EQ(old_values({}), "");
}

}  // namespace
}  // namespace gyr::testing::deck_changes_suite
