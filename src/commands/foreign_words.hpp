// SPDX-License-Identifier: BSD-3-Clause
// Names of commands and options under which users of llama.cpp, nanoGPT, Hugging Face and Megatron-LM know ours. Names are
// in lower case, with underscores for dashes and without leading dashes.
#pragma once

#include <span>
#include <string_view>

#include "src/deck/renamed_keys.hpp"

namespace gyr {

inline constexpr ForeignKey foreign_commands[] = {
    {"export convert convert_hf_to_gguf save_pretrained", "export-hf",
     "`export-hf` writes a Hugging Face folder, `export-gguf` a file for llama.cpp"},
    {"merge merge_and_unload merge_adapters", "export-hf",
     "`export-hf OUT NEW` merges the adapters of a LoRA run into its model; with --adapters it writes a PEFT folder"},
    {"import load from_pretrained", "import-hf", ""},
    {"sample chat infer inference predict complete completion run_model cli", "generate", ""},
    {"finetune fine_tune sft lora dpo", "train",
     "`train DECK --init-from DIR` fine-tunes a model; input/finetune.yaml and input/lora.yaml are decks"},
    {"pretrain pre_train fit launch", "train", ""},
    {"resume continue restart", "train", "`train DECK --resume` continues the run in output.folder"},
    {"evaluate test validate benchmark perplexity lm_eval", "eval", ""},
    {"tokenize preprocess preprocess_data prepare build", "data build", ""},
    {"quantize", "export-gguf", "`export-gguf CHECKPOINT FILE --dtype q8_0` writes quantized weights"},
    {"status list top monitor", "ps", ""},
    {"plot tensorboard log logs", "report", ""},
    {"config options settings", "keys", ""},
    {"estimate memory dry_run", "plan", ""},
};

// Options of a command. The names of ours have dashes; an empty one has no counterpart.
struct ForeignOptions {
  std::string_view command;
  std::span<const ForeignKey> rows;
};

inline constexpr ForeignKey generate_options[] = {
    {"max_new_tokens max_tokens max_length n_predict n num_tokens length steps", "--tokens", ""},
    {"num_samples num_return_sequences n_samples samples", "--prompt", "repeat --prompt, once for each sample"},
    {"start p input text prefix", "--prompt", ""},
    {"f file prompts input_file prompt_file prompts_file", "--batch", ""},
    {"temp t temperature", "--temperature", ""},
    {"s", "--seed", ""},
    {"topp", "--top-p", ""},
    {"topk", "--top-k", ""},
    {"batch_size bs", "--together", ""},
    {"m model model_path ckpt ckpt_path checkpoint_path out_dir", "", "the checkpoint is the first word: `generate CHECKPOINT --prompt TEXT`"},
    {"threads num_threads", "", "the number of threads is set with OMP_NUM_THREADS=N"},
    {"i interactive cnv conversation", "--chat", "give --chat and --prompt; there is no interactive mode"},
    {"r reverse_prompt", "--stop", ""},
    {"do_sample", "--temperature", "sampling is the default; --greedy disables it"},
};
inline constexpr ForeignKey eval_options[] = {
    {"f file input", "--text", ""},
    {"m model model_path ckpt", "", "the checkpoint is the first word: `eval CHECKPOINT`"},
    {"c ctx_size n_ctx seq_length max_length block_size", "--length", ""},
    {"batch_size bs", "--batch", ""},
    {"tasks task", "--choices", "tasks are read from files: --lambada FILE or --choices FILE"},
    {"output output_path", "--json", ""},
};
inline constexpr ForeignKey build_options[] = {
    {"input i", "", "the text files are the first words: `data build TEXT PREFIX`"},
    {"output_prefix output o", "", "the PREFIX is the last word: `data build TEXT PREFIX`"},
    {"tokenizer_model vocab_file tokenizer_path tokenizer_name_or_path", "--tokenizer", ""},
    {"json_keys json_key text_key text_column field", "--key", ""},
    {"append_eod", "--no-end", "the end-of-document token is appended by default; --no-end omits it"},
    {"workers num_workers", "", "the ranks share the work: mpiexec -n N gyrfalcon data build ..."},
};
inline constexpr ForeignKey train_options[] = {
    {"config config_file c yaml", "", "the deck is the first word: `train DECK`"},
    {"lora peft use_lora", "", "LoRA is a section of the deck: `train input/lora.yaml --init-from DIR`"},
    {"branch", "", "a branch of a run is `train DECK --init-from CHECKPOINT train.branch=true`"},
    {"seed", "train.seed", "write train.seed=N; data.seed orders the data"},
    {"n np nproc ranks_per_node nproc_per_node", "",
     "the launcher sets the number of ranks: mpiexec -n N gyrfalcon train DECK; with --dry-run it is --ranks N"},
    {"cluster profile tokens explain longest html", "", "`gyrfalcon plan DECK --cluster FILE` predicts step times and searches for layouts"},
};
inline constexpr ForeignKey run_options[] = {
    {"resume", "", "`gyrfalcon run` always resumes: repeat the command without --resume"},
};
inline constexpr ForeignKey export_hf_options[] = {
    {"torch_dtype outtype precision", "--dtype", ""},
    {"output o outdir output_dir", "", "the folder to write is the last word: `export-hf CHECKPOINT FOLDER`"},
    {"max_shard_size", "--shard-size", ""},
    {"merge merge_adapters", "--adapters", "adapters are merged by default; --adapters writes them alone, as a PEFT folder"},
    {"quantize q", "", "`export-gguf CHECKPOINT FILE --dtype q8_0` writes quantized weights"},
};
inline constexpr ForeignKey export_gguf_options[] = {
    {"quantize outtype torch_dtype ftype quantization type q precision", "--dtype", ""},
    {"outfile output o", "", "the file to write is the last word: `export-gguf CHECKPOINT FILE`"},
    {"vocab_type", "--split-rule", ""},
};
inline constexpr ForeignOptions foreign_options[] = {{"train", train_options},
                                                     {"run", run_options},
                                                     {"generate", generate_options},
                                                     {"eval", eval_options},
                                                     {"build", build_options},
                                                     {"export-hf", export_hf_options},
                                                     {"export-gguf", export_gguf_options}};

// Topics of `gyrfalcon help` that are neither commands nor keys, with a text in place of `here`.
inline constexpr ForeignKey help_topics[] = {
    {"lora peft adapter adapters", "",
     "LoRA trains low-rank adapters of a model: `gyrfalcon train input/lora.yaml --init-from DIR`. `gyrfalcon export-hf OUT NEW` merges them into "
     "the "
     "model, `export-hf OUT NEW --adapters` writes a PEFT folder, and `gyrfalcon import-hf DIR NEW --adapters PEFT` reads one."},
    {"requeue sbatch slurm srun scontrol squeue", "",
     "jobscripts/README.md describes jobs under Slurm. `jobscripts/submit.sh slurm-gpu.sh DECK` submits one. It saves a checkpoint before the time "
     "limit and is requeued until the run is done; JOBS=N limits the number of jobs, and `scontrol requeue JOB` starts a stopped one again."},
    {"scancel qdel sigterm sigusr1 sighup stop", "",
     "After `scancel JOB` or `qdel JOB`, after SIGTERM, SIGUSR1 or SIGHUP, and if the file STOP appears in the output folder, a run saves a "
     "checkpoint "
     "and stops with exit code 75. It is not queued again: submit the job again to continue it (jobscripts/README.md)."},
    {"cooldown cool_down wsd decay anneal branch", "",
     "The cool-down of a run is a branch of it with a schedule of its own: `gyrfalcon train DECK --init-from CKPT train.branch=true "
     "optimizer.schedule=wsd optimizer.wsd_decay=N train.steps=M output.folder=NEW`, where M is above the step of CKPT. "
     "checkpoint.keep_every keeps the checkpoints to branch from."},
    {"cost price euro dollar budget gpu_hours energy", "",
     "`gyrfalcon plan DECK --cluster FILE --tokens N` prints the device hours of a run and, if FILE sets device.price and device.currency, their "
     "price. With device.watts it prints the energy of the devices, without that of hosts, network and cooling."},
    {"exit exit_code exit_codes codes code", "", "`gyrfalcon --help` lists the exit codes, and jobscripts/README.md says what to do after each."},
    {"early_stopping patience best best_checkpoint save_total_limit", "",
     "A run does not stop early: it validates every train.eval_every steps. With checkpoint.keep_best=true it keeps the checkpoint with the lowest "
     "validation loss, which OUT/checkpoints/best names; `gyrfalcon report OUT` shows the losses."},
    {"pbs qsub qstat", "",
     "jobscripts/README.md describes jobs under PBS. `jobscripts/submit.sh pbs-gpu.sh DECK` submits one. It saves a checkpoint before the time limit "
     "and submits itself again until the run is done; JOBS=N limits the number of jobs."},
};

}  // namespace gyr
