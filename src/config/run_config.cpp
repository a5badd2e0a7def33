// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/run_config.hpp"

#include <algorithm>
#include <map>

#include "modules/flops.hpp"
#include "modules/objective.hpp"
#include "src/config/bounds.hpp"
#include "src/data/dataset.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

namespace {

std::vector<std::string> names_of(const std::vector<Weight>& weights) {
  std::vector<std::string> names;
  for (const Weight& w : weights) names.push_back(w.name);
  return names;
}

// What the data section and what is done with the data must not be together.
void check_data(const RunConfig& run) {
  require(run.train.non_finite != NonFinite::rollback || run.data.order != "megatron", Exit::config,
          "train.non_finite = rollback needs data.order shuffled: the megatron order depends on how many samples are read");
  require(run.train.eval_every == 0 || split_shares(run.data.split)->at(1) > 0, Exit::config,
          "train.eval_every = {} evaluates on the validation split, and data.split = {} gives it nothing", run.train.eval_every, run.data.split);
}

Section& model_section(Deck& deck) { return deck.section("model", "shape of the model", Effect::function); }
Section& data_section(Deck& deck) { return deck.section("data", "token files", Effect::course); }
Section& train_section(Deck& deck) { return deck.section("train", "what a step is and how many there are", Effect::course); }

// The convolution reads what precedes a block of tokens from the rank that has the block before it, and from no other.
void check_context(const Layout& layout, const RunConfig& run) {
  const SequenceLayout s = layout.sequences(0, 1, run.train.seq_length);
  if (!s.shared() || run.model.pattern.find_first_of("PM") == std::string::npos) return;
  const Index least = run.model.mamba.conv_kernel - 1, most = run.train.seq_length / std::max<Index>(1, least * s.blocks());
  require(s.block_length() >= least, Exit::config,
          "parallel.context = {}: sequences of {} tokens leave blocks of {}, and a convolution of model.mamba.conv_kernel = {} reads {} before each; "
          "take {} ranks or fewer, or longer sequences",
          s.ranks, run.train.seq_length, s.block_length(), least + 1, least, std::max<Index>(1, most));
}

}  // namespace

RunDefaults::RunDefaults() { model.pattern.assign(36, 'P'); }

std::string read_init_from(Deck& deck) {
  model_section(deck), data_section(deck);  // sections are shown in the order in which they were first named
  return read_init_from(train_section(deck));
}

RunConfig read_run_config(Deck& deck, const RunDefaults& defaults) {
  deck.refuse_renamed();
  RunConfig run;
  read_init_from(deck);
  Section& model = model_section(deck);
  run.model = read_model_config(model, defaults.model);
  run.model.objective = read_objective(train_section(deck));
  check_bounds(run.model, model);
  run.data = read_data(data_section(deck), defaults.tokenizer);
  run.train = read_train(train_section(deck), defaults.precision, defaults.seq_length);
  Section& optimizer = deck.section("optimizer", "AdamW and its learning rate", Effect::course);
  run.optimizer = read_optimizer(optimizer, names_of(declared_weights(run.model)));
  run.lr = read_learning_rate(optimizer, run.train.steps);
  run.parallel = read_parallel(deck.section("parallel", "the grid: data x pipeline x context x tensor", Effect::none));
  run.recompute = read_recompute(deck.section("activation", "what is kept for the backward", Effect::none), run.model.pattern);
  run.checkpoint = read_checkpoint(deck.section("checkpoint", "saving", Effect::none));
  run.dump = read_dump(deck.section("dump", "a step's numbers, for people", Effect::none));
  run.trace = read_trace(deck.section("trace", "a step in time, for people", Effect::none));
  run.watch = read_watch(deck.section("watchdog", "ending a job that hangs", Effect::none));
  run.supervise = read_supervise(deck.section("supervise", "what gyrfalcon run watches", Effect::none));
  run.fault = read_fault(deck.section("fault", "injected faults, to test how a run survives failures", Effect::none));
  Section& output = deck.section("output", "where results go", Effect::none);
  run.output = output.get("folder", "out", "folder of checkpoints, logs and metrics").value();
  run.watch.lock_patience = output
                                .get("lock_seconds", run.watch.lock_patience,
                                     "time without a sign of life of a run on another machine that has not given the folder back, until this one "
                                     "takes it over; at once where the scheduler says that its job is gone")
                                .unit("s")
                                .positive();
  check_bounds(run, deck);
  check_data(run);
  return run;
}

Index RunConfig::largest_batch() const {
  Index most = 0;
  for (const BatchStep& step : train.batches()) most = std::max(most, step.batch);
  return most;
}

Index RunConfig::next_sample(Index first, Index batch, const std::vector<Span>& skip) {
  for (const Span& range : skip)
    if (first < range.last && first + batch > range.first) first = range.last;
  return first;
}

