// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/retro_config.hpp"

#include <algorithm>

#include "modules/objectives/objective.hpp"
#include "src/config/run_config.hpp"

namespace gyr {

RetroConfig read_retro(Section& s) {
  RetroConfig c;
  c.project =
      s.get("project", std::string(), "folder of the retrieval project (gyrfalcon retro build-db) whose neighbours layers R read; empty: none")
          .value();
  c.shuffle =
      s.get("shuffle", 0,
            "seed by which every chunk gets the neighbours of another chunk, as a control of what retrieval contributes; 0: its own neighbours")
          .at_least(0);
  const std::string layers =
      s.get("layers", std::string("pattern"),
            "places of the layers R: where model.pattern has them, or the published ones (auto): in every third block from the "
            "sixth on, with more than 15 blocks from the ninth on; model.pattern is then that of the decoder without R")
          .one_of({"pattern", "auto"})
          .effect(Effect::function);
  if (layers == "auto") c.layers = RetrievalPlaces::published;
  c.neighbours = s.get("neighbors", std::string(),
                       "folder with the neighbours of the training samples in a project of Megatron-LM, PROJECT/query/FOLDER, for data.order = "
                       "megatron; empty: the neighbours that gyrfalcon retro query found for the run")
                     .value();
  const std::string continuation =
      s.get("continuation", std::string("document"),
            "tokens of a neighbour after its chunk: those of the next chunk of the same document, or of the next chunk of the database, "
            "whatever its document, the last chunk standing for a missing neighbour (database; as in Megatron-LM)")
          .one_of({"document", "database"});
  const std::string padding = s.get("padding", std::string("unseen"),
                                    "end of chunks that are not full: masked (unseen), or end tokens that are attended to (seen; as in Megatron-LM)")
                                  .one_of({"unseen", "seen"});
  if (continuation == "database") c.continuation = Continuation::database;
  if (padding == "seen") c.padding = NeighbourPadding::seen;
  return c;
}

void place_retrieval(ModelConfig& m) {
  const char symbol = layer_type("retrieval").symbol;
  std::string decoder = m.pattern, placed;
  std::erase(decoder, symbol);
  const auto mixes = [](char layer) { return layer_type(layer).traits.mixes_tokens(); };
  const auto blocks = std::count_if(decoder.begin(), decoder.end(), mixes), first = std::ptrdiff_t(blocks <= 15 ? 6 : 9);
  require(blocks >= first, Exit::config,
          "retro.layers = auto: the first layer R is in block {}, and model.pattern has {} layers that mix tokens; write R in model.pattern, and set "
          "retro.layers to pattern",
          first, blocks);
  std::ptrdiff_t block = 0;
  for (const char layer : decoder) {
    placed += layer;
    if (mixes(layer) && ++block >= first && (block - first) % 3 == 0) placed += symbol;
  }
  require(m.pattern == decoder || m.pattern == placed, Exit::config,
          "retro.layers = auto places layers R itself, as in model.pattern: \"{}\", and the pattern has R elsewhere; leave R out of it, or set "
          "retro.layers to pattern",
          placed);
  m.pattern = placed;
}

void check_retrieval(const RunConfig& run) {
  if (!reads_neighbours(run.model)) return;
  const Index chunk = run.model.retrieval.chunk, length = run.train.seq_length;
  require(length % chunk == 0, Exit::config,
          "train.seq_length = {} is no multiple of model.retrieval.chunk = {}, and layers R read the neighbours of full chunks; set it to {}", length,
          chunk, (length + chunk - 1) / chunk * chunk);
  require(run.model.objective->writes_next_token() && !run.policy && run.model.objective->head_layers().empty(), Exit::config,
          "train.objective = {}: layers R of model.pattern need an objective that predicts the next token only; set it to next_token",
          run.model.objective->name());
  require(!run.model.lora, Exit::config,
          "finetune.lora.rank = {}: layers R of model.pattern take no adapters; set it to 0, and choose weights to train with optimizer.frozen",
          run.model.lora.rank);
  require(run.data.order != "documents", Exit::config,
          "data.order = documents: layers R of model.pattern read the neighbours of windows of joined documents; set it to shuffled or megatron");
  require(run.models.empty(), Exit::config, "models: layers R of model.pattern support no further models; remove this section");
}

}  // namespace gyr
