#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes families/NAME/{config.json, model.safetensors, expected.safetensors}: tiny models of all supported Hugging Face
families besides Falcon-H1, and the outputs of transformers' classes for them on the CPU, in the format described in huggingface.py.

    ./huggingface_families.py [NAME ...]      default: all of them; gpt_oss_blocks and ternary models need the package accelerate
"""
import json
import math
import pathlib
import sys

import safetensors.torch
import torch
import transformers
from transformers import modeling_rope_utils as rotary
from transformers.integrations import bitnet, mxfp4
from transformers.models.clip import modeling_clip
from transformers.models.siglip import modeling_siglip

import huggingface as falcon_h1

here = pathlib.Path(__file__).parent / "families"

tokens = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
decoder = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
               max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, **tokens)
llama3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
mamba2 = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_heads=8, head_dim=4, expand=2, n_groups=1, state_size=8, conv_kernel=4,
              chunk_size=8, **tokens)

mixtral = dict(decoder, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)

gemma2 = dict(decoder, num_hidden_layers=3, sliding_window=7, query_pre_attn_scalar=9, attn_logit_softcapping=1.5,
              final_logit_softcapping=4.0)
gemma3 = dict(decoder, sliding_window=7, query_pre_attn_scalar=9,
              rope_parameters=dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=1e4),
                                   sliding_attention=dict(rope_type="default", rope_theta=100.0)))
gpt2 = dict(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=96, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
            eos_token_id=2)
bert = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
modernbert = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=64,
                  local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
                  rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=160.0),
                                       sliding_attention=dict(rope_type="default", rope_theta=10.0)))
deepseek_v3 = dict(decoder, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
                   num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, n_shared_experts=2,
                   moe_intermediate_size=8, routed_scaling_factor=1.5)
del deepseek_v3["head_dim"]
glm4_moe = dict(decoder, head_dim=8, num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2,
                n_shared_experts=1, moe_intermediate_size=8, routed_scaling_factor=1.5, num_nextn_predict_layers=0,
                rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
gpt_oss = dict(decoder, num_hidden_layers=4, num_local_experts=5, num_experts_per_tok=2, intermediate_size=12, sliding_window=6, rope_parameters=dict(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5, truncate=False, rope_theta=50.0))
t5 = dict(vocab_size=40, d_model=16, d_kv=6, d_ff=20, num_layers=2, num_heads=4, relative_attention_num_buckets=16, relative_attention_max_distance=80,
          dropout_rate=0.0, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
falcon = dict(vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, multi_query=True, parallel_attn=True, alibi=False, bias=False,
              new_decoder_architecture=False, tie_word_embeddings=False, max_position_embeddings=512, bos_token_id=1, eos_token_id=2)
bamba = dict(decoder, num_hidden_layers=3, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=4, mamba_expand=2, mamba_n_groups=1, mamba_d_state=8,
             mamba_chunk_size=8, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
nemotron_h = dict(vocab_size=40, hidden_size=16, layers_block_type=["mamba", "mlp", "attention", "mamba", "mlp"], num_attention_heads=4,
                  num_key_value_heads=2, head_dim=6, intermediate_size=20, mamba_num_heads=8, mamba_head_dim=4, n_groups=4, ssm_state_size=8,
                  chunk_size=8, **tokens)


qwen3_next = dict(decoder, num_hidden_layers=3, full_attention_interval=3, linear_num_value_heads=4, linear_num_key_heads=2, linear_value_head_dim=6,
                  linear_key_head_dim=8, linear_conv_kernel_dim=3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                  shared_expert_intermediate_size=12, mlp_only_layers=[1], head_dim=8, rms_norm_eps=1e-3,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
nemotron_3 = dict(nemotron_h, layers_block_type=["mamba", "moe", "attention", "moe"], mamba_num_heads=4, n_groups=2, ssm_state_size=4, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2,
                  moe_intermediate_size=8, moe_shared_expert_intermediate_size=12, routed_scaling_factor=1.5)
granite = dict({k: x for k, x in decoder.items() if k not in ("head_dim", "rope_parameters")}, intermediate_size=8, layer_types=["linear_attention", "full_attention"],
               num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=12, mamba_n_heads=4, mamba_d_head=4, mamba_expand=1, mamba_d_state=4,
               mamba_chunk_size=8, embedding_multiplier=0.4, logits_scaling=0.7, residual_multiplier=0.9,
               attention_multiplier=0.3, tie_word_embeddings=True)
lfm2 = dict(decoder, head_dim=4, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False, norm_eps=1e-3)
dense = {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "mlp_only_layers"}
tower = dict(hidden_size=12, intermediate_size=12, num_hidden_layers=3, num_attention_heads=2, image_size=8, patch_size=4)
clip = dict(tower, model_type="clip_vision_model", projection_dim=8)
siglip = dict(tower, model_type="siglip_vision_model", vision_use_head=False, num_hidden_layers=2, num_attention_heads=4)
statistics = {"clip_vision_model": ([.48145466, .4578275, .40821073], [.26862954, .26130258, .27577711]), "siglip_vision_model": ([.5] * 3, [.5] * 3)}
llava = dict(text_config=dict(decoder, model_type="llama"), image_token_index=5, image_seq_length=4)
behind_tower = dict(falcon_h1.base, model_type="falcon_h1", embedding_multiplier=1.0, lm_head_multiplier=1.0)
qwen3_5 = {key: x for key, x in qwen3_next.items() if key not in dense}


online_ternary = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online")  # BitNet b1.58, quantized in every forward


def names(*classes):
    return dict(enumerate(classes))


# name: class, settings, sequences, tokens per sequence; with padding: unpadded tokens of each sequence; for pairs also those of each target
cases = {
    "llama": ("Llama", dict(decoder), 2, 21),
    "llama_biases": ("Llama", dict(decoder, attention_bias=True, mlp_bias=True, num_key_value_heads=4, tie_word_embeddings=True), 2, 17),
    "mistral": ("Mistral", dict(decoder, sliding_window=None, vocab_size=31), 2, 13),
    "mamba2": ("Mamba2", dict(mamba2, tie_word_embeddings=True), 2, 21),
    "mamba2_biases": ("Mamba2", dict(mamba2, use_bias=True, use_conv_bias=False, conv_kernel=3, time_step_limit=(0.2, 0.9)), 2, 19),
    "llama3": ("Llama", dict(decoder, rope_parameters=dict(llama3, rope_theta=50.0)), 2, 33),
    "llama_linear": ("Llama", dict(decoder, rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=1e4)), 1, 19),
    "qwen2": ("Qwen2", {k: x for k, x in decoder.items() if k != "head_dim"}, 2, 21),
    "mixtral": ("Mixtral", dict(mixtral), 2, 21),
    "mixtral_many": ("Mixtral", dict(mixtral, num_local_experts=6, num_experts_per_tok=3, num_key_value_heads=4, vocab_size=31), 2, 17),
    "qwen3": ("Qwen3", dict(decoder, num_key_value_heads=4, head_dim=8), 2, 21),
    "qwen3_biases": ("Qwen3", dict(decoder, attention_bias=True, num_attention_heads=8, hidden_act="gelu"), 2, 17),
    "gpt2": ("GPT2", dict(gpt2, n_layer=4), 2, 21),
    "gpt2_apart": ("GPT2", dict(gpt2, tie_word_embeddings=False, n_inner=24, n_layer=3, activation_function="relu2", vocab_size=31), 2, 19),
    "bamba": ("Bamba", dict(bamba), 2, 21),
    "nemotron_h": ("NemotronH", dict(nemotron_h), 2, 21),
    "nemotron_h_biases": ("NemotronH", dict(nemotron_h, use_bias=True, mlp_bias=True, use_conv_bias=False, time_step_min=0.2, n_groups=1), 2, 19),
    "qwen3_moe": ("Qwen3Moe", dict(decoder, num_hidden_layers=3, mlp_only_layers=[1], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                                   norm_topk_prob=True, num_key_value_heads=4), 2, 21),
    "llama_yarn": ("Llama", dict(decoder, head_dim=16, rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16,
                                                                            beta_fast=2.0, beta_slow=0.5, rope_theta=50.0)), 2, 33),
    "qwen3_moe_sparse": ("Qwen3Moe", dict(decoder, num_hidden_layers=4, decoder_sparse_step=2, num_experts=6, num_experts_per_tok=3,
                                          moe_intermediate_size=8, attention_bias=True, num_key_value_heads=4, head_dim=8), 2, 17),
    "falcon": ("Falcon", dict(falcon), 2, 21),
    "falcon_biases": ("Falcon", dict(falcon, bias=True, parallel_attn=False, ffn_hidden_size=24, num_hidden_layers=2), 2, 19),
    "mistral_window": ("Mistral", dict(decoder, sliding_window=7, vocab_size=31), 2, 23),
    "qwen2_window": ("Qwen2", dict({k: x for k, x in decoder.items() if k != "head_dim"}, num_hidden_layers=4, use_sliding_window=True, sliding_window=5,
                                   max_window_layers=2), 2, 21),
    "qwen3_window": ("Qwen3", dict(decoder, head_dim=8, num_hidden_layers=3, use_sliding_window=True, sliding_window=6,
                                   layer_types=["sliding_attention", "full_attention", "sliding_attention"]), 2, 19),
    "mixtral_window": ("Mixtral", dict(mixtral, sliding_window=4), 2, 19),
    "deepseek_v3": ("DeepseekV3", dict(deepseek_v3), 2, 21),
    "deepseek_v3_yarn": ("DeepseekV3", dict(deepseek_v3, q_lora_rank=None, attention_bias=True, rope_interleave=False, num_hidden_layers=2, n_group=1,
                                            topk_group=1, norm_topk_prob=False, rope_parameters=dict(
                                                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5,
                                                mscale=1.0, mscale_all_dim=0.8, rope_theta=50.0)), 2, 33),
    "bert": ("Bert", dict(bert), 2, 21),
    "bert_padded": ("Bert", dict(bert, num_hidden_layers=3, hidden_act="gelu_new", type_vocab_size=3, vocab_size=31, layer_norm_eps=1e-5), 2, 20, [20, 13]),
    "bert_texts": ("Bert ForSequenceClassification", dict(bert, id2label=names("bad", "middling", "good")), 2, 21),
    "bert_texts_padded": ("Bert ForSequenceClassification", dict(bert, num_hidden_layers=1, hidden_act="tanh"), 2, 20, [20, 13]),
    "bert_tokens": ("Bert ForTokenClassification", dict(bert, id2label=names("O", "B-PER", "I-PER", "B-LOC", "I-LOC")), 2, 21),
    "bert_tokens_padded": ("Bert ForTokenClassification", dict(bert, num_hidden_layers=3, hidden_act="gelu_new", num_labels=3), 2, 20, [20, 13]),
    "gemma2": ("Gemma2", dict(gemma2), 2, 21),
    "gemma2_uneven": ("Gemma2", dict(gemma2, vocab_size=31, hidden_size=12, num_key_value_heads=1, head_dim=10, sliding_window=3, attention_bias=True,
                                     layer_types=["full_attention", "sliding_attention", "sliding_attention"], tie_word_embeddings=False,
                                     final_logit_softcapping=None, hidden_activation="silu"), 2, 19),
    "gemma3": ("Gemma3", dict(gemma3, num_hidden_layers=4, layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                                                        "sliding_attention"]), 2, 21),
    "gemma3_uneven": ("Gemma3", dict(gemma3, vocab_size=31, hidden_size=12, num_key_value_heads=1, head_dim=10, sliding_window=3, num_hidden_layers=3,
                                     sliding_window_pattern=2, final_logit_softcapping=3.0, tie_word_embeddings=False), 2, 19),
    "modernbert": ("ModernBert", dict(modernbert), 2, 21),
    "modernbert_biases": ("ModernBert", dict(modernbert, num_hidden_layers=3, attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True,
                                             vocab_size=31, hidden_activation="gelu_new", classifier_activation="gelu_new", local_attention=11,
                                             layer_types=["sliding_attention", "full_attention", "sliding_attention"]), 2, 20, [20, 13]),
    "modernbert_texts": ("ModernBert ForSequenceClassification", dict(modernbert, classifier_pooling="mean", id2label=names("bad", "middling", "good")), 2, 21),
    "modernbert_texts_padded": ("ModernBert ForSequenceClassification", dict(modernbert, num_hidden_layers=2, classifier_bias=True), 2, 20, [20, 13]),
    "modernbert_means_padded": ("ModernBert ForSequenceClassification", dict(modernbert, num_hidden_layers=2, norm_bias=True, classifier_pooling="mean"), 2, 20,
                                [20, 13]),
    "modernbert_tokens": ("ModernBert ForTokenClassification", dict(modernbert, num_labels=3), 2, 20, [20, 13]),
    "gpt_oss": ("GptOss", dict(gpt_oss, head_dim=16), 2, 33),
    "gpt_oss_uneven": ("GptOss", dict(gpt_oss, vocab_size=31, hidden_size=12, num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=3,
                                      num_attention_heads=8, num_key_value_heads=4, head_dim=8, attention_bias=False, sliding_window=3,
                                      layer_types=["full_attention", "sliding_attention", "full_attention"],
                                      rope_parameters=dict(rope_type="default", rope_theta=1e4)), 2, 19),
    "llama_dynamic": ("Llama", dict(decoder, max_position_embeddings=16, rope_parameters=dict(rope_type="dynamic", factor=3.0, rope_theta=50.0)), 2, 33),
    "t5": ("T5", dict(t5), 2, 21),
    "t5_gated": ("T5", dict(t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=3, d_kv=4, vocab_size=31), 2, 20, [20, 13]),
    "deepseek_v3_mtp": ("DeepseekV3", dict(deepseek_v3, num_nextn_predict_layers=1), 2, 21),
    "deepseek_v3_mtp_deep": ("DeepseekV3", dict(deepseek_v3, num_nextn_predict_layers=3, num_hidden_layers=2, vocab_size=31, q_lora_rank=None,
                                                tie_word_embeddings=True), 2, 20),
    "bert_pretraining": ("Bert ForPreTraining", dict(bert), 2, 21),
    "bert_pretraining_padded": ("Bert ForPreTraining", dict(bert, num_hidden_layers=1, type_vocab_size=3, vocab_size=31), 3, 20, [20, 13, 17]),
    "gpt_oss_blocks": ("GptOss", dict(gpt_oss, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_local_experts=3, head_dim=8,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e4)), 2, 19),
    "t5_pairs": ("T5", dict(t5, num_layers=1, num_decoder_layers=2, d_ff=12), 4, 12, [12, 5, 1, 9], [13, 4, 1, 7]),
    "llama_dynamic_padded": ("Llama", dict(decoder, vocab_size=31, max_position_embeddings=8, rope_parameters=dict(
        rope_type="dynamic", factor=2.5, rope_theta=30.0)), 4, 20, [20, 13, 9, 5]),
    "deepseek_v3_dynamic": ("DeepseekV3", dict(deepseek_v3, max_position_embeddings=7, num_hidden_layers=2, rope_parameters=dict(
        rope_type="dynamic", factor=4.0, rope_theta=30.0)), 3, 20, [20, 13, 7]),
    "mamba2_groups": ("Mamba2", dict(mamba2, n_groups=4, use_bias=True), 2, 21),
    "gemma3_yarn": ("Gemma3", dict(gemma3, vocab_size=31, hidden_size=12, num_key_value_heads=1, head_dim=16, num_hidden_layers=3, sliding_window_pattern=2, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5, rope_theta=50.0),
        sliding_attention=dict(rope_type="default", rope_theta=100.0), truncate=False)), 2, 33),
    "t5_tied_unscaled": ("T5", dict(t5, feed_forward_proj="gated-gelu", scale_decoder_outputs=False, vocab_size=31), 2, 14),
    "bamba_groups": ("Bamba", dict(bamba, mamba_n_groups=4), 2, 21),
    "qwen3_next": ("Qwen3Next", dict(qwen3_next), 2, 24),
    "qwen3_next_uneven": ("Qwen3Next", dict(qwen3_next, vocab_size=31, num_key_value_heads=4, linear_num_value_heads=2, linear_num_key_heads=1,
                                            linear_value_head_dim=8, linear_conv_kernel_dim=4, num_experts=4, norm_topk_prob=False,
                                            mlp_only_layers=[], tie_word_embeddings=True,
                                            layer_types=["full_attention", "linear_attention", "linear_attention"]), 2, 70),
    "qwen3_5": ("Qwen3_5", dict(qwen3_5), 2, 21),
    "llama_ternary": ("Llama", dict(decoder, quantization_config=online_ternary), 2, 21),
    "qwen3_ternary": ("Qwen3", dict(decoder, vocab_size=31, head_dim=8, attention_bias=True, quantization_config=online_ternary), 2, 17),
    "granite_hybrid": ("GraniteMoeHybrid", dict(granite), 2, 21),
    "granite_hybrid_dense": ("GraniteMoeHybrid", dict(granite, vocab_size=31, num_local_experts=0, num_experts_per_tok=0, mamba_n_groups=2, mamba_proj_bias=True,
                                                      attention_bias=True, position_embedding_type="rope", tie_word_embeddings=False), 2, 19),
    "nemotron_3": ("NemotronH", dict(nemotron_3), 2, 21),
    "phi3": ("Phi3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, sliding_window=7), 2, 21),
    "phi3_partial": ("Phi3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, vocab_size=31, num_attention_heads=2, num_key_value_heads=1,
                                  rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)), 2, 17),
    "smollm3": ("SmolLM3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, no_rope_layers=[1, 0], tie_word_embeddings=False), 2, 21),
    "smollm3_window": ("SmolLM3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, vocab_size=31, no_rope_layer_interval=2, use_sliding_window=True,
                                       sliding_window=6, attention_bias=True, mlp_bias=True, num_key_value_heads=4, tie_word_embeddings=False), 2, 17),
    "lfm2": ("Lfm2", dict(lfm2), 2, 21),
    "lfm2_biases": ("Lfm2", dict(lfm2, vocab_size=31, num_hidden_layers=2, conv_bias=True, conv_L_cache=4, layer_types=["conv", "conv"],
                                 block_auto_adjust_ff_dim=True, block_multiple_of=8, tie_word_embeddings=False), 2, 17),
    "nemotron_3_latent": ("NemotronH", dict(nemotron_3, moe_latent_size=10, vocab_size=31, n_group=1, topk_group=1), 2, 19),
    "olmo2": ("Olmo2", {k: x for k, x in decoder.items() if k != "head_dim"}, 2, 21),
    "olmo3": ("Olmo3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, num_hidden_layers=4, sliding_window=6, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5, rope_theta=50.0),
        sliding_attention=dict(rope_type="default", rope_theta=50.0))), 2, 33),
    "olmo3_biases": ("Olmo3", dict({k: x for k, x in decoder.items() if k != "head_dim"}, vocab_size=31, num_attention_heads=8, num_key_value_heads=4, attention_bias=True,
                                   sliding_window=4, layer_types=["full_attention", "sliding_attention"], rope_parameters=dict(
                                       full_attention=dict(rope_type="default", rope_theta=1e4), sliding_attention=dict(rope_type="default", rope_theta=100.0))), 2, 19),
    "glm4_moe": ("Glm4Moe", dict(glm4_moe), 2, 21),
    "glm4_moe_biases": ("Glm4Moe", dict(glm4_moe, vocab_size=31, attention_bias=True, use_qk_norm=True, num_key_value_heads=4, first_k_dense_replace=0,
                                        num_hidden_layers=2, n_group=1, topk_group=1, norm_topk_prob=False,
                                        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0)), 2, 17),
    "glm4_moe_mtp": ("Glm4Moe", dict(glm4_moe, num_nextn_predict_layers=1, n_shared_experts=2), 2, 20),
    "llava": ("Llava ForConditionalGeneration", dict(llava, vision_config=clip, vision_feature_layer=-2, vision_feature_select_strategy="default"), 2, 21),
    "llava_siglip": ("Llava ForConditionalGeneration", dict(llava, vision_config=siglip, vision_feature_layer=-1, vision_feature_select_strategy="full",
                                                            projector_hidden_act="relu", multimodal_projector_bias=False), 2, 17),
    "llava_falcon_h1": ("Llava ForConditionalGeneration", dict(llava, text_config=behind_tower, vision_config=dict(clip, hidden_act="gelu"),
                                                               vision_feature_layer=2, vision_feature_select_strategy="full", image_seq_length=5), 2, 24),
}
images_of = [2, 1]  # images of each sequence of a model with a vision tower
heads = {"GPT2": "LMHeadModel", "Bert": "ForMaskedLM", "ModernBert": "ForMaskedLM", "T5": "ForConditionalGeneration"}  # head class of cases that name none
configs = {"Gemma3": "Gemma3TextConfig", "Qwen3_5": "Qwen3_5TextConfig"}
written = 13  # target tokens of encoder-decoder models
encoders = {"Bert", "ModernBert"}  # bidirectional models without generation; a third of their tokens have labels, and some sequences are padded at the end


further = 0.3  # weight of the mean multi-token prediction (MTP) loss
with_copies = {"deepseek_v3_mtp"}  # folders that repeat embedding and head in each MTP module, as the published model does
in_blocks = {"gpt_oss_blocks"}  # folders with expert weights in MXFP4 blocks, as the published models
by_length = {"llama_dynamic", "llama_dynamic_padded", "deepseek_v3_dynamic"}  # dynamic RoPE: one sequence per run, by a model that has seen no other
published_quantization = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
                          "quant_method": "mxfp4"}


def family_of(name):
    """First and last part of the name of the model class, for example Llama and ForCausalLM."""
    family, _, head = cases[name][0].partition(" ")
    return family, head or heads.get(family, "ForCausalLM")


def config_of(name):
    family = family_of(name)[0]
    config = getattr(transformers, configs.get(family, family + "Config"))(**cases[name][1])
    config._attn_implementation = config._experts_implementation = "eager"
    return config


def class_of(name):
    return getattr(transformers, "".join(family_of(name)))


def made(name):
    """The model, with its MTP modules appended to the layers, because transformers' class has none."""
    config = config_of(name)
    model = class_of(name)(config)
    if "quantization_config" in cases[name][1]:
        bitnet.replace_with_bitnet_linear(model, ["lm_head"], transformers.BitNetQuantConfig(**cases[name][1]["quantization_config"]))
    for _ in range(cases[name][1].get("num_nextn_predict_layers", 0)):
        layers = model.model.layers
        layer, norm = type(layers[0]), lambda: type(model.model.norm)(config.hidden_size, eps=config.rms_norm_eps)
        module = layer(config, len(layers))
        module.enorm, module.hnorm, module.shared_head = norm(), norm(), torch.nn.Module()
        module.eh_proj, module.shared_head.norm = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False), norm()
        layers.append(module)
    return model


