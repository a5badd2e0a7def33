// SPDX-License-Identifier: BSD-3-Clause
// Encoder of a retrieval project: a stored model that computes the vectors of chunks and of queries.
#pragma once

#include <memory>

#include "src/commands/runtime.hpp"
#include "src/parallel/grid.hpp"
#include "src/retro/vectors/vector_index.hpp"

namespace gyr {

class RetroEncoder {
 public:
  // Loads a checkpoint or a Hugging Face folder on every rank. `text`: tokenizer of the project's token files; none if it is not known. Collective.
  // Exit::config for a model that is no bidirectional encoder; Exit::missing, Exit::data.
  RetroEncoder(const std::string& model, const retro::ProjectSettings&, Runtime&);
  ~RetroEncoder();

  retro::VectorSettings settings(const retro::ProjectSettings&) const;
  // Vector of token ids of the project. The encoder reads the first 256 tokens that are not special; if its tokenizer is not that of the project,
  // tokens of the decoded text. Exit::data for an id that is not below the encoder's vocab_size.
  retro::EncodeText encode();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gyr
