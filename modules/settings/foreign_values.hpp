// SPDX-License-Identifier: BSD-3-Clause
// Words under which users of Megatron-LM, Hugging Face, DeepSpeed, nanoGPT and torchtitan know the values of our deck keys.
// Words are in lower case, with underscores for dashes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace gyr {

struct ForeignValue {
  std::string_view key, words;  // full path of a key; words of other frameworks, separated by spaces
  std::string_view here;        // the value of the key; empty: there is none
  std::string_view advice;      // if `here` is empty: reason and alternative
};

inline constexpr ForeignValue foreign_values[] = {
    {"train.precision", "bfloat16 torch.bfloat16 bf16_mixed bf16_true bf16_full", "bf16", ""},
    {"train.precision", "float32 float fp32_true 32 32_true torch.float32 torch.float single no", "fp32", ""},
    {"train.precision", "float64 double torch.float64 fp64_true 64 64_true", "fp64", ""},
    {"train.precision", "fp16 float16 half torch.float16 torch.half 16 16_mixed 16_true fp16_mixed amp", "",
     "fp16 is not supported; write bf16, which needs no loss scaling"},
    {"train.precision", "fp8 float8", "", "FP8 operands of linear layers are train.fp8, beside train.precision: bf16"},
    {"train.precision", "int8 tf32", "", "GEMMs in bf16 are the fastest that are supported; write bf16"},
    {"parallel.shard", "zero1 zero_1 1 stage1 os optim distributed_optimizer true", "optimizer", ""},
    {"parallel.shard", "zero2 zero_2 2 stage2 os_g optim_grads shard_grad_op", "gradients", ""},
    {"parallel.shard", "zero3 zero_3 3 stage3 fsdp fsdp2 full_shard p_g_os optim_grads_params hsdp hybrid_shard zero++", "weights", ""},
    {"parallel.shard", "zero0 zero_0 0 ddp no_shard false off no", "none", ""},
    {"optimizer.name", "adam adam_w adamw_torch adamw_torch_fused adamw_hf adamw_bnb_8bit fusedadam fused_adam paged_adamw_8bit", "adamw", ""},
    {"optimizer.name", "fusedlamb fused_lamb nvlamb", "lamb", ""},
    {"optimizer.name", "lion_32bit lion_8bit paged_lion_8bit", "lion", ""},
    {"optimizer.name", "momentum nesterov sgd_torch", "sgd", ""},
    {"optimizer.name", "dist_muon distributed_muon adaptive_muon muonclip moonlight", "muon", ""},
    {"optimizer.muon.scale", "match_rms moonlight", "match_rms_adamw", ""},
    {"optimizer.muon.scale", "unit_rms_norm", "unit_rms", ""},
    {"optimizer.muon.scalar", "adam fused_adam", "adamw", ""},
    {"optimizer.muon.distribute", "blockwise", "",
     "a matrix that is orthogonalised block by block is updated otherwise on every layout; write owner"},
    {"optimizer.name", "adafactor sophia shampoo soap came adagrad rmsprop", "", "this rule does not exist here; adamw is the usual choice"},
    {"optimizer.schedule",
     "cosine_with_min_lr cosine_decay cosineannealinglr cosine_annealing warmupcosinelr cosine_with_restarts cosine_schedule_with_warmup", "cosine",
     ""},
    {"optimizer.schedule", "linear_with_warmup linear_decay linearlr warmupdecaylr polynomial", "linear", ""},
    {"optimizer.schedule", "constant_with_warmup constantlr warmuplr none fixed", "constant", ""},
    {"optimizer.schedule", "inverse_sqrt inverse_square_root rsqrt inverse_sqrt_decay inv_sqrt noam", "inverse-sqrt", ""},
    {"optimizer.schedule", "warmup_stable_decay trapezoidal wsd_schedule", "wsd", ""},
    {"optimizer.wsd_shape", "sqrt 1_sqrt minus_sqrt", "minus-sqrt", ""},
    {"activation.recompute", "true uniform block yes on 1 all", "full", ""},
    {"activation.recompute", "false off no 0 never", "none", ""},
    {"parallel.schedule", "interleaved interleaved1f1b interleaved_1f1b vpp", "",
     "interleaved 1F1B is parallel.schedule=1f1b with parallel.virtual_stages above 1"},
    {"parallel.schedule", "zb_h1 zbh1 zb1p zb zerobubble interleavedzerobubble zbvzerobubble", "zero_bubble", ""},
    {"parallel.context_mode", "p2p allgather all_gather ring_attention cp", "ring", ""},
    {"parallel.context_mode", "a2a alltoall all_to_all ulysses deepspeed_ulysses", "heads", ""},
    {"parallel.context_mode", "distflashattention dist_flash balanced_ring", "balanced", ""},
    {"parallel.reduce_dtype", "bfloat16", "bf16", ""},
    {"parallel.reduce_dtype", "fp32 float32 float fp64", "full", ""},
    {"train.objective", "causal_lm causallm clm lm next_token_prediction gpt pretrain pretraining autoregressive sft", "next_token", ""},
    {"train.objective", "dpo", "preference", ""},
    {"train.objective", "rm reward_model reward_modeling rewardtrainer bradley_terry", "reward", ""},
    {"train.objective", "masked_lm masked_language_modeling maskedlm bert", "mlm", ""},
    {"train.objective", "classification sequence_classification text_classification", "classify", ""},
    {"train.objective", "ner token_classification tagging", "tag", ""},
    {"train.objective", "t5 span", "span_corruption", ""},
    {"train.objective", "translation summarization encoder_decoder", "seq2seq", ""},
    {"model.norm", "rmsnorm rms_norm t5norm", "rms", ""},
    {"model.norm", "layernorm layer_norm np_layernorm", "layer", ""},
    {"model.norm_placement", "pre pre_norm prenorm pre_ln", "before", ""},
    {"model.norm_placement", "reordered reordered_norm", "output", ""},
    {"model.norm_placement", "post post_norm postnorm post_ln", "after", ""},
    {"model.mlp.activation", "swish swiglu", "silu", ""},
    {"model.mlp.activation", "gelu_new gelu_pytorch_tanh gelu_fast geglu", "gelu_tanh", ""},
    {"model.mlp.activation", "gelu_python gelu_erf", "gelu", ""},
    {"model.mlp.activation", "squared_relu relu_squared srelu", "relu2", ""},
    {"model.attention.rope.type", "default false", "none", ""},
    {"model.attention.rope.type", "dynamic_ntk ntk", "dynamic", ""},
    {"data.order", "true shuffle random", "shuffled", ""},
    {"data.documents", "true packed packing reset", "separate", ""},
};

// True if `word` is one of these words, which are separated by spaces.
inline bool is_among(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// Row for a value of `key`; null if the table has none.
inline const ForeignValue* foreign_value(std::string_view key, std::string_view value) {
  std::string word(value);
  for (char& c : word) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
  const auto has_word = [&](const ForeignValue& row) { return row.key == key && is_among(row.words, word); };
  const auto row = std::find_if(std::begin(foreign_values), std::end(foreign_values), has_word);
  return row == std::end(foreign_values) ? nullptr : row;
}

// The value of `key` that corresponds to this word of another framework; empty if there is none.
inline std::string_view value_here(std::string_view key, std::string_view word) {
  const ForeignValue* row = foreign_value(key, word);
  return row ? row->here : std::string_view();
}

}  // namespace gyr
