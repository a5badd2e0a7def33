// SPDX-License-Identifier: BSD-3-Clause
// Page about a text and the passages of a retrieval project that are nearest to it (its neighbours): chunk by chunk, with the tokens
// that a chunk shares with them, and the loss of each token with and without neighbours.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

struct ShownNeighbour {
  std::int64_t id = 0;  // chunk of the database
  double score = 0;
  std::string place;                 // as in "document 7 of text, tokens 64 to 128"
  std::vector<std::int32_t> tokens;  // those of the chunk, then those of its continuation
  std::size_t chunk = 0;             // tokens of the chunk, which the retriever compares
};

struct ShownChunk {
  std::size_t first = 0, last = 0;  // tokens [first, last) of the text
  std::vector<ShownNeighbour> neighbours;
};

struct ShownText {
  std::string name, project, model;  // model: empty if the text was not scored
  std::vector<std::int32_t> tokens;
  std::vector<ShownChunk> chunks;     // of all tokens, in order
  std::set<std::int32_t> special;     // tokens that a retriever ignores
  std::vector<double> with, without;  // [token]: -ln p with the neighbours and without any; NaN if the token is not scored
  std::size_t left_out = 0;           // tokens of the text after those that are shown
  std::size_t window = 0, read = 0;   // tokens that the model reads at once; neighbours of a chunk that it reads
};

// Mean of the values that are not NaN; NaN if there are none.
double mean_loss(std::span<const double> losses);
// Distinct tokens of both texts that are not special.
std::set<std::int32_t> shared_tokens(std::span<const std::int32_t>, std::span<const std::int32_t>, const std::set<std::int32_t>& special);

// The page as HTML that needs no network. Without a tokenizer it shows token ids.
std::string neighbours_page(const ShownText&, const Tokenizer*);

}  // namespace gyr
