// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generate/retrieved_chunks.hpp"

#include <algorithm>

#include "src/engine/model/source_padding.hpp"

namespace gyr {

RetrievedChunks::RetrievedChunks(const RetrievalConfig& config, Index slots, const RetrievalOptions& options)
    : config_(config), options_(options), slots_(std::size_t(slots)) {
  for (Slot& slot : slots_) slot.full = config_.chunk, slot.lengths.assign(std::size_t(config_.neighbours), 0);
}

EncoderInput RetrievedChunks::read(Index slot, Index request, std::span<const Token> prompt, EndingChunks& ending) {
  const Index m = config_.chunk, rest = Index(prompt.size()) % m;
  Slot& s = slots_.at(std::size_t(slot));
  s = {.request = request};
  s.full = options_.first_chunk > 0 ? options_.first_chunk : options_.align == ChunkAlignment::end && rest > 0 ? rest : m;
  s.lengths.assign(std::size_t(config_.neighbours), 0);
  ending.begun = {0};
  std::vector<FoundNeighbours> found;
  for (const Token token : prompt) add(s, 0, token, ending, found);
  ending.neighbours = s.lengths;
  return input_of(found);
}

EncoderInput RetrievedChunks::read(Index first, std::span<const Token> tokens, const std::vector<bool>& idle, EndingChunks& ending) {
  std::vector<FoundNeighbours> found;
  for (std::size_t b = 0; b < tokens.size(); ++b) {
    Slot& s = slots_.at(std::size_t(first) + b);
    ending.begun.push_back(idle[b] ? 0 : Index(s.chunk.size()));
    if (!idle[b]) add(s, Index(b), tokens[b], ending, found);
    ending.neighbours.insert(ending.neighbours.end(), s.lengths.begin(), s.lengths.end());
  }
  return input_of(found);
}

// Appends a token to the text of a slot. If it ends a chunk, the neighbours of that are searched for.
void RetrievedChunks::add(Slot& s, Index sequence, Token token, EndingChunks& ending, std::vector<FoundNeighbours>& found) {
  s.chunk.push_back(token), ++s.tokens;
  if (Index(s.chunk.size()) < s.full) return;
  const std::size_t k = std::size_t(config_.neighbours), r = std::size_t(config_.neighbour_length());
  FoundNeighbours neighbours = options_.search ? options_.search(s.request, s.chunk) : FoundNeighbours{};
  neighbours.lengths.resize(k, 0), neighbours.tokens.resize(k * r, 0);
  s.lengths = neighbours.lengths;
  if (!neighbours.ids.empty()) s.cited.push_back({s.tokens - Index(s.chunk.size()), s.tokens, neighbours.ids});
  ending.lengths.push_back(Index(s.chunk.size())), ending.sequences.push_back(sequence);
  found.push_back(std::move(neighbours));
  s.chunk.clear(), s.full = config_.chunk;
}

EncoderInput RetrievedChunks::input_of(const std::vector<FoundNeighbours>& found) const {
  std::vector<Token> tokens;
  std::vector<std::int32_t> lengths;
  for (const FoundNeighbours& f : found)
    tokens.insert(tokens.end(), f.tokens.begin(), f.tokens.end()), lengths.insert(lengths.end(), f.lengths.begin(), f.lengths.end());
  if (std::ranges::all_of(lengths, [](std::int32_t length) { return length == 0; })) return {};
  const NeighboursOfText text{tokens, lengths};
  return encoder_input_of({&text, 1}, config_);
}

void RetrievedChunks::complete_all() {
  for (Slot& slot : slots_) slot.chunk.assign(std::size_t(config_.chunk - 1), 0), slot.full = config_.chunk;
}

}  // namespace gyr
