// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/run_config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>

#include "modules/flops.hpp"
#include "modules/layer.hpp"
#include "src/base/weight_pattern.hpp"
#include "src/config/bounds.hpp"
#include "src/data/dataset.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

AttentionConfig read_attention(Section s, const AttentionConfig& d) {
  AttentionConfig c = d;
  c.num_heads = s.get("num_heads", d.num_heads, "query heads, sharded over the tensor axis").positive().at_most(widest);
  c.num_kv_heads = s.get("num_kv_heads", d.num_kv_heads, "key/value heads; fewer than tensor ranks: neighbours share one").positive().at_most(widest);
  c.head_dim = s.get("head_dim", d.head_dim, "channels of a head").positive().multiple_of(2).at_most(widest);
  c.rope_theta = s.get("rope_theta", d.rope_theta, "base of the rotary positions").positive();
  c.bias = s.get("bias", d.bias, "biases on q, k, v and o");
  c.in_multiplier = s.get("in_multiplier", d.in_multiplier, "scales the normed input");
  c.key_multiplier = s.get("key_multiplier", d.key_multiplier, "scales the keys");
  c.out_multiplier = s.get("out_multiplier", d.out_multiplier, "scales the output");
  return c;
}

const char* name_of(SsmNorm norm) { return norm == SsmNorm::none ? "none" : norm == SsmNorm::gate_first ? "gate_first" : "norm_first"; }

MambaConfig read_mamba(Section s, const MambaConfig& d) {
  MambaConfig c = d;
  c.num_heads = s.get("num_heads", d.num_heads, "SSM heads, sharded over the tensor axis").positive().at_most(widest);
  c.head_dim = s.get("head_dim", d.head_dim, "channels of a head").positive().at_most(widest);
  c.num_groups = s.get("num_groups", d.num_groups, "groups of heads that share B and C").positive().at_most(widest);
  c.state_size = s.get("state_size", d.state_size, "SSM state per channel").positive().at_most(widest);
  c.conv_kernel = s.get("conv_kernel", d.conv_kernel, "tokens that the causal convolution reads for each").unit("tokens").at_least(2).at_most(16);
  c.chunk_size = s.get("chunk_size", d.chunk_size, "chunk length of the SSD scan; changes rounding only")
                     .unit("tokens")
                     .positive()
                     .at_most(longest)
                     .effect(Effect::none);
  const std::string norm = s.get("norm", name_of(d.norm), "gated RMSNorm: norm(y silu(z)), norm(y) silu(z), or plain y silu(z)")
                               .one_of({"none", "gate_first", "norm_first"});
  c.norm = norm == "none" ? SsmNorm::none : norm == "gate_first" ? SsmNorm::gate_first : SsmNorm::norm_first;
  c.conv_bias = s.get("conv_bias", d.conv_bias, "bias of the convolution");
  c.in_bias = s.get("in_bias", d.in_bias, "bias of in_proj");
  c.out_bias = s.get("out_bias", d.out_bias, "bias of out_proj");
  const std::vector<double> limit = s.get("dt_limit", std::vector<double>{d.dt_low, d.dt_high}, "clamp of the time step: least, greatest");
  require(limit.size() == 2, Exit::config, "model.mamba.dt_limit takes two numbers, not {}", limit.size());
  c.dt_low = limit[0], c.dt_high = limit[1];
  c.dt_init_low = s.get("dt_init_low", d.dt_init_low, "least initial time step").positive().effect(Effect::none);
  c.dt_init_high = s.get("dt_init_high", d.dt_init_high, "greatest initial time step").positive().effect(Effect::none);
  c.in_multiplier = s.get("in_multiplier", d.in_multiplier, "scales the normed input");
  c.out_multiplier = s.get("out_multiplier", d.out_multiplier, "scales the output");
  const std::vector<double> m =
      s.get("multipliers", std::vector<double>(d.multipliers.begin(), d.multipliers.end()), "scale the projected z, x, B, C and dt");
  require(m.size() == 5, Exit::config, "model.mamba.multipliers takes five numbers (z, x, B, C, dt), not {}", m.size());
  std::copy(m.begin(), m.end(), c.multipliers.begin());
  c.decay_conv = s.get("decay_conv", d.decay_conv, "weight decay on the convolution's weights").effect(Effect::course);
  return c;
}

