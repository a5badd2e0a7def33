// SPDX-License-Identifier: BSD-3-Clause
// Configuration of a run as read from its deck, and the checks on combinations of sections that other files declare.
#pragma once

#include <map>

#include "modules/model/layer.hpp"
#include "src/checkpoint/checkpoint_config.hpp"
#include "src/config/further_models.hpp"
#include "src/config/retro_config.hpp"
#include "src/config/train_config.hpp"
#include "src/data/data_config.hpp"
#include "src/deck/deck.hpp"
#include "src/dump/dump_config.hpp"
#include "src/engine/config/learning_rate.hpp"
#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/engine/config/recompute.hpp"
#include "src/fault/fault_settings.hpp"
#include "src/parallel/layout.hpp"
#include "src/parallel/parallel_config.hpp"
#include "src/policy/policy_config.hpp"
#include "src/report/progress.hpp"
#include "src/supervisor/supervise_settings.hpp"
#include "src/trace/trace_config.hpp"
#include "src/watch/watch_settings.hpp"

namespace gyr {

struct RunConfig {
  ModelConfig model;
  std::vector<FurtherModel> models;  // models besides the trained one
  DataConfig data;
  RetroConfig retro;
  TrainConfig train;
  std::optional<PolicyConfig> policy;  // policy training from rewards; empty: another objective
  OptimizerConfig optimizer;
  LearningRate lr;
  WeightDecay weight_decay;
  ParallelConfig parallel;
  RecomputeConfig recompute;
  OffloadConfig offload;
  Index device_bytes = 0;           // device memory in bytes that a rank may use; 0: no limit
  std::optional<bool> planned_gpu;  // in plans for a described cluster: true if its devices are GPUs
  CheckpointConfig checkpoint;
  DumpConfig dump;
  TraceConfig trace;
  WatchSettings watch;
  FaultSettings fault;
  SuperviseSettings supervise;
  LogFormat log_format = LogFormat::short_lines;
  std::string open_metrics;  // file of the latest metrics in the OpenMetrics format; empty: none
  std::string output;

  // Lengths, in tokens, of text and encoder input for samples of train.seq_length tokens.
  TextLengths lengths() const;
  // Token-to-expert assignments in a step of `batch` sequences, over all layers; 0 if experts have no capacity limit.
  double limited_choices(Index batch) const;
  // Largest global batch of the run, in sequences.
  Index largest_batch() const;
  // First sample of the next batch of `batch` samples, if `first` is the next sample: skips the ranges in `skip` that
  // the batch would touch.
  static Index next_sample(Index first, Index batch, const std::vector<Span>& skip);
  // Global batch, in sequences, of the step that begins after `tokens` consumed tokens.
  Index batch_after(double tokens) const;
  // Samples or tokens that the first `steps` steps consume, or their number; in the unit of the schedule of the learning
  // rate.
  Index schedule_position(Index steps) const;
};

// Defaults of keys that the deck leaves out: the shape of the published Falcon-H1 0.5B, or of an existing model.
struct RunDefaults {
  RunDefaults();
  ModelConfig model;
  std::string tokenizer, precision = "fp32";
  Index seq_length = 1024;
  std::map<std::string, ModelConfig> models = {};  // shapes of the further models, by name
};

// Declares and reads every key of a run. The caller must call deck.finish() afterwards.
RunConfig read_run_config(Deck& deck, const RunDefaults& = {});
// Exit::config if the run would read padding as text. Checked for the deck of a run, but not for a stored model, so
// that older models can still be read.
void check_padding(const RunConfig&);
// Exit::config if the learning rate's decay ends within the warm-up. Checked for the deck of a run, but not for a stored model.
void check_schedule(const RunConfig&);
// Notes, one sentence each, about keys that the deck sets to a non-default value although only another objective reads
// them. Exit::config if the deck does not name its objective. Checked for the deck of a run, not for a stored model.
std::vector<std::string> idle_keys(const Deck&, const RunConfig&);
// Reads only train.init_from, which decides the defaults of the other keys.
std::string read_init_from(Deck& deck);
bool read_branch(Deck& deck);  // reads only train.branch
// Reads only output.folder.
std::string read_output_folder(Deck& deck);

// Number of heads, groups and channels that are sharded over tensor-parallel ranks, by deck key. The number of ranks
// must divide each or be a multiple of it. `separate_mixers`: leaves out the mixers of hybrid blocks, which have their own
// ranks.
std::map<std::string, Index> sharded_units(ModelConfig, bool separate_mixers = false);

// Layout of a run on `ranks` ranks. Exit::config with the rule that the deck violates, and the nearest valid grids.
Layout layout_of(const RunConfig&, int ranks);

}  // namespace gyr