Index RunConfig::batch_after(double tokens) const {
  const std::vector<BatchStep> batches = train.batches();
  Index batch = batches.front().batch;
  for (const BatchStep& step : batches)
    if (tokens >= step.tokens) batch = step.batch;
  return batch;
}

std::map<std::string, Index> sharded_units(ModelConfig m) {
  std::sort(m.pattern.begin(), m.pattern.end());
  m.pattern.erase(std::unique(m.pattern.begin(), m.pattern.end()), m.pattern.end());  // a layer of each type
  std::map<std::string, Index> units;
  for (const Weight& w : declared_weights(m))
    if (const Sharding* sharding = w.sharding(Axis::tensor))
      for (const Run& run : sharding->runs)
        if (run.units > 0) units[std::string("model.") + run.key] = run.units;
  return units;
}

Layout layout_of(const RunConfig& run, int ranks) {
  const ParallelConfig& p = run.parallel;
  const ModelConfig& m = run.model;
  const std::map<std::string, Index> sharded = sharded_units(m);
  std::vector<Index> units;
  for (const auto& [key, count] : sharded) units.push_back(count);
  const int model_ranks = p.pipeline * p.context * p.tensor;
  const int data = p.data > 0 ? p.data : std::max(1, ranks / model_ranks);
  require(data * model_ranks == ranks, Exit::config,
          "parallel: {} x {} x {} x {} (data x pipeline x context x tensor) is {} ranks, but there are {}. Grids (data x pipeline x tensor) that fit "
          "this model on {} ranks: {}",
          data, p.pipeline, p.context, p.tensor, data * model_ranks, ranks, ranks, suitable_grids(ranks, m.layers(), units));
  for (const auto& [key, count] : sharded)
    require(count % p.tensor == 0 || p.tensor % count == 0, Exit::config,
            "{} = {} cannot be sharded over {} tensor ranks; set {} or parallel.tensor so that one divides the other", key, count, p.tensor, key);
  check_permutation(p.permutation, ranks);

  require(p.virtual_stages == 1 || p.pipeline > 1, Exit::config,
          "parallel.virtual_stages = {} interleaves the stages of several pipeline ranks; set parallel.pipeline to 2 or more, or leave it 1",
          p.virtual_stages);
  require(p.virtual_stages == 1 || p.one_chunk == one_f_one_b, Exit::config,
          "parallel.virtual_stages = {} interleaves 1f1b, parallel.schedule says otherwise; set parallel.schedule to 1f1b, or "
          "parallel.virtual_stages to 1",
          p.virtual_stages);
  require(!p.reduce_dtype || run.train.precision != "fp64", Exit::config,
          "parallel.reduce_dtype = bf16 is for gradients in fp32, and train.precision = fp64 adds them up in fp64; set it to full");
  require(!p.sequence || p.tensor > 1, Exit::config,
          "parallel.sequence shares the residual stream among tensor ranks, and there is one; set parallel.tensor to 2 or more, or leave it false");
  std::vector<Span> stages;
  if (p.layers.empty()) {
    const StageCosts costs = stage_costs(m, run.train.seq_length);
    stages = cut_stages(costs.layers, costs.embedding, costs.head, p.stages());
  } else {
    require(int(p.layers.size()) == p.stages(), Exit::config, "parallel.layers names {} stages, parallel.pipeline x parallel.virtual_stages says {}",
            p.layers.size(), p.stages());
    Index first = 0;
    for (const Index n : p.layers) stages.push_back({first, first + n}), first += n;
    require(first == m.layers(), Exit::config, "parallel.layers adds up to {} layers, the model has {}", first, m.layers());
  }
  for (const BatchStep& step : run.train.ramp.empty() ? std::vector<BatchStep>{{0, run.train.global_batch_size}} : run.train.ramp)
    require(step.batch % (data * run.train.micro_batch_size) == 0, Exit::config,
            "{}: {} sequences do not split into micro-batches of {} on {} data ranks; take a multiple of {}",
            run.train.ramp.empty() ? "train.global_batch_size" : "train.ramp", step.batch, run.train.micro_batch_size, data,
            data * run.train.micro_batch_size);
  Layout layout = grid_layout(data, p.pipeline, p.tensor, std::move(stages), p.permutation, p.order, p.context);
  layout.sequence = p.sequence;
  layout.context_mode = p.context_mode;
  layout.order = p.context_mode == ContextMode::ring ? SequenceOrder::zigzag : SequenceOrder::contiguous;
  check_context(layout, run);
  layout.shard = p.shard;
  layout.bucket_bytes = p.bucket_bytes;
  return layout;
}

}  // namespace gyr