MlpConfig read_mlp(Section s, const MlpConfig& d) {
  MlpConfig c = d;
  c.intermediate_size = s.get("intermediate_size", d.intermediate_size, "inner channels, sharded over the tensor axis").positive().at_most(widest);
  c.bias = s.get("bias", d.bias, "biases on gate, up and down");
  c.gate_multiplier = s.get("gate_multiplier", d.gate_multiplier, "scales the gate before SiLU");
  c.down_multiplier = s.get("down_multiplier", d.down_multiplier, "scales the output");
  return c;
}

// "PP*-" or, for long models, "P x 72".
std::string read_pattern(Section s, const std::string& otherwise, const std::string& help) {
  auto setting = s.get("pattern", otherwise, help).not_empty();
  const std::string pattern = setting;
  const auto x = pattern.find(" x ");
  const std::string symbols = pattern.substr(0, x);
  Index count = 1;
  if (x != std::string::npos) {
    const char *begin = pattern.data() + x + 3, *end = pattern.data() + pattern.size();
    const auto [rest, error] = std::from_chars(begin, end, count);
    setting.must("COUNT is a whole number above 0", begin != end && rest == end && error != std::errc::invalid_argument && count > 0);
    if (error == std::errc::result_out_of_range) count = most_layers + 1;
  }
  setting.must(fmt::format("at most {} layers", most_layers), count <= most_layers && count * Index(symbols.size()) <= most_layers).value();
  std::string all;
  for (Index i = 0; i < count; ++i) all += symbols;
  return all;
}

// The way back: "P x 72" where all layers are alike.
std::string contract_pattern(const std::string& pattern) {
  const bool alike = pattern.size() > 1 && pattern.find_first_not_of(pattern[0]) == std::string::npos;
  return alike ? fmt::format("{} x {}", pattern[0], pattern.size()) : pattern;
}

std::string pattern_help() {
  std::string text = "a symbol per layer, or 'SYMBOLS x COUNT':";
  for (const LayerType& type : layer_types()) text += fmt::format(" {} {};", type.symbol, type.help);
  text.pop_back();
  return text;
}

constexpr Index most_skipped = Index(1) << 60;

std::vector<Span> read_skip(const std::vector<std::string>& entries) {
  std::vector<Span> skip;
  for (const std::string& entry : entries) {
    Index first = 0, count = 0;
    char rest = 0;
    const bool pair = std::sscanf(entry.c_str(), "%ld:%ld%c", &first, &count, &rest) == 2 && first >= 0 && first <= most_skipped && count > 0 &&
                      count <= most_skipped;
    require(pair && (skip.empty() || skip.back().last <= first), Exit::config,
            "data.skip: '{}' is not 'FIRST:COUNT' with rising samples, as in [\"640:32\", \"1280:32\"]", entry);
    skip.push_back({first, first + count});
  }
  return skip;
}

DataConfig read_data(Section s, const RunDefaults& d) {
  DataConfig c;
  auto prefixes = s.get("prefixes", std::vector<std::string>{},
                        "token files, each PREFIX.bin and PREFIX.idx; with PREFIX_mask.bin and .idx only marked tokens are predicted");
  c.prefixes = prefixes.must("no empty name", std::count(prefixes.value().begin(), prefixes.value().end(), "") == 0).value();
  c.weights = s.get("weights", std::vector<double>{}, "share of each prefix in the blend; none: by size").positive().finite().value();
  require(c.weights.empty() || c.weights.size() == c.prefixes.size(), Exit::config, "data.weights has {} numbers for {} prefixes", c.weights.size(),
          c.prefixes.size());
  auto split = s.get("split", "949,50,1", "train, validation and test shares of the documents");
  const auto shares = split_shares(split.value());
  c.split = split.must("one to three numbers, the first above 0, as in 949,50,1", shares && shares->at(0) > 0).value();
  c.order = s.get("order", "shuffled", "order of samples; megatron: Megatron-LM's own; documents: whole documents packed into windows")
                .one_of({"shuffled", "megatron", "documents"});
  require(c.order != "megatron" || c.prefixes.size() <= 1 || !c.weights.empty(), Exit::config,
          "data.order megatron needs a share of each of the {} prefixes in data.weights", c.prefixes.size());
  const std::string documents =
      s.get("documents", "joined", "separate: documents of a window do not see or predict each other, positions begin at 0 in each")
          .one_of({"joined", "separate"});
  c.separate = documents == "separate";
  c.tokenizer = s.get("tokenizer", d.tokenizer, "tokenizer.json of the data; samples are printed as text with it").effect(Effect::none).value();
  c.seed = std::uint64_t(Index(s.get("seed", 1234, "seed of the sample order").at_least(0)));
  c.skip = read_skip(s.get("skip", std::vector<std::string>{}, "samples that no step takes: FIRST:COUNT; a batch begins behind them").value());
  require(c.skip.empty() || c.order != "megatron", Exit::config,
          "data.skip does not go with data.order megatron: that order depends on how many samples are read");
  return c;
}

