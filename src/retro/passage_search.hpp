// SPDX-License-Identifier: BSD-3-Clause
// Searches a project at run time, for the texts that a model generates. Each rank holds the whole index and has the same
// results. No document is left out, because such a text is of none.
#pragma once

#include <memory>
#include <set>

#include "src/parallel/grid.hpp"
#include "src/retro/retriever.hpp"

namespace gyr::retro {

// Tokens of a neighbour by the rule. Exit::data for a token that is not below `vocab_size`.
std::vector<std::int32_t> neighbour_tokens(const Database&, std::int64_t id, std::int64_t vocab_size, const PassageRule& = {});

class PassageSearch {
 public:
  // Exit::config if the chunks of the project do not have `chunk` tokens. Exit::missing naming the command that makes what is
  // absent. Exit::data if a corpus has changed, or if a file is damaged.
  PassageSearch(const std::filesystem::path& project, std::int64_t chunk, std::int64_t vocab_size);

  // Ids of the best `most` chunks for a text, except those in `without`; fewer if fewer have a score above 0.
  std::vector<std::int64_t> best(std::span<const std::int32_t> text, std::int64_t most, const std::set<std::int64_t>& without);
  std::vector<std::int32_t> tokens(std::int64_t id) const { return neighbour_tokens(*database_, id, vocab_size_); }
  // Place of a chunk, as in "document 7 of text, tokens 64 to 128".
  std::string place(std::int64_t id) const;

 private:
  std::filesystem::path project_;
  std::int64_t vocab_size_;
  ProjectSettings settings_;
  std::unique_ptr<Grid> grid_;  // of this rank
  std::unique_ptr<Corpora> corpora_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Retriever> retriever_;
};

}  // namespace gyr::retro
