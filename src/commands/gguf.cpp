// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon export-gguf MODEL FILE: a model for llama.cpp. One process, neither MPI nor device.
#include <chrono>
#include <cstdio>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
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
  Command* c = app.add_command("export-gguf", "Write a model as a file of GGUF that llama.cpp loads");
  c->add_option("model", a->model, "Checkpoint, or Hugging Face folder")->required();
  c->add_option("file", a->file, "File to write")->required();
  c->add_option(
       "--dtype", a->type,
       "Type of matrices: f32, bf16, or q8_0, blocks of 32 numbers of 8 bits with a scale; without it bf16 where the embedding is stored so, "
       "else f32")
      ->one_of({"f32", "bf16", "q8_0"});
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json to take; without it the model's");
  c->add_flag("--no-tokenizer", a->options.no_tokenizer, "Write none: llama.cpp then takes and gives ids of tokens alone");
  c->add_option("--split-rule", a->options.split_rule,
                "llama.cpp's name of the rule that splits text (tokenizer.ggml.pre), where the tokenizer's is none that is known");
  c->add_flag("--overwrite", a->options.overwrite, "Replace an existing file");
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        require(!a->options.no_tokenizer || (a->tokenizer.empty() && a->options.split_rule.empty()), Exit::usage,
                "--no-tokenizer has no meaning beside --tokenizer and --split-rule");
        using gguf::Type;
        if (!a->type.empty()) a->options.type = a->type == "f32" ? Type::f32 : a->type == "bf16" ? Type::bf16 : Type::q8_0;
        a->options.tokenizer = a->tokenizer;
        const auto begin = std::chrono::steady_clock::now();
        const Converted made = export_gguf(a->model, a->file, a->options, print_note);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::printf("exported %s: %ld tensors, %.1f MB, %.1f s\n", a->file.c_str(), long(made.tensors), double(made.bytes) / 1e6, seconds);
      });
    };
  });
}

}  // namespace gyr
