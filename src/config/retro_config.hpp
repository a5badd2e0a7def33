// SPDX-License-Identifier: BSD-3-Clause
// Deck keys retro.*: where a run finds the neighbours that layers R of its model read, and the places of these layers.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct ModelConfig;
struct RunConfig;

// Places of layers R: where model.pattern has them, or the published ones (place_retrieval).
enum class RetrievalPlaces { pattern, published };

// Tokens of a neighbour after its chunk: those of the next chunk of the same document, or of the next one in the database.
enum class Continuation { document, database };
// Padding of chunks that are not full: masked, or end tokens that are attended to.
enum class NeighbourPadding { unseen, seen };

struct RetroConfig {
  std::string project;  // folder of the retrieval project; empty: none
  Index shuffle = 0;    // seed by which every chunk gets the neighbours of another one, as a control; 0: its own neighbours
  RetrievalPlaces layers = RetrievalPlaces::pattern;
  std::string neighbours;  // folder of the neighbours in a project of Megatron-LM; empty: those that retro query found
  Continuation continuation = Continuation::document;
  NeighbourPadding padding = NeighbourPadding::unseen;
};

RetroConfig read_retro(Section&);
// The pattern with layers R at the published places. A block is a layer that mixes tokens, with the layers up to the next one.
// With at most 15 blocks, every third one from the sixth on has an R after the layer that mixes tokens; with more, from the
// ninth on. Exit::config if there are too few blocks, or if the pattern has R elsewhere.
void place_retrieval(ModelConfig&);
// Requirements of layers R on the other sections; Exit::config.
void check_retrieval(const RunConfig&);

}  // namespace gyr
