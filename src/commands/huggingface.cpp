// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon import-hf DIR CHECKPOINT and gyrfalcon export-hf CHECKPOINT DIR. Both run as one process without MPI or a
// device, so a login node is enough.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/llama_types.hpp"
#include "src/commands/notes.hpp"
#include "src/pretrained/conversion.hpp"

namespace gyr {

namespace {

// Parses a size such as "5GB", "5G", "500MB" or "1000000" in bytes. K to T and KB to TB are powers of 1000, as in
// transformers' max_shard_size.
Index bytes_in(const std::string& text) {
  static const std::map<std::string, double> units{{"", 1},         {"B", 1},        {"K", 1e3},      {"M", 1e6},     {"G", 1e9},
                                                   {"T", 1e12},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
                                                   {"KIB", 0x1p10}, {"MIB", 0x1p20}, {"GIB", 0x1p30}, {"TIB", 0x1p40}};
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string unit(rest, text.data() + text.size());
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto factor = units.find(unit);
  require(error == std::errc() && factor != units.end() && number * factor->second >= 1 && number * factor->second < 0x1p62, Exit::usage,
          "--shard-size {}: write a number and KB, MB, GB or TB, as in 5GB", text);
  return Index(number * factor->second);
}

void print_line(const char* what, const std::string& target, const Converted& c, double seconds) {
  std::printf("%s %s: %ld tensors, %.1f MB in %ld file%s, %.1f s\n", what, target.c_str(), long(c.tensors), double(c.bytes) / 1e6, long(c.files),
              c.files == 1 ? "" : "s", seconds);
}

template <class Convert>
int timed(const char* what, const std::string& target, Convert&& convert) {
  return guarded([&] {
    const auto begin = std::chrono::steady_clock::now();
    const Converted converted = convert();
    print_line(what, target, converted, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  });
}

}  // namespace

void add_import_hf(Command& app, Action& action) {
  struct Arguments {
    std::string folder, checkpoint, adapters;
    bool overwrite = false;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("import-hf", "Import a model from a Hugging Face folder into a checkpoint");
  c->add_option("folder", a->folder, "Folder with config.json and model.safetensors, or with sharded safetensors and their index")->required();
  c->add_option("checkpoint", a->checkpoint, "Checkpoint to write")->required();
  c->add_option("--adapters", a->adapters, "PEFT folder with LoRA adapters; the checkpoint stores them separately from the weights (finetune.lora)");
  c->add_flag("--overwrite", a->overwrite, "Replace an existing checkpoint");
  c->callback([a, &action] {
    action = [a] {
      return timed("imported", a->checkpoint, [&] { return import_folder(a->folder, a->checkpoint, a->overwrite, print_note, a->adapters); });
    };
  });
}

void add_export_hf(Command& app, Action& action) {
  struct Arguments {
    std::string checkpoint, folder, type, shard_size, like;
    bool overwrite = false, adapters = false;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("export-hf", "Export a checkpoint's model to a Hugging Face folder for transformers");
  c->add_option("checkpoint", a->checkpoint, "Checkpoint, or folder of a run (its newest checkpoint)")->required();
  c->add_option("folder", a->folder, "Folder to write")->required();
  c->add_option("--dtype", a->type, "Data type of all weights: bf16, fp16 or fp32; default: as stored")
      ->one_of({"bf16", "fp16", "fp32"})
      ->advise([](const std::string& type) {
        const std::string exports = "gyrfalcon export-gguf CHECKPOINT model.gguf";
        return type == "q8_0" ? fmt::format("`{} --dtype q8_0` writes it", exports) : llama_type_advice(type, exports);
      });
  c->add_option("--shard-size", a->shard_size,
                "Maximum size of a file, unless one tensor is larger; default: the files of the folder that the model came from, or 5GB each");
  c->add_option("--like", a->like,
                "Folder to take token ids, context length, generation_config.json, tokenizer and chat template from; default: the folder that the "
                "model came from. Weights that it stores in blocks of 4 bits (MXFP4) are exported so, unless --dtype is given");
  c->add_flag("--adapters", a->adapters,
              "Export only the LoRA adapters (finetune.lora), as a PEFT folder; default: merge each adapter into its weight");
  c->add_flag("--overwrite", a->overwrite, "Replace an existing model folder");
  c->callback([a, &action] {
    action = [a] {
      return timed("exported", a->folder, [&] {
        require_order("export-hf", a->checkpoint, a->folder);
        ExportOptions options;
        using safetensors::Type;
        if (!a->type.empty()) options.type = a->type == "bf16" ? Type::bf16 : a->type == "fp16" ? Type::f16 : Type::f32;
        if (!a->shard_size.empty()) options.shard_bytes = bytes_in(a->shard_size);
        options.like = a->like;
        options.overwrite = a->overwrite;
        options.adapters = a->adapters;
        return export_folder(chosen_checkpoint(a->checkpoint, print_note), a->folder, options, print_note);
      });
    };
  });
}

}  // namespace gyr
