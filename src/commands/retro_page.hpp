// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon retro page: an HTML page of a text with its neighbours in a project and, with a model, the loss of each token.
#pragma once

#include <string>

#include "src/commands/command_line.hpp"
#include "src/commands/runtime.hpp"
#include "src/retro/chunk_search.hpp"

namespace gyr {

struct RetroPageOptions {
  std::string text, page, model, tokenizer;
  Index neighbours = 2;  // of each chunk; at least as many as the model reads
  Index overlap = 0;     // neighbours with a run of this number of tokens in common with the chunk's continuation are left out; 0: none
  Index tokens = 8192;   // maximum number of tokens of the text

  void add(Command&);
};

// Writes the page. Collective. Exit::usage, Exit::config and Exit::data for a model that does not read this project; errors of
// write_page_file.
void write_retro_page(const RetroPageOptions&, const std::string& project, retro::ChunkSearch&, Runtime&);

}  // namespace gyr
