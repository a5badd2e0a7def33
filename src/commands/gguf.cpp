// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon export-gguf MODEL FILE: exports a model for llama.cpp. It runs as one process without MPI or a device.
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/llama_types.hpp"
#include "src/commands/notes.hpp"
#include "src/gguf/export.hpp"

namespace gyr {

void add_export_gguf(Command& app, Action& action) {
  struct Arguments {
    std::string model, file, type;
    GgufOptions options;
    std::string tokenizer;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("export-gguf", "Export a model to a GGUF file for llama.cpp");
  c->add_option("model", a->model, "Checkpoint, folder of a run (its newest checkpoint), or Hugging Face folder")->required();
  c->add_option("file", a->file, "File to write")->required();
  c->add_option(
       "--dtype", a->type,
       "Data type of matrices: f32, bf16, q8_0 (blocks of 32 8-bit integers with a scale), or for weights of ternary layers tq2_0 or tq1_0 (blocks "
       "of 256 codes -1, 0, 1 with a scale); default: bf16 if the embedding is stored in bf16, "
       "otherwise f32")
      ->one_of({"f32", "bf16", "q8_0", "tq2_0", "tq1_0"})
      ->advise([](const std::string& type) { return llama_type_advice(type, "gyrfalcon export-gguf MODEL model.gguf"); });
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json to export; default: the model's");
  c->add_flag("--no-tokenizer", a->options.no_tokenizer, "Export no tokenizer: llama.cpp then reads and writes token ids only");
  c->add_option("--split-rule", a->options.split_rule,
                "llama.cpp's name of the pre-tokenizer rule (tokenizer.ggml.pre), if the tokenizer's rule is not recognised");
  c->add_flag("--overwrite", a->options.overwrite, "Replace an existing file");
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        require(!a->options.no_tokenizer || (a->tokenizer.empty() && a->options.split_rule.empty()), Exit::usage,
                "--no-tokenizer cannot be combined with --tokenizer or --split-rule");
        using gguf::Type;
        static const std::map<std::string, Type> types{
            {"f32", Type::f32}, {"bf16", Type::bf16}, {"q8_0", Type::q8_0}, {"tq1_0", Type::tq1_0}, {"tq2_0", Type::tq2_0}};
        if (!a->type.empty()) a->options.type = types.at(a->type);
        a->options.tokenizer = a->tokenizer;
        require_order("export-gguf", a->model, a->file);
        const auto begin = std::chrono::steady_clock::now();
        const Converted made = export_gguf(chosen_checkpoint(a->model, print_note), a->file, a->options, print_note);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::printf("exported %s: %ld tensors, %.1f MB, %.1f s\n", a->file.c_str(), long(made.tensors), double(made.bytes) / 1e6, seconds);
      });
    };
  });
}

}  // namespace gyr