def told_ahead(model, h, ids):
    """The losses of DeepSeek-V3's MTP modules (arXiv 2412.19437, section 2.2). The k-th module reads the hidden state h of the previous module
    and the embedding of the token at distance k, and predicts the token after that. In published folders, eh_proj has the embedding first."""
    decoder, losses = model.model, []
    for k, module in enumerate(decoder.layers[model.config.num_hidden_layers:], 1):
        h, ahead = h[:, :-1], ids[:, k:]
        x = module.eh_proj(torch.cat([module.enorm(decoder.embed_tokens(ahead)), module.hnorm(h)], dim=-1))
        length = x.shape[1]
        mask = torch.full((1, 1, length, length), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
        positions = torch.arange(length)[None]
        h = module(x, position_embeddings=decoder.rotary_emb(x, positions), attention_mask=mask, position_ids=positions, use_cache=False)
        logits = model.lm_head(module.shared_head.norm(h))[:, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, k + 1:].flatten()))
    return losses


def image_parts(name, ids, random):
    """Bytes of images, and the token ids with the rows of each image in one run, at places that leave text before, between and after."""
    settings = cases[name][1]
    vision, rows = settings["vision_config"], settings["image_seq_length"]
    ids = torch.where(ids == settings["image_token_index"], 3, ids)
    for sequence, count in enumerate(images_of):
        for i in range(count):
            ids[sequence, 1 + i * (rows + 1):1 + i * (rows + 1) + rows] = settings["image_token_index"]
    side = vision["image_size"]
    return ids, torch.randint(0, 256, (sum(images_of), 3, side, side), generator=random, dtype=torch.uint8)


