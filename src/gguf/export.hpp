// SPDX-License-Identifier: BSD-3-Clause
// Converts a checkpoint or a Hugging Face folder to a GGUF file. Tensors are streamed in pieces of rows and never held
// in memory completely.
#pragma once

#include <filesystem>
#include <optional>

#include "src/base/note.hpp"
#include "src/gguf/format.hpp"
#include "src/pretrained/conversion.hpp"

namespace gyr {

struct GgufOptions {
  std::optional<gguf::Type> type;   // data type of matrices; default: bf16 if the embedding is stored as bf16, else f32
  std::filesystem::path tokenizer;  // tokenizer.json to export; empty: the model's
  std::string split_rule;           // llama.cpp's name of the pre-tokenizer; empty: detected (vocabulary.hpp)
  bool no_tokenizer = false, overwrite = false;
};

// The file is written atomically. Weights of ternary layers (model.linear) are written as these layers compute with them, -1, 0 or 1 times a
// scale; only such weights can have the types tq1_0 and tq2_0, if their rows are multiples of 256. Other matrices are then f16, as in
// llama.cpp's converter. Vectors, norms, routers, convolutions, learned position embeddings, and A and D of
// mixers are always f32. For q8_0, matrices whose row length is not a multiple of 32 are f16, as in llama.cpp's
// converter. Exit::config for a ternary type without ternary layers, and with the name of the class or setting that llama.cpp does not support;
// Exit::usage if the file exists and overwrite is false; Exit::data, Exit::missing, Exit::io.
Converted export_gguf(const std::filesystem::path& model, const std::filesystem::path& file, const GgufOptions&, const Note&);

}  // namespace gyr