std::vector<BatchStep> read_ramp(const std::vector<std::string>& entries) {
  std::vector<BatchStep> ramp;
  for (const std::string& entry : entries) {
    BatchStep step{};
    char* end = nullptr;
    step.tokens = std::strtod(entry.c_str(), &end);
    const bool number = end != entry.c_str() && *end == ':';
    if (number) step.batch = std::strtoll(end + 1, &end, 10);
    require(number && *end == 0 && step.batch > 0 && step.batch <= most_sequences && step.tokens >= 0 &&
                (ramp.empty() || ramp.back().tokens < step.tokens),
            Exit::config, "train.ramp: '{}' is not 'TOKENS:SEQUENCES' with rising tokens, as in [\"0:16\", \"1e6:64\"]", entry);
    ramp.push_back(step);
  }
  return ramp;
}

std::string init_from(Section train) {
  return train.get("init_from", "", "weights to start from: Hugging Face folder or checkpoint (.h5); model keys default to its shape")
      .effect(Effect::none)
      .value();
}

TrainConfig read_train(Section s, const RunDefaults& d) {
  TrainConfig c;
  c.init_from = init_from(s);
  c.precision =
      s.get("precision", d.precision, "arithmetic; bf16: bf16 storage and products, fp32 sums and masters").one_of({"fp32", "fp64", "bf16"});
  c.steps = s.get("steps", 1000, "optimizer steps").at_least(0).at_most(most_steps);
  c.global_batch_size = s.get("global_batch_size", 8, "sequences in a step, over all ranks").positive().at_most(most_sequences);
  c.micro_batch_size = s.get("micro_batch_size", 1, "sequences in a micro-batch of a rank").positive().at_most(most_sequences).effect(Effect::none);
  c.seq_length = s.get("seq_length", d.seq_length, "tokens in a sequence").unit("tokens").positive().at_most(longest);
  c.ramp = read_ramp(s.get("ramp", std::vector<std::string>{}, "batch by consumed tokens: TOKENS:SEQUENCES; the last one stays").value());
  c.eval_every = s.get("eval_every", 0, "steps between evaluations on the validation split; 0: never")
                     .unit("steps")
                     .at_least(0)
                     .at_most(most_steps)
                     .effect(Effect::none);
  c.eval_batches = s.get("eval_batches", 8, "global batches of an evaluation").positive().at_most(most_sequences).effect(Effect::none);
  c.log_every = s.get("log_every", 1, "steps between log lines").unit("steps").positive().at_most(most_steps).effect(Effect::none);
  c.seed = std::uint64_t(Index(s.get("seed", 1, "seed of the initial weights").at_least(0)));
  c.walltime = walltime_seconds(
      s.get("walltime", "", "time of the job, hh:mm:ss or minutes: the run saves and ends with code 75 before it is over; empty or 0: none")
          .effect(Effect::none)
          .value());
  const std::string policy =
      s.get("non_finite", "stop",
            "where loss or gradient is not finite: end the run, leave out the update, or go back to the last checkpoint and leave out the batch")
          .one_of({"stop", "skip", "rollback"});
  c.non_finite = policy == "skip" ? NonFinite::skip : policy == "rollback" ? NonFinite::rollback : NonFinite::stop;
  c.max_skips = s.get("max_skips", 10, "batches left out in a row that end the run with code 80").at_least(1).at_most(most_steps);
  auto spike =
      s.get("spike", 0.0, "a loss so many times the mean of the last 32 is treated as train.non_finite says; 0: any loss is fine").at_least(0);
  c.spike = spike.must("0 or above 1", spike.value() == 0 || spike.value() > 1);
  c.check_replicas = s.get("check_replicas", 0, "steps between comparisons of the weights over the data axis, also before each save; 0: never")
                         .unit("steps")
                         .at_least(0)
                         .at_most(most_steps)
                         .effect(Effect::none);
  return c;
}

