// SPDX-License-Identifier: BSD-3-Clause
// Names under which users of Megatron-LM, Hugging Face, DeepSpeed, nanoGPT and torchtitan know our deck keys. Names are in
// lower case, with underscores for dashes. A name with a dot includes its section. renamed_keys.hpp defines the columns.
#pragma once

#include "src/deck/renamed_keys.hpp"

namespace gyr {

inline constexpr ForeignKey foreign_key_table[] = {
    // Batch and length.
    {"max_steps train_iters max_iters num_iterations total_steps total_training_steps training_steps "
     "num_train_steps num_training_steps max_train_steps num_steps train_steps iterations iters trainer.max_steps",
     "train.steps", ""},
    {"epochs epoch num_epochs max_epochs train_epochs num_train_epochs", "train.steps",
     "the length of a run is train.steps; one epoch has (tokens of the corpus) / (train.global_batch_size x "
     "train.seq_length) steps, and gyrfalcon data info prints the tokens"},
    {"train_samples max_samples", "train.steps", "the length of a run is train.steps: write the samples divided by train.global_batch_size"},
    {"train_tokens max_tokens total_tokens num_tokens", "train.steps",
     "the length of a run is train.steps: write the tokens divided by (train.global_batch_size x train.seq_length)"},
    {"train_batch_size total_batch_size effective_batch_size gbs", "train.global_batch_size", ""},
    {"per_device_train_batch_size per_gpu_train_batch_size per_device_batch_size train_micro_batch_size_per_gpu "
     "local_batch_size mbs device_batch_size",
     "train.micro_batch_size", ""},
    {"batch_size batch", "train.global_batch_size",
     "train.global_batch_size is the batch of a step over all ranks, train.micro_batch_size that of one forward "
     "pass on one rank, both in sequences"},
    {"gradient_accumulation_steps gradient_accumulation grad_accum_steps grad_accum accumulate_grad_batches "
     "accumulation_steps update_freq num_micro_batches micro_batches num_microbatches",
     "train.global_batch_size",
     "the gradient accumulation steps are train.global_batch_size / (train.micro_batch_size x data-parallel "
     "ranks): set these two keys"},
    {"rampup_batch_size batch_size_rampup", "train.ramp",
     "it is called train.ramp here, a list of TOKENS:SEQUENCES: write train.ramp='[\"0:16\", \"1e9:64\"]'"},
    {"block_size seq_len sequence_length sequence_len max_seq_len max_seq_length max_length max_sequence_length "
     "context_length context_size n_ctx encoder_seq_length",
     "train.seq_length", ""},
    {"max_position_embeddings n_positions", "train.seq_length",
     "train.seq_length is the length of the sequences; model.positions counts learned absolute positions, for "
     "models without RoPE"},
    {"dtype torch_dtype params_dtype mixed_precision mixed_precision_param training_precision compute_dtype", "train.precision", ""},
    {"bf16 bf16.enabled use_bf16", "train.precision", "write train.precision=bf16"},
    {"fp16 fp16.enabled half fp8 fp8_format amp", "train.precision", "mixed precision is available with bf16 only: write train.precision=bf16"},
    {"eval_interval eval_steps eval_freq eval_frequency val_interval val_check_interval val_every test_interval "
     "validation.freq",
     "train.eval_every", ""},
    {"eval_iters limit_val_batches val_batches val_steps validation.steps", "train.eval_batches", ""},
    {"eval_strategy evaluation_strategy do_eval", "train.eval_every", "validation runs every train.eval_every steps: write train.eval_every=100"},
    {"log_interval logging_steps log_freq log_every_n_steps steps_per_print print_freq logging_interval", "train.log_every", ""},
    {"random_seed manual_seed global_seed", "train.seed", ""},
    {"time_limit max_time job_time exit_duration_in_mins max_train_time", "train.walltime", ""},
    {"model_name_or_path pretrained_model_name_or_path model_path pretrained pretrained_model "
     "pretrained_checkpoint base_model finetune_from initial_load_path",
     "train.init_from", ""},
    {"load resume resume_from resume_from_checkpoint load_checkpoint auto_resume", "train.init_from",
     "`train --resume` continues the run in output.folder; train.init_from=DIR starts a new run from the weights "
     "in DIR"},
    {"task loss_type training_stage", "train.objective", ""},
    {"label_smoothing_factor", "train.label_smoothing", ""},
    {"z_loss_coef z_loss_weight", "train.z_loss", ""},
    {"mlm_probability", "train.mlm.share", ""},
    {"dpo_beta", "train.preference.beta", ""},
    {"num_nextn_predict_layers mtp_num_layers", "train.mtp.depths", "it is called train.mtp.depths here, and applies with train.objective=mtp"},
    {"mtp_loss_scaling_factor", "train.mtp.weight", "it is called train.mtp.weight here, and applies with train.objective=mtp"},
    // Optimizer.
    {"learning_rate max_lr peak_lr base_lr max_learning_rate warmup_max_lr init_lr", "optimizer.lr", ""},
    {"min_learning_rate lr_min end_lr final_lr eta_min", "optimizer.min_lr", ""},
    {"min_lr_ratio min_lr_factor min_lr_rate lr_min_ratio", "optimizer.min_lr",
     "optimizer.min_lr is the final rate itself: write the ratio multiplied by optimizer.lr"},
    {"warmup_iters warmup_num_steps num_warmup_steps lr_warmup_iters lr_warmup_steps warmup_steps_count warmup", "optimizer.warmup_steps", ""},
    {"warmup_ratio warmup_fraction lr_warmup_fraction", "optimizer.warmup_steps",
     "the warm-up is given in steps: write optimizer.warmup_steps, the ratio multiplied by train.steps"},
    {"lr_warmup_samples", "optimizer.warmup_steps", "write the samples as optimizer.warmup_steps, and set optimizer.schedule_unit=samples"},
    {"lr_decay_iters lr_decay_steps decay_iters total_num_steps t_max", "optimizer.decay_steps", ""},
    {"lr_decay_samples", "optimizer.decay_steps", "write the samples as optimizer.decay_steps, and set optimizer.schedule_unit=samples"},
    {"lr_warmup_init warmup_init_lr warmup_min_lr", "optimizer.warmup_lr", ""},
    {"start_weight_decay", "optimizer.weight_decay_start", ""},
    {"end_weight_decay", "optimizer.weight_decay", ""},
    {"weight_decay_incr_style", "optimizer.weight_decay_schedule", ""},
    {"lr_decay_style lr_scheduler_type lr_scheduler lr_schedule lr_schedule_type decay_type scheduler "
     "scheduler.type scheduler_type",
     "optimizer.schedule", ""},
    {"decay_lr", "optimizer.schedule", "write optimizer.schedule=cosine to decay the learning rate, or constant"},
    {"lr_wsd_decay_iters", "optimizer.wsd_decay", ""},
    {"lr_wsd_decay_style", "optimizer.wsd_shape", ""},
    {"wd weight_decay_rate", "optimizer.weight_decay", ""},
    {"adam_beta1 beta_1", "optimizer.beta1", ""},
    {"adam_beta2 beta_2", "optimizer.beta2", ""},
    {"betas adam_betas", "optimizer.beta1", "write optimizer.beta1 and optimizer.beta2, one value each"},
    {"adam_epsilon adam_eps eps", "optimizer.epsilon", ""},
    {"grad_clip clip_grad_norm max_grad_norm gradient_clipping gradient_clip gradient_clip_val grad_norm_clip "
     "clip_norm max_norm",
     "optimizer.clip_grad", ""},
    {"optim optimizer_type optimizer_name optimizer optimizer.type optimizer.optimizer", "optimizer.name", ""},
    {"use_adamw", "optimizer.name", "write optimizer.name=adamw, which is the default"},
    {"sgd_momentum", "optimizer.sgd.momentum", ""},
    {"freeze freeze_layers frozen_layers", "optimizer.frozen",
     "it is called optimizer.frozen here, a list of patterns of weight names: write "
     "optimizer.frozen='[\"model.layers.0.*\"]'"},
    // Model.
    {"num_layers num_hidden_layers n_layer n_layers num_layer num_blocks", "model.pattern",
     "model.pattern lists the layer types: write model.pattern=\"P x {}\" for {} Falcon-H1 layers, or \"*- x {}\" for "
     "{} transformer layers"},
    {"n_embd n_embed d_model dim embed_dim embedding_dim model_dim hidden_dim hidden", "model.hidden_size", ""},
    {"num_attention_heads n_head n_heads attention_heads", "model.attention.num_heads", ""},
    {"num_key_value_heads n_kv_heads n_kv_head num_query_groups kv_heads", "model.attention.num_kv_heads", ""},
    {"group_query_attention", "model.attention.num_kv_heads",
     "grouped-query attention has fewer key/value heads than query heads: write model.attention.num_kv_heads=2"},
    {"kv_channels attention_head_dim d_head", "model.attention.head_dim", ""},
    {"ffn_hidden_size ffn_dim d_ff n_inner mlp_dim feed_forward_size", "model.mlp.intermediate_size", ""},
    {"hidden_act hidden_activation activation_function", "model.mlp.activation", ""},
    {"swiglu", "model.mlp.gated", "SwiGLU is model.mlp.gated=true with model.mlp.activation=silu"},
    {"padded_vocab_size n_vocab vocabulary_size", "model.vocab_size", ""},
    {"make_vocab_size_divisible_by", "model.vocab_size", "write the padded size itself: model.vocab_size is not rounded up"},
    {"layer_norm_eps layernorm_epsilon layer_norm_epsilon norm_epsilon model.norm_eps rmsnorm_eps", "model.rms_norm_eps", ""},
    {"normalization norm_type", "model.norm", ""},
    {"initializer_range init_method_std", "model.init_std", ""},
    {"tie_embeddings tied_embeddings tie_weights weight_tying share_embeddings", "model.tie_word_embeddings", ""},
    {"untie_embeddings_and_output_weights", "model.tie_word_embeddings", "write model.tie_word_embeddings=false"},
    {"rotary_base rope_base rotary_emb_base", "model.attention.rope_theta", ""},
    {"rotary_percent rotary_pct partial_rotary_factor", "model.attention.rotary_fraction", ""},
    {"rope_type rope_scaling rope_scaling.type rope_scaling.rope_type", "model.attention.rope.type", ""},
    {"rope_scaling_factor rope_scaling.factor", "model.attention.rope.factor", ""},
    {"original_max_position_embeddings", "model.attention.rope.original_length", ""},
    {"attention_bias", "model.attention.bias", ""},
    {"add_qkv_bias", "model.attention.qkv_bias", ""},
    {"qk_layernorm use_qk_norm", "model.attention.qk_norm", ""},
    {"attn_logit_softcapping", "model.attention.soft_cap", ""},
    {"final_logit_softcapping", "model.lm_head_soft_cap", ""},
    {"sliding_window window_size attention_window", "model.window.size", ""},
    {"mlp_bias", "model.mlp.bias", ""},
    {"disable_bias_linear add_bias_linear", "model.mlp.bias", "the biases are model.attention.bias and model.mlp.bias: write true or false for each"},
    {"dropout", "model.dropout.residual",
     "model.dropout has one probability each for embedding, residual, attention and head: write "
     "model.dropout.residual={}"},
    {"hidden_dropout hidden_dropout_prob resid_pdrop resid_dropout", "model.dropout.residual", ""},
    {"attention_dropout attn_pdrop attn_dropout attention_probs_dropout_prob", "model.dropout.attention", ""},
    {"embd_pdrop embd_dropout", "model.dropout.embedding", ""},
    {"classifier_dropout", "model.dropout.head", ""},
    {"num_experts num_local_experts n_routed_experts moe_num_experts", "model.moe.experts", ""},
    {"num_experts_per_tok moe_router_topk moe_top_k num_experts_per_token", "model.moe.top_k", ""},
    {"moe_intermediate_size moe_ffn_hidden_size", "model.moe.intermediate_size", ""},
    {"moe_shared_expert_intermediate_size shared_expert_intermediate_size", "model.moe.shared_intermediate_size", ""},
    {"router_aux_loss_coef moe_aux_loss_coeff aux_loss_coef aux_loss_alpha", "model.moe.aux_loss", ""},
    {"router_z_loss_coef moe_z_loss_coeff", "model.moe.z_loss", ""},
    {"moe_expert_capacity_factor expert_capacity_factor", "model.moe.capacity_factor", ""},
    {"moe_token_drop_policy", "model.moe.token_drop_policy", ""},
    {"moe_router_score_function scoring_func", "model.moe.score", ""},
    {"norm_topk_prob", "model.moe.normalize_top_k", ""},
    {"routed_scaling_factor moe_router_topk_scaling_factor", "model.moe.routed_scale", ""},
    {"n_group moe_router_num_groups", "model.moe.groups", ""},
    {"topk_group moe_router_group_topk", "model.moe.top_groups", ""},
    {"moe_router_bias_update_rate", "model.moe.bias_update_rate", ""},
    {"q_lora_rank", "model.latent.q_rank", ""},
    {"kv_lora_rank", "model.latent.kv_rank", ""},
    {"qk_rope_head_dim", "model.latent.rope_dim", ""},
    {"qk_nope_head_dim", "model.latent.head_dim", ""},
    {"mamba_n_heads mamba_num_heads", "model.mamba.num_heads", ""},
    {"mamba_d_head mamba_head_dim", "model.mamba.head_dim", ""},
    {"mamba_n_groups mamba_num_groups n_groups ngroups", "model.mamba.num_groups", ""},
    {"mamba_d_state mamba_state_dim mamba_state_size d_state ssm_state_size", "model.mamba.state_size", ""},
    {"mamba_d_conv d_conv", "model.mamba.conv_kernel", ""},
    {"mamba_chunk_size", "model.mamba.chunk_size", ""},
    {"mamba_conv_bias use_conv_bias", "model.mamba.conv_bias", ""},
    {"hybrid_override_pattern hybrid_layer_pattern layers_block_type", "model.pattern", ""},
    {"hybrid_attention_ratio", "model.attention_ratio", ""},
    {"hybrid_mlp_ratio", "model.mlp_ratio", ""},
    {"lora_r lora_rank lora.r", "finetune.lora.rank", ""},
    {"lora_alpha", "finetune.lora.alpha", ""},
    {"target_modules lora_target_modules", "finetune.lora.targets", "it is called finetune.lora.targets here, a list: finetune.lora.targets=[{}]"},
    {"modules_to_save", "finetune.lora.also", ""},
    // Data.
    {"data_path data_paths data.path train_data_path train_data_prefix dataset_path dataset data_prefix "
     "train_file train_files dataset_name data_dir",
     "data.prefixes",
     "it is called data.prefixes here, a list of token files without .bin: write data.prefixes='[{}]'; gyrfalcon "
     "data build makes them from text"},
    {"tokenizer_name tokenizer_model tokenizer_path tokenizer_file tokenizer_name_or_path tokenizer_type "
     "vocab_file",
     "data.tokenizer", "it is called data.tokenizer here: write data.tokenizer=tokenizer.json, the path of such a file"},
    {"data_seed", "data.seed", ""},
    {"data_weights dataset_weights", "data.weights", ""},
    {"val_split validation_split validation_split_percentage train_split", "data.split",
     "data.split has the proportions of train, validation and test: write data.split=949,50,1"},
    {"shuffle shuffle_data", "data.order", ""},
    {"reset_attention_mask reset_position_ids", "data.documents", "attention and positions restart at each document with data.documents=separate"},
    // Parallel layout.
    {"tp tp_size tp_degree tensor_parallel tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size "
     "model_parallel_size mp_size autotp_size tensor_parallelism",
     "parallel.tensor", ""},
    {"pp pp_size pp_degree pipeline_parallel pipeline_parallel_size pipeline_parallel_degree "
     "pipeline_model_parallel_size pipe_parallel_size num_stages pipeline_parallelism",
     "parallel.pipeline", ""},
    {"cp cp_size cp_degree context_parallel context_parallel_size context_parallel_degree sequence_parallel_size "
     "sp_size ulysses_degree",
     "parallel.context", ""},
    {"ep ep_size ep_degree expert_parallel expert_parallel_size expert_parallel_degree expert_model_parallel_size", "parallel.expert", ""},
    {"dp dp_size dp_degree data_parallel data_parallel_size data_parallel_degree data_parallel_replicate_degree", "parallel.data", ""},
    {"data_parallel_shard_degree hsdp", "parallel.shard",
     "data-parallel ranks shard the weights with parallel.shard=weights, and their number is parallel.data"},
    {"sp sequence_parallel enable_sequence_parallel", "parallel.sequence", ""},
    {"vpp virtual_pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank num_model_chunks", "parallel.virtual_stages", ""},
    {"num_layers_per_virtual_pipeline_stage", "parallel.virtual_stages",
     "write parallel.virtual_stages, the layers of a pipeline rank divided by those of a virtual stage"},
    {"pipeline_parallel_schedule pipeline_schedule pp_schedule", "parallel.schedule", ""},
    {"cp_comm_type context_parallel_method", "parallel.context_mode", ""},
    {"zero zero_stage zero_optimization zero_optimization.stage ddp_type fsdp fsdp_sharding_strategy "
     "sharding_strategy data_parallel_sharding_strategy reshard_after_forward",
     "parallel.shard", ""},
    {"use_distributed_optimizer distributed_optimizer", "parallel.shard", "write parallel.shard=optimizer (ZeRO-1)"},
    {"use_fsdp use_torch_fsdp2", "parallel.shard", "write parallel.shard=weights (ZeRO-3, FSDP)"},
    {"grad_reduce_in_bf16", "parallel.reduce_dtype", "write parallel.reduce_dtype=bf16"},
    {"accumulate_allreduce_grads_in_fp32", "parallel.reduce_dtype", "write parallel.reduce_dtype=full, the default"},
    {"reduce_bucket_size allgather_bucket_size ddp_bucket_size bucket_cap_mb", "parallel.bucket",
     "it is called parallel.bucket here, in MiB: write parallel.bucket=32"},
    {"world_size num_gpus n_gpus gpus devices num_devices num_nodes nnodes nodes nproc_per_node num_processes ntasks", "parallel.data",
     "the launcher sets the number of ranks (mpiexec -n, srun -n): leave this key out"},
    {"gradient_checkpointing activation_checkpointing activation_checkpoint activation_checkpoint.mode "
     "checkpoint_activations recompute_activations recompute_granularity use_activation_checkpointing",
     "activation.recompute", ""},
    {"recompute_method recompute_num_layers selective_ac_option", "activation.recompute",
     "activation.recompute applies to all layers and activation.recompute_types to layer types: write "
     "activation.recompute=full"},
    {"offload_activations cpu_offloading", "activation.policy", "write activation.policy=swap to offload activations to host memory"},
    {"offload_optimizer offload_param offload_optimizer.device offload_param.device cpu_offload "
     "optimizer_cpu_offload",
     "parallel.shard",
     "weights and optimizer state stay on the device: parallel.shard=weights shards them over data-parallel "
     "ranks, activation.policy=swap offloads activations"},
    // Output.
    {"output_dir out_dir output.dir output.path output_path output_folder save save_dir save_path exp_dir run_dir "
     "results_dir dump_folder default_root_dir checkpoint_dir checkpoint_path checkpoint.folder checkpoint.dir "
     "checkpoint.path ckpt_dir",
     "output.folder", ""},
    {"save_interval save_steps save_every save_freq save_frequency checkpoint_interval checkpoint_every "
     "checkpoint_freq ckpt_interval checkpoint.interval checkpoint.steps checkpoint.save_interval "
     "every_n_train_steps",
     "checkpoint.every", ""},
    {"save_strategy enable_checkpoint always_save_checkpoint do_save", "checkpoint.every",
     "a run saves a checkpoint every checkpoint.every steps (default 1000) and at its end (checkpoint.at_end)"},
    {"save_last save_final save_model_at_end", "checkpoint.at_end", ""},
    {"save_total_limit save_top_k keep_latest_k max_checkpoints", "checkpoint.keep", ""},
    {"async_save async_mode use_async_save", "checkpoint.async", "write checkpoint.async=true"},
    {"wandb use_wandb enable_wandb report_to wandb_log wandb_project wandb_run_name wandb_exp_name wandb_entity "
     "wandb_name wandb_mode",
     "output.folder",
     "runs are not sent to Weights & Biases: OUTPUT/metrics.jsonl and OUTPUT/tensorboard have the curves, and "
     "gyrfalcon report draws them; leave this key out"},
    {"tensorboard use_tensorboard enable_tensorboard tensorboard_dir logging_dir save_tb_folder", "output.folder",
     "every run writes OUTPUT/tensorboard: leave this key out"},
    {"run_name exp_name experiment_name job_name project project_name", "output.folder",
     "the name of a run is its output.folder: write output.folder=out/{}"},
    {"distributed_timeout timeout nccl_timeout ddp_timeout train_timeout_seconds", "watchdog.seconds", ""},
    {"distributed_timeout_minutes", "watchdog.seconds", "it is called watchdog.seconds here, in seconds: write watchdog.seconds=600"},
    {"enable_profiling profile_freq use_pytorch_profiler profiling", "trace.on", "write trace.on=true and the steps in trace.steps"},
    // Settings that have no counterpart; `here` is the nearest topic.
    {"num_workers dataloader_num_workers pin_memory dataloader_pin_memory", "data.prefixes",
     "token files need no loader processes: leave this key out"},
    {"compile torch_compile use_compile", "train.precision", "the kernels are compiled ahead of time: leave this key out"},
    {"use_flash_attn use_flash_attention flash_attention attn_implementation attention_backend transformer_impl", "train.precision",
     "each device has one implementation of attention: leave this key out"},
    {"device local_rank backend distributed_backend", "parallel.data", "the build selects the device and the launcher the ranks: leave this key out"},
    {"deepspeed", "parallel.shard", "ZeRO needs no file of its own: parallel.shard is optimizer (ZeRO-1), gradients (ZeRO-2) or weights (ZeRO-3)"},
    {"lora_dropout", "finetune.lora.rank", "LoRA adapters have no dropout of their own: leave this key out"},
};

}  // namespace gyr
