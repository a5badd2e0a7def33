// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint or a folder of Hugging Face's to a file of GGUF, a few rows at a time: it needs no memory for a whole tensor.
#pragma once

#include <filesystem>
#include <optional>

#include "src/base/note.hpp"
#include "src/gguf/format.hpp"
#include "src/pretrained/conversion.hpp"

namespace gyr {

struct GgufOptions {
  std::optional<gguf::Type> type;   // of matrices; without it bf16 where the embedding is stored so, else f32
  std::filesystem::path tokenizer;  // without it the model's
  std::string split_rule;           // see gguf/vocabulary.hpp
  bool no_tokenizer = false, overwrite = false;
};

// The file appears whole or not at all. Vectors, norms, routers and convolutions are f32 whatever the type, and where rows are no whole blocks of
// q8_0 matrices are f16, as llama.cpp's converter has it. Exit::config naming the class or function that llama.cpp has not, Exit::usage where the
// file is there and not to be replaced, Exit::data, Exit::missing, Exit::io.
Converted export_gguf(const std::filesystem::path& model, const std::filesystem::path& file, const GgufOptions&, const Note&);

}  // namespace gyr