WatchSettings read_watch(Section s) {
  WatchSettings c;
  c.patience =
      s.get("seconds", 600.0, "time without progress of a rank, in computation or in any communicator, until the job is ended with code 75; 0: never")
          .unit("s")
          .at_least(0);
  c.interval = s.get("heartbeat", 1.0, "time between records in OUTPUT/heartbeat.bin").unit("s").at_least(0.01).at_most(60);
  return c;
}

FaultSettings read_fault(Section s) {
  FaultSettings c = parse_fault(
      s.get("kind", "", "for tests: kill, stop, hang, exit:CODE, slow:FACTOR, nan, bitflip:BIT, gradflip:BIT or scale:FACTOR; empty: none").value());
  c.rank = s.get("rank", 0, "the rank it happens to").at_least(0);
  c.step = s.get("step", 1, "the step before which it happens").positive().at_most(most_steps);
  c.attempt = s.get("attempt", 0, "the attempt it happens in, as counted by gyrfalcon run; -1: every one").at_least(-1);
  return c;
}

SuperviseSettings read_supervise(Section s) {
  SuperviseSettings c;
  c.max_restarts = s.get("max_restarts", c.max_restarts, "restarts until gyrfalcon run gives up").at_least(0);
  c.stale = s.get("stale", c.stale, "time in which no rank moves until the job is ended; five times the median step where that is more")
                .unit("s")
                .positive();
  c.silent = s.get("silent", c.silent, "time without a heartbeat of a rank until it is taken for lost").unit("s").positive();
  c.slow = s.get("slow", c.slow, "a rank that works so many times as long as the median rank is reported").above(1);
  c.slow_steps = s.get("slow_steps", c.slow_steps, "steps over which that is measured").unit("steps").positive().at_most(most_steps);
  return c;
}

std::vector<std::string> names_of(const std::vector<Weight>& weights) {
  std::vector<std::string> names;
  for (const Weight& w : weights) names.push_back(w.name);
  return names;
}

OptimizerConfig read_optimizer(Section s, const std::vector<std::string>& weights) {
  OptimizerConfig c;
  c.beta1 = s.get("beta1", 0.9, "decay of the first moment").at_least(0).below(1);
  c.beta2 = s.get("beta2", 0.95, "decay of the second moment").at_least(0).below(1);
  c.epsilon = s.get("epsilon", 1e-8, "added to the root of the second moment").positive();
  c.weight_decay = s.get("weight_decay", 0.1, "weight decay of matrices").at_least(0);
  c.clip_grad = s.get("clip_grad", 1.0, "largest global gradient norm; 0: no clipping").at_least(0);
  const std::vector<std::string> patterns =
      s.get("groups", std::vector<std::string>{},
            "parameter groups: patterns of names, e.g. [\"*.A_log\", \"*embed_tokens*\"]; of several that match a weight the last one counts alone");
  const std::vector<double> lrs =
      s.get("group_lrs", std::vector<double>{}, "factor on the learning rate of each group; to freeze, see frozen").positive();
  const std::vector<double> weight_decays =
      s.get("group_weight_decays", std::vector<double>{}, "factor on the weight decay of each group").at_least(0);
  require(lrs.empty() || lrs.size() == patterns.size(), Exit::config, "optimizer.group_lrs has {} numbers for {} groups", lrs.size(),
          patterns.size());
  require(weight_decays.empty() || weight_decays.size() == patterns.size(), Exit::config,
          "optimizer.group_weight_decays has {} numbers for {} groups", weight_decays.size(), patterns.size());
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const double lr = lrs.empty() ? 1 : lrs[i];
    c.groups.push_back({patterns[i], lr, weight_decays.empty() ? 1 : weight_decays[i]});
  }
  c.frozen =
      s.get("frozen", std::vector<std::string>{}, "weights that stay as they are: patterns of names, e.g. [\"model.layers.*.mamba.*\"]").value();
  check_patterns("optimizer.groups", patterns, weights);
  check_patterns("optimizer.frozen", c.frozen, weights);
  require(c.frozen.empty() || !std::all_of(weights.begin(), weights.end(), [&](const auto& name) { return matches_any(c.frozen, name); }),
          Exit::config, "optimizer.frozen leaves no weight to train");
  return c;
}