def pixel_values(name, pixels):
    mean, std = (torch.tensor(x, dtype=torch.float64)[:, None, None] for x in statistics[cases[name][1]["vision_config"]["model_type"]])
    return ((pixels.double() / 255 - mean) / std).to(torch.get_default_dtype())


def apart(name):
    """True if the output head is untied in a T5 model, whose class ties it when it is created, but not when it is loaded."""
    return family_of(name)[0] == "T5" and cases[name][1].get("tie_word_embeddings") is False


def drawn(name, seed):
    """Random float32 weights by name."""
    random = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        model = made(name)
    weights = {}
    scaled = cases[name][0].startswith("Gemma")  # Gemma scales the embedding by sqrt(width), and norms by 1 + weight
    offset = scaled or cases[name][0].startswith(("Qwen3Next", "Qwen3_5"))  # norms scale by 1 + weight
    learned = list(model.named_parameters())  # tied weights occur once
    if apart(name):
        learned.append(("lm_head.weight", model.shared.weight))
    for weight, meta in learned + [(name, x) for name, x in model.named_buffers() if name.endswith("e_score_correction_bias")]:
        draw = torch.rand(meta.shape, generator=random) * 2 - 1
        if ("norm" in weight.lower() or ".ln_" in weight) and weight.endswith("weight") or weight.endswith(".D"):
            value = 0.4 * draw + (0 if offset and not weight.endswith("linear_attn.norm.weight") else 1)
        elif weight.endswith("A_log"):
            value = 1.5 * draw
        elif weight.endswith("dt_bias"):
            value = draw - 1
        elif "conv1d.weight" in weight:
            value = draw
        elif "relative_attention_bias" in weight:
            value = 3 * draw
        elif weight.endswith("bias"):
            value = 0.3 * draw
        elif "embed" in weight or weight.startswith("shared") or ".wte." in weight or ".wpe." in weight:
            value = 1.7 * draw / (math.sqrt(meta.shape[-1]) if scaled else 1)
        else:
            value = 1.7 * draw / math.sqrt(meta.shape[-1]) * \
                (2 if any(part in weight for part in ("out_proj", "o_proj", "down_proj")) else 4 if ".o.weight" in weight or ".wo." in weight else 1)
        weights[weight] = value.float().contiguous()
    return weights


