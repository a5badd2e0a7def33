// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/retro_config.hpp"

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
  return c;
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
  require(!run.data.separate, Exit::config, "data.documents = separate: layers R of model.pattern read chunks of joined documents; set it to joined");
  require(run.data.order != "documents", Exit::config,
          "data.order = documents: layers R of model.pattern read the neighbours of windows of joined documents; set it to shuffled or megatron");
  require(run.parallel.context == 1, Exit::config,
          "parallel.context = {}: layers R of model.pattern do not support context parallelism; set it to 1, and use tensor or pipeline parallelism",
          run.parallel.context);
  require(run.models.empty(), Exit::config, "models: layers R of model.pattern support no further models; remove this section");
}

}  // namespace gyr