LearningRate read_learning_rate(Section s, Index steps) {
  LearningRate r;
  r.schedule =
      s.get("schedule", "cosine", "decay of the learning rate after the warm-up").one_of({"constant", "linear", "cosine", "inverse-sqrt", "wsd"});
  r.lr = s.get("lr", 1e-3, "learning rate after the warm-up").at_least(0).finite();
  r.min_lr = s.get("min_lr", 0.0, "learning rate at the end of the decay").at_least(0).finite();
  r.warmup_steps = s.get("warmup_steps", 100, "length of the linear warm-up").unit("steps").at_least(0).at_most(most_steps);
  const Index end = s.get("decay_steps", 0, "step where the decay ends; 0: train.steps").unit("steps").at_least(0).at_most(most_steps);
  r.decay_steps = end > 0 ? end : steps;
  r.wsd_decay = s.get("wsd_decay", 100, "length of the final decay of wsd").unit("steps").positive().at_most(most_steps);
  r.wsd_shape = s.get("wsd_shape", "exponential", "shape of the final decay of wsd").one_of({"linear", "cosine", "exponential", "minus-sqrt"});
  return r;
}

ParallelConfig read_parallel(Section s) {
  ParallelConfig c;
  c.data = s.get("data", 0, "ranks of the data axis; 0: as many as the other axes leave").at_least(0).at_most(most_ranks);
  c.pipeline = s.get("pipeline", 1, "ranks of the pipeline axis").positive().at_most(most_axis);
  c.tensor = s.get("tensor", 1, "ranks of the tensor axis").positive().at_most(most_axis);
  c.order = axis_order(s.get("order", default_axis_order(), "the axes, outermost first: neighbours along the last are neighbours in rank").value());
  const std::vector<Index> permutation =
      s.get("permutation", std::vector<Index>{}, "rank at each position of the grid; none: in order").at_least(0).at_most(most_ranks);
  c.permutation.assign(permutation.begin(), permutation.end());
  c.layers = s.get("layers", std::vector<Index>{}, "layers of each pipeline stage; none: cut by cost").positive().at_most(most_layers).value();
  c.bucket_bytes = Index(s.get("bucket", 32, "gradients reduced together over the data axis").unit("MiB").positive().at_most(1 << 20)) << 20;
  return c;
}

CheckpointConfig read_checkpoint(Section s) {
  CheckpointConfig c;
  c.every = s.get("every", 0, "steps between checkpoints; 0: only at the end").unit("steps").at_least(0).at_most(most_steps);
  c.keep = s.get("keep", 2, "newest checkpoints that stay").positive().at_most(1 << 20);
  c.keep_every =
      s.get("keep_every", 0, "checkpoints of multiples of so many steps stay for ever; 0: none").unit("steps").at_least(0).at_most(most_steps);
  c.files = s.get("files", "rank", "who writes a file: every rank, the first rank of each node for all of it, or a single rank for all")
                .one_of({"rank", "node", "single"});
  c.async = s.get("async", false, "the steps go on while a copy in memory is written; the copy takes as much as the rank's file");
  c.deflate = s.get("deflate", 0, "compression; 0: none. Weights hardly shrink").at_least(0).at_most(9);
  c.verify = s.get("verify", true, "read every file again before its checkpoint counts");
  c.read = s.get("read", "all", "ranks with the same weights each read them, or one reads and tells the others").one_of({"all", "broadcast"});
  return c;
}

