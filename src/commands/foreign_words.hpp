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
    {"import load from_pretrained", "import-hf", ""},
    {"sample chat infer inference predict complete completion run_model cli", "generate", ""},
    {"finetune fine_tune sft lora dpo", "train",
     "`train DECK --init-from DIR` fine-tunes a model; input/finetune.yaml and input/lora.yaml are decks"},
    {"pretrain pre_train fit launch", "train", ""},
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
    {"f file prompts input_file", "--batch", ""},
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
inline constexpr ForeignOptions foreign_options[] = {{"generate", generate_options}, {"eval", eval_options}, {"build", build_options}};

}  // namespace gyr