def drawn_blocks(weights, seed):
    """Random MXFP4 blocks and scales of all expert weights, whose values replace the weights. Some blocks have only small values, one only zeros."""
    random, blocks = torch.Generator().manual_seed(seed + 3000), {}
    for name, x in weights.items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, columns, rows = x.shape
        codes = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=random, dtype=torch.uint8)
        scales = torch.randint(120, 124, codes.shape[:-1], generator=random, dtype=torch.uint8)
        codes[:, ::5] &= 0b10111011
        codes[0, 1, 0] = 0
        blocks[name + "_blocks"], blocks[name + "_scales"] = codes, scales
        weights[name] = mxfp4.convert_moe_packed_tensors(codes, scales, dtype=torch.float32)
    return blocks


def store_blocks(folder, blocks):
    file = folder / "model.safetensors"
    tensors = {name: x for name, x in safetensors.torch.load_file(file).items() if name + "_blocks" not in blocks}
    safetensors.torch.save_file({**tensors, **blocks}, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": published_quantization}, indent=2, sort_keys=True) + "\n")


def model_of(name, weights):
    model = made(name)
    if apart(name):
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = {"lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight", "decoder.weight"}
    assert not unexpected and set(missing) <= tied, (missing, unexpected)
    if not apart(name):
        model.tie_weights()
    return model.eval()


def parts_of_pretraining(model, out, labels, order):
    """As outcome, for BERT pretraining, whose loss is the sum of the MLM and the next-sentence loss."""
    out.loss.backward()
    tell = torch.nn.functional.cross_entropy
    losses = torch.stack([tell(out.prediction_logits.flatten(0, 1), labels.flatten()), tell(out.seq_relationship_logits, order)]).detach()
    assert torch.isclose(losses.sum(), out.loss, rtol=1e-6, atol=0), (losses, out.loss)
    return out.prediction_logits.detach(), losses, {name: p.grad for name, p in model.named_parameters()}


def outcome(model, ids, labels, **more):
    """Logits, losses and gradients. MTP losses follow the main loss and contribute to the gradients."""
    model.zero_grad()
    reads = []
    norm = model.model.norm.register_forward_pre_hook(lambda _, inputs: reads.append(inputs[0])) if hasattr(getattr(model, "model", None), "norm") else None
    out = model(input_ids=ids, labels=labels, **more)
    if "next_sentence_label" in more:
        return parts_of_pretraining(model, out, labels, more["next_sentence_label"])
    ahead = told_ahead(model, reads[0], ids) if hasattr(model.config, "num_nextn_predict_layers") and reads else []
    (out.loss + further * sum(ahead) / len(ahead) if ahead else out.loss).backward()
    if norm:
        norm.remove()
    return out.logits.detach(), torch.stack([out.loss, *ahead]).detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def outcome_of_each(name, weights, ids, labels, attention_mask=None, **more):
    """As outcome, one sequence at a time without its padding, because transformers scales dynamic RoPE by the longest one that a model has seen."""
    lengths = attention_mask.sum(1).tolist() if attention_mask is not None else [ids.shape[1]] * len(ids)
    logits, losses, gradients, targets = None, 0, {}, sum(lengths) - len(lengths)
    for b, length in enumerate(lengths):
        one, loss, of_one = outcome(model_of(name, weights), ids[b:b + 1, :length], labels[b:b + 1, :length], **more)
        share = (length - 1) / targets
        logits = one.new_zeros((*ids.shape, one.shape[-1])) if logits is None else logits
        logits[b, :length] = one[0]
        losses = losses + share * loss
        for weight, g in of_one.items():
            gradients[weight] = gradients.get(weight, 0) + share * g
    return logits, losses, gradients


def outcome_of(name, weights, ids, labels, **more):
    return outcome_of_each(name, weights, ids, labels, **more) if name in by_length else outcome(model_of(name, weights), ids, labels, **more)


def stored(family, weights):
    """Weights under their names in a file: one matrix per expert, where the class stores all experts in one tensor."""
    parts = {}
    for name, x in weights.items():
        block, _, part = name.partition(".experts.")
        gate, up, down = ("w1", "w3", "w2") if family == "Mixtral" else ("gate_proj", "up_proj", "down_proj")
        if family == "Mixtral":
            block = block.replace(".mlp", ".block_sparse_moe")
            name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
        if family == "GraniteMoeHybrid":
            for ours, theirs in ((".experts.gate_up_proj", ".input_linear.weight"), (".experts.down_proj", ".output_linear.weight"),
                                 (".router.weight", ".router.layer.weight")):
                name = name.replace("block_sparse_moe" + ours, "block_sparse_moe" + theirs)
        if family in ("GptOss", "GraniteMoeHybrid"):
            parts[name] = x
        elif part == "gate_up_proj":
            for e, both in enumerate(x):
                parts[f"{block}.experts.{e}.{gate}.weight"], parts[f"{block}.experts.{e}.{up}.weight"] = both.chunk(2)
        elif part in ("up_proj", "down_proj"):
            parts.update({f"{block}.experts.{e}.{up if part == 'up_proj' else down}.weight": matrix for e, matrix in enumerate(x)})
        else:
            parts[name] = x
    if family == "Llava":
        renamed = {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head.", "model.": ""}
        begin_of = lambda name: next(begin for begin in renamed if name.startswith(begin))
        return {renamed[begin_of(name)] + name.removeprefix(begin_of(name)): x for name, x in parts.items()}
    return {"backbone" + name.removeprefix("model") if family == "NemotronH" and name.startswith("model.") else name: x for name, x in parts.items()}


def greedy_of_source(model, source):
    """As falcon_h1.greedy, for the output of an encoder-decoder model."""
    text, margin = torch.tensor([model.config.decoder_start_token_id]), math.inf
    for _ in range(falcon_h1.new_tokens):
        logits = model(input_ids=source[None], decoder_input_ids=text[None], use_cache=False).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        margin = min(margin, (first - second) / logits.abs().max().item())
        text = torch.cat([text, logits.argmax()[None]])
    return text[1:], margin


def greedy_with_cache(model, prompt):
    """As falcon_h1.greedy, with a KV cache: a key keeps the rotation of the length at which it was computed."""
    decoder = model.model
    decoder.rotary_emb = type(decoder.rotary_emb)(model.config)
    text, margin, read, cache = prompt.clone(), math.inf, prompt, None
    for _ in range(falcon_h1.new_tokens):
        out = model(input_ids=read[None], past_key_values=cache, use_cache=True)
        logits, cache = out.logits[0, -1], out.past_key_values
        first, second = logits.topk(2).values.tolist()
        margin = min(margin, (first - second) / logits.abs().max().item())
        read = logits.argmax()[None]
        text = torch.cat([text, read])
    decoder.rotary_emb = type(decoder.rotary_emb)(model.config)
    assert torch.equal(falcon_h1.generated(model, prompt), text[len(prompt):])
    return text[len(prompt):], margin


def greedy_of(name, model):
    return greedy_of_source if model.config.is_encoder_decoder else greedy_with_cache if name in by_length else falcon_h1.greedy


def text_of(name, model, vocabulary, seed):
    for attempt in range(200):
        random = torch.Generator().manual_seed(seed + 2000 + attempt)
        prompt = torch.randint(3, vocabulary, (11,), generator=random)
        chosen, margin = greedy_of(name, model)(model, prompt)
        if margin > 2e-4 and len(set(chosen[-24:].tolist())) >= 6:
            return prompt, chosen, margin
    raise SystemExit("no prompt has a well-determined and varied continuation")


def modules_of(name, module):
    """The modules whose code a model runs: that of its class, and those of its text and its tower."""
    settings = cases[name][1]
    if "text_config" not in settings:
        return [module]
    of_text = type(transformers.AutoModel.from_config(config_of(name).text_config)).__module__
    return [module, sys.modules[of_text], modeling_clip, modeling_siglip]


def write_case(name, seed):
    _, settings, sequences, length, *lengths = cases[name]
    family, head = family_of(name)
    vocabulary = settings.get("text_config", settings)["vocab_size"]
    module = sys.modules[class_of(name).__module__]
    weights = drawn(name, seed)
    blocks = drawn_blocks(weights, seed) if name in in_blocks else {}
    random = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(3, vocabulary, (sequences, length), generator=random)
    labels, more = ids, dict(use_cache=False)
    expected = {"input_ids": ids}
    if family in encoders:
        classes = ids % config_of(name).num_labels
        found = classes if head == "ForTokenClassification" else ids.roll(1, 1)
        labels, more = torch.where(torch.rand(ids.shape, generator=random) < 0.34, found, torch.full_like(ids, -100)), {}
    if lengths:
        more["attention_mask"] = expected["attention_mask"] = (torch.arange(length) < torch.tensor(lengths[0])[:, None]).long()
    if lengths and family in encoders:
        labels = torch.where(more["attention_mask"] == 1, labels, torch.full_like(labels, -100))
    if head == "ForSequenceClassification":
        labels = classes[:, 0]
    if head == "ForPreTraining":
        more["token_type_ids"] = expected["token_type_ids"] = (torch.arange(length) >= torch.randint(3, length - 8, (sequences, 1), generator=random)).long()
        more["next_sentence_label"] = expected["next_sentence_label"] = torch.arange(sequences) % 2
    if family == "T5":
        labels = torch.randint(3, vocabulary, (sequences, written), generator=random)
        if len(lengths) > 1:  # encoder input and target both end with the end-of-text token
            last, first_padding = torch.tensor(lengths[1])[:, None], torch.tensor(lengths[0])[:, None]
            ids[:] = torch.where(torch.arange(length) == first_padding - 1, settings["eos_token_id"], ids * more["attention_mask"])
            at = torch.arange(written)
            labels = torch.where(at == last - 1, settings["eos_token_id"], torch.where(at < last, labels, -100))
        else:
            labels[0, 3] = -100
    expected["labels"] = labels.clone()
    further = lambda: {}
    if family == "Llava":
        ids, pixels = image_parts(name, ids, random)
        labels = torch.where(ids == settings["image_token_index"], -100, ids)
        further = lambda: dict(pixel_values=pixel_values(name, pixels))
        expected.update(input_ids=ids, labels=labels.clone(), pixels=pixels, images=torch.tensor(images_of))
    results = {"fp32": outcome_of(name, weights, ids, labels, **more, **further())}
    with falcon_h1.widened(*modules_of(name, module), rotary):
        results["fp64"] = outcome_of(name, weights, ids, labels, **more, **further())
    more.update(further())
    for precision, (logits, loss, gradients) in results.items():
        wanted = {"fp32": torch.float32, "fp64": torch.float64}[precision]
        assert all(x.dtype == wanted for x in (logits, loss, *gradients.values())), precision
        expected[f"logits.{precision}"], expected[f"loss.{precision}"] = logits, loss
        for weight, g in stored(family, gradients).items():
            along_blocks = weight + "_blocks" in blocks
            expected[f"gradient.{precision}.{weight}" + "_blocks" * along_blocks] = g.transpose(1, 2) if along_blocks else g
    model = model_of(name, weights)
    margin = math.nan
    if family not in encoders:
        prompt, chosen, margin = text_of(name, model, vocabulary, seed)
        expected.update(prompt=prompt, generated=chosen, margin=torch.tensor([margin], dtype=torch.float64))

    folder = here / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in with_copies:
        file = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(file)
        for k in range(model.config.num_hidden_layers, len(model.model.layers)):
            tensors[f"model.layers.{k}.embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
            tensors[f"model.layers.{k}.shared_head.head.weight"] = weights["lm_head.weight"].clone()
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    if blocks:
        store_blocks(folder, blocks)
    safetensors.torch.save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors", metadata={
        "torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]})
    for file in folder.iterdir():
        file.chmod(0o644)
    by_numbers = dict(quantization_config=transformers.Mxfp4Config(dequantize=True)) if blocks else {}
    reread = class_of(name).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **by_numbers).eval()
    reread.config._experts_implementation = "eager"
    seen, alike = (1, dict(use_cache=False)) if name in by_length else (sequences, more)  # the first sequence has no padding
    same = (outcome(reread, ids[:seen], labels[:seen], **alike)[0] - results["fp32"][0][:seen]).abs().max()
    assert same <= 1e-6 * results["fp32"][0].abs().max(), "from_pretrained loads a different model"  # rounding may depend on the alignment of weights
    gap = (results["fp32"][0].double() - results["fp64"][0]).abs().max() / results["fp64"][0].abs().max()
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {results['fp64'][1][0].item():.6f}, "
          f"logits to {results['fp64'][0].abs().max().item():.2f}, fp32 off by {gap:.1e}, margin {margin:.1e}", flush=True)


def main():
    torch.set_num_threads(1)
    torch._dynamo.config.disable = True  # the quantizers of ternary layers are compiled otherwise
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    asked = sys.argv[1:] or list(cases)
    for seed, name in enumerate(cases):
        if name in asked:
            write_case(name, 37 * seed + 5)


if __name__ == "__main__":
    main()