DumpConfig read_dump(Section s) {
  DumpConfig c;
  c.steps = s.get("steps", std::vector<Index>{}, "steps whose numbers go to OUTPUT/dumps/step_N, for gyrfalcon info and diff, h5py and the like")
                .positive()
                .at_most(most_steps)
                .value();
  const std::vector<std::string> roots{"/activations/", "/gradients/", "/model/"};
  c.what = s.get("what", std::vector<std::string>{"/activations/*", "/gradients/*", "/model/*"},
                 "patterns of the tensors' paths, as /gradients/layers/0/*; /model/ holds the weights")
               .value();
  for (const std::string& pattern : c.what)
    require(std::any_of(roots.begin(), roots.end(), [&](const std::string& root) { return pattern.starts_with(root); }), Exit::config,
            "dump.what: '{}' begins with none of /activations/, /gradients/ and /model/", pattern);
  require(c.steps.empty() || !c.what.empty(), Exit::config, "dump.what is empty: name what dump.steps shall hold, as [\"/gradients/*\"]");
  return c;
}

ModelConfig read_model_config(Section s, const ModelConfig& d) {
  ModelConfig c = d;
  c.pattern = read_pattern(s, contract_pattern(d.pattern), pattern_help());
  c.vocab_size = s.get("vocab_size", d.vocab_size, "tokens of the vocabulary").at_least(2).at_most(most_tokens);
  c.hidden_size = s.get("hidden_size", d.hidden_size, "channels of the residual stream").positive().at_most(widest);
  c.rms_norm_eps = s.get("rms_norm_eps", d.rms_norm_eps, "added to the mean square in every norm").at_least(0);
  c.tie_word_embeddings = s.get("tie_word_embeddings", d.tie_word_embeddings, "the head uses the embedding's matrix");
  c.embedding_multiplier = s.get("embedding_multiplier", d.embedding_multiplier, "scales the embedding");
  c.lm_head_multiplier = s.get("lm_head_multiplier", d.lm_head_multiplier, "scales the logits");
  c.init_std = s.get("init_std", d.init_std, "standard deviation of initial matrices").at_least(0).at_most(1000).effect(Effect::none);
  c.pad_token_id = s.get("pad_token_id", d.pad_token_id, "token whose embedding takes no gradient; -1: none")
                       .at_least(-1)
                       .at_most(most_tokens)
                       .effect(Effect::course);
  c.attention = read_attention(s.section("attention", "grouped-query attention"), d.attention);
  c.mamba = read_mamba(s.section("mamba", "Mamba-2 state-space branch"), d.mamba);
  c.mlp = read_mlp(s.section("mlp", "SwiGLU block"), d.mlp);
  check(c);
  check_bounds(c, s);
  return c;
}

// What the data section and what is done with the data must not be together.
void check_data(const RunConfig& run) {
  require(run.train.non_finite != NonFinite::rollback || run.data.order != "megatron", Exit::config,
          "train.non_finite = rollback needs data.order shuffled: the megatron order depends on how many samples are read");
  require(run.train.eval_every == 0 || split_shares(run.data.split)->at(1) > 0, Exit::config,
          "train.eval_every = {} evaluates on the validation split, and data.split = {} gives it nothing", run.train.eval_every, run.data.split);
}

Section model_section(Deck& deck) { return deck.section("model", "shape of the model", Effect::function); }
Section data_section(Deck& deck) { return deck.section("data", "token files", Effect::course); }
Section train_section(Deck& deck) { return deck.section("train", "what a step is and how many there are", Effect::course); }

}  // namespace

RunDefaults::RunDefaults() { model.pattern.assign(36, 'P'); }

std::string read_init_from(Deck& deck) {
  model_section(deck), data_section(deck);  // sections are shown in the order in which they were first named
  return init_from(train_section(deck));
}

