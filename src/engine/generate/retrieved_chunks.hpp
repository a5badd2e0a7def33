// SPDX-License-Identifier: BSD-3-Clause
// Retrieval in generation, for models with layers R. The text of a sequence is cut into chunks of m tokens, of which the
// first has o. When the last token of a chunk is read, its neighbours are searched for, and this token and the next m - 1 see
// them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "src/engine/generate/request.hpp"
#include "src/engine/model/chunk.hpp"

namespace gyr {

// Neighbours of one chunk of a text.
struct FoundNeighbours {
  std::vector<Token> tokens;      // (k, r), padding 0
  std::vector<Index> lengths;     // (k) tokens of each; 0: missing
  std::vector<std::int64_t> ids;  // chunks of the database, without missing ones
};
// Searches for the neighbours of a chunk of the text of a request. Every rank of a data coordinate calls it with the same
// chunks, and it must have the same result on each.
using NeighbourSearch = std::function<FoundNeighbours(Index request, std::span<const Token> chunk)>;

// Begin of the chunks of a prompt of n tokens: end: o = n mod m, or m if that is 0, so that its last token ends a chunk;
// begin: o = m.
enum class ChunkAlignment { end, begin };

struct RetrievalOptions {
  NeighbourSearch search = {};  // empty: all neighbours are missing
  ChunkAlignment align = ChunkAlignment::end;
  Index first_chunk = 0;  // o; 0: by `align`
};

class RetrievedChunks {
 public:
  // Chunks of as many sequences as there are slots. `options` must outlive the object.
  RetrievedChunks(const RetrievalConfig&, Index slots, const RetrievalOptions& options);

  // The prompt of a slot, whose former chunks are forgotten, or one further token of each of some slots from `first` on; a
  // token of an idle slot belongs to no text. Sets the chunks of the layout and returns their neighbours, or no tokens if
  // all are missing.
  EncoderInput read(Index slot, Index request, std::span<const Token> prompt, EndingChunks&);
  EncoderInput read(Index first, std::span<const Token> tokens, const std::vector<bool>& idle, EndingChunks&);
  void copy(Index from, Index to) { slots_.at(std::size_t(to)) = slots_.at(std::size_t(from)); }
  // Chunks of the text of a slot that have neighbours.
  const std::vector<CitedChunk>& cited(Index slot) const { return slots_.at(std::size_t(slot)).cited; }
  // Dry run: the next token of every slot ends a chunk.
  void complete_all();

 private:
  struct Slot {
    Index request = 0;
    std::vector<Token> chunk = {};    // tokens of the present chunk
    Index tokens = 0, full = 0;       // tokens of the text; tokens of the present chunk when it ends
    std::vector<Index> lengths = {};  // (k) of the neighbours that the last token sees
    std::vector<CitedChunk> cited = {};
  };
  void add(Slot&, Index sequence, Token, EndingChunks&, std::vector<FoundNeighbours>&);
  EncoderInput input_of(const std::vector<FoundNeighbours>&) const;

  RetrievalConfig config_;
  const RetrievalOptions& options_;
  std::vector<Slot> slots_;
};

}  // namespace gyr
