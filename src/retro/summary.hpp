// SPDX-License-Identifier: BSD-3-Clause
// Human-readable descriptions of a project and of its chunks.
#pragma once

#include <optional>

#include "src/retro/neighbours.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::retro {

// Tokenizer of the project for printing texts. `file`: another place of it; empty: the place in config.json. nullopt if no
// place is known or the file does not exist. Exit::data if it is another tokenizer.
std::optional<Tokenizer> tokenizer_of(const ProjectSettings&, const std::string& file);

// Table of the settings, and of the counts of database, index and neighbours as far as they exist. `vectors`: description of an index of
// vectors; empty: the index has none.
std::string project_summary(const std::filesystem::path& project, const Database&, const std::string& vectors);
// Place of a chunk, as in "document 7 of text, tokens 64 to 128".
std::string place_text(const ProjectSettings&, const ChunkRow&);
// Text of a chunk, or its token ids without a tokenizer; at most `most` bytes.
std::string chunk_text(const Database&, const ChunkRow&, const std::optional<Tokenizer>&, std::size_t most);

}  // namespace gyr::retro