RunConfig read_run_config(Deck& deck, const RunDefaults& defaults) {
  deck.refuse_renamed();
  RunConfig run;
  run.model = read_model_config(model_section(deck), defaults.model);
  run.data = read_data(data_section(deck), defaults);
  run.train = read_train(train_section(deck), defaults);
  Section optimizer = deck.section("optimizer", "AdamW and its learning rate", Effect::course);
  run.optimizer = read_optimizer(optimizer, names_of(declared_weights(run.model)));
  run.lr = read_learning_rate(optimizer, run.train.steps);
  run.parallel = read_parallel(deck.section("parallel", "the grid: data x pipeline x tensor", Effect::none));
  Section checkpoint = deck.section("checkpoint", "saving", Effect::none);
  run.checkpoint = read_checkpoint(checkpoint);
  run.dump = read_dump(deck.section("dump", "a step's numbers, for people", Effect::none));
  run.watch = read_watch(deck.section("watchdog", "ending a job that hangs", Effect::none));
  run.supervise = read_supervise(deck.section("supervise", "what gyrfalcon run watches", Effect::none));
  run.fault = read_fault(deck.section("fault", "injected faults, to test how a run survives failures", Effect::none));
  Section output = deck.section("output", "where results go", Effect::none);
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
  Index most = train.ramp.empty() ? train.global_batch_size : 0;
  for (const BatchStep& step : train.ramp) most = std::max(most, step.batch);
  return most;
}

Index RunConfig::next_sample(Index first, Index batch, const std::vector<Span>& skip) {
  for (const Span& range : skip)
    if (first < range.last && first + batch > range.first) first = range.last;
  return first;
}

Index RunConfig::batch_after(double tokens) const {
  Index batch = train.ramp.empty() ? train.global_batch_size : train.ramp.front().batch;
  for (const BatchStep& step : train.ramp)
    if (tokens >= step.tokens) batch = step.batch;
  return batch;
}

namespace {

// How many units (heads, groups or channels) are sharded over the tensor axis, by the deck's key.
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

}  // namespace

Layout layout_of(const RunConfig& run, int ranks) {
  const ParallelConfig& p = run.parallel;
  const ModelConfig& m = run.model;
  const std::map<std::string, Index> sharded = sharded_units(m);
  std::vector<Index> units;
  for (const auto& [key, count] : sharded) units.push_back(count);
  const int model_ranks = p.pipeline * p.tensor;
  const int data = p.data > 0 ? p.data : std::max(1, ranks / model_ranks);
  require(data * model_ranks == ranks, Exit::config,
          "parallel: {} x {} x {} (data x pipeline x tensor) is {} ranks, but there are {}. Grids that fit this model on {} ranks: {}", data,
          p.pipeline, p.tensor, data * model_ranks, ranks, ranks, suitable_grids(ranks, m.layers(), units));
  for (const auto& [key, count] : sharded)
    require(count % p.tensor == 0 || p.tensor % count == 0, Exit::config,
            "{} = {} cannot be sharded over {} tensor ranks; set {} or parallel.tensor so that one divides the other", key, count, p.tensor, key);
  check_permutation(p.permutation, ranks);

  std::vector<Span> stages;
  if (p.layers.empty()) {
    const StageCosts costs = stage_costs(m, run.train.seq_length);
    stages = cut_stages(costs.layers, costs.embedding, costs.head, p.pipeline);
  } else {
    require(int(p.layers.size()) == p.pipeline, Exit::config, "parallel.layers names {} stages, parallel.pipeline says {}", p.layers.size(),
            p.pipeline);
    Index first = 0;
    for (const Index n : p.layers) stages.push_back({first, first + n}), first += n;
    require(first == m.layers(), Exit::config, "parallel.layers adds up to {} layers, the model has {}", first, m.layers());
  }
  for (const BatchStep& step : run.train.ramp.empty() ? std::vector<BatchStep>{{0, run.train.global_batch_size}} : run.train.ramp)
    require(step.batch % (data * run.train.micro_batch_size) == 0, Exit::config,
            "train.global_batch_size: {} sequences do not split into micro-batches of {} on {} data ranks; take a multiple of {}", step.batch,
            run.train.micro_batch_size, data, data * run.train.micro_batch_size);
  return grid_layout(data, p.pipeline, p.tensor, std::move(stages), p.permutation, p.order);
}

EngineConfig engine_config(const RunConfig& run, const Layout& layout) {
  EngineConfig c;
  c.model = run.model;
  c.optimizer = run.optimizer;
  c.micro_batch_size = run.train.micro_batch_size;
  c.seq_length = run.train.seq_length;
  c.micros = int(run.largest_batch() / (layout.size(Axis::data) * run.train.micro_batch_size));
  c.bucket_bytes = run.parallel.bucket_bytes;
  c.must_be_finite = run.train.non_finite == NonFinite::stop;
  return c;
}

}  // namespace gyr
