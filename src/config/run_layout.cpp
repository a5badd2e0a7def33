// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <numeric>

#include "modules/context/head_exchange.hpp"
#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/config/layout_rules.hpp"
#include "src/config/mixer_split.hpp"
#include "src/config/run_config.hpp"

namespace gyr {

std::map<std::string, Index> sharded_units(ModelConfig m, bool separate_mixers) {
  if (m.objective->depths() > 0) m.pattern = all_layers(m), m.objective = next_token();
  for (char& symbol : m.pattern)
    if (const char rest = layer_type(symbol).traits.without_mixers; separate_mixers && rest) symbol = rest;
  std::sort(m.pattern.begin(), m.pattern.end());
  m.pattern.erase(std::unique(m.pattern.begin(), m.pattern.end()), m.pattern.end());  // keeps one layer of each type
  std::map<std::string, Index> units;
  for (const Weight& w : declared_weights(m))
    if (const Sharding* sharding = w.sharding(Axis::tensor))
      for (const Run& run : sharding->runs)
        if (run.units > 0) units[std::string("model.") + run.key] = run.units;
  return units;
}

// Requirements on sequences that context-parallel ranks share. A convolution reads the tokens before its block only
// from the rank that has the preceding block.
void check_context(const Layout& layout, const RunConfig& run) {
  const SequenceLayout s = layout.sequences(0, 1, run.train.seq_length);
  const std::string layers = all_layers(run.model);
  const bool all_causal = run.model.attention.causal && !has_encoder(run.model);
  require(!s.shared() || s.mode != ContextMode::balanced || all_causal, Exit::config,
          "parallel.context_mode = balanced is for causal attention, and attention {} is bidirectional; set it to ring or heads",
          run.model.attention.causal ? "in front of the '>' of model.pattern" : "with model.attention.causal = false");
  if (s.shared() && s.mode == ContextMode::heads)
    for (const Stack& stack : stacks_of(run.model))
      for (const LayerType& type : layer_types()) {
        if (!type.traits.heads || layers.find(type.symbol) == std::string::npos) continue;
        const auto [query, shared] = type.traits.heads(stack.config);
        const Index ranks = type.traits.without_mixers && layout.attention_ranks > 0 ? layout.attention_ranks : layout.size(Axis::tensor);
        check_head_exchange(std::max<Index>(1, query / ranks), std::max<Index>(1, shared / ranks), s.ranks);
      }
  require(!s.shared() || !reads_images(run.model), Exit::config,
          "parallel.context = {}: a vision tower (V of model.pattern) reads the images of full sequences; set it to 1, and shard by parallel.tensor",
          s.ranks);
  const Index chunk = run.model.retrieval.chunk, divisor = s.ranks * s.blocks() * chunk;
  require(!s.shared() || !reads_neighbours(run.model) || run.train.seq_length % divisor == 0, Exit::config,
          "parallel.context = {}: sequences of {} tokens are no {} blocks of full chunks of model.retrieval.chunk = {}, which layers R need; set "
          "train.seq_length to a multiple of {}, or take fewer ranks",
          s.ranks, run.train.seq_length, s.ranks * s.blocks(), chunk, divisor);
  for (const LayerType& type : layer_types()) {
    const ConvolutionWidth& width = type.traits.convolution;
    if (!s.shared() || !width.tokens || layers.find(type.symbol) == std::string::npos) continue;
    const Index least = width.tokens(run.model) - 1, most = run.train.seq_length / std::max<Index>(1, least * s.blocks());
    require(s.block_length() >= least, Exit::config,
            "parallel.context = {}: sequences of {} tokens leave blocks of {}, but the convolution of model.{} = {} reads {} tokens "
            "before each; take {} ranks or fewer, or longer sequences",
            s.ranks, run.train.seq_length, s.block_length(), width.key, least + 1, least, std::max<Index>(1, most));
  }
}

// Expert-parallel ranks must have the same number of experts each and freeze the same matrices, because the trained
// weights decide how far a rank's backward pass goes.
void check_experts(const RunConfig& run, int data) {
  const int ranks = run.parallel.expert, tokens = data * run.parallel.context;
  if (ranks == 1) return;
  require(has_layer(all_layers(run.model), &LayerTraits::experts), Exit::config,
          "parallel.expert = {} distributes the experts of E layers over ranks, but model.pattern has none; set it to 1", ranks);
  require(tokens % ranks == 0, Exit::config, "parallel.expert = {} must divide the {} ranks of data x context", ranks, tokens);
  require(run.model.moe.experts % ranks == 0, Exit::config,
          "parallel.expert = {} ranks cannot hold model.moe.experts = {} in equal parts; set parallel.expert to a divisor", ranks,
          run.model.moe.experts);
  const double capacity = run.parallel.expert_receive_capacity;
  require(capacity == 0 || capacity >= 1, Exit::config,
          "parallel.expert_room = {} is less than balanced routing needs; set it to 1 or more, or to 0 for any routing", capacity);
  if (run.optimizer.frozen.empty() && !run.optimizer.lora) return;
  const Trained trained = run.optimizer.trained();
  std::map<std::string, const Weight*> first;  // by weight name with * for the expert index: weight of the first expert
  const std::vector<Weight> weights = declared_weights(run.model);
  for (const Weight& w : weights) {
    if (!w.expert) continue;
    std::string kind = w.name;
    const std::string number = fmt::format(".experts.{}.", w.expert.number);
    kind.replace(kind.rfind(number), number.size(), ".experts.*.");
    const Weight& other = *first.emplace(kind, &w).first->second;
    require(
        trained(w) == trained(other), Exit::config,
        "optimizer.frozen: {} is frozen and {} is not; expert-parallel ranks must train the same matrices of each expert: freeze all or none, or set "
        "parallel.expert to 1",
        trained(w) ? other.name : w.name, trained(w) ? w.name : other.name);
  }
}

void check_sharding(const RunConfig& run, int attention_ranks) {
  const int tensor = run.parallel.tensor;
  for (const auto& [key, count] : sharded_units(run.model, attention_ranks > 0))
    require(count % tensor == 0 || tensor % count == 0, Exit::config,
            "{} = {} cannot be sharded over {} tensor ranks; set {} or parallel.tensor so that one divides the other", key, count, tensor, key);
  require(!run.parallel.sequence || tensor > 1, Exit::config,
          "parallel.sequence shards the residual stream over tensor-parallel ranks, and there is one; set parallel.tensor to 2 or more, or leave it "
          "false");
}

void check_schedule(const ParallelConfig& p) {
  require(p.virtual_stages == 1 || p.pipeline > 1, Exit::config,
          "parallel.virtual_stages = {} interleaves the stages of several pipeline ranks; set parallel.pipeline to 2 or more, or leave it 1",
          p.virtual_stages);
  require(p.virtual_stages == 1 || p.one_chunk == one_f_one_b, Exit::config,
          "parallel.virtual_stages = {} interleaves 1f1b, but parallel.schedule is another one; set parallel.schedule to 1f1b, or "
          "parallel.virtual_stages to 1",
          p.virtual_stages);
}

void check_islands(const Islands& islands, int ranks) {
  require(islands.empty() || ranks_of(islands) == ranks, Exit::config,
          "cluster.emulate = '{}' has {} ranks, but the run has {}; name islands with this number of ranks in total", to_text(islands),
          ranks_of(islands), ranks);
}

std::vector<Span> stages_of(const RunConfig& run, const std::vector<double>& speeds) {
  const ParallelConfig& p = run.parallel;
  if (p.layers.empty()) {
    const StageCosts costs = stage_costs(run.model, run.lengths());
    std::vector<double> of_stages;  // speed per pipeline stage; pipeline rank r has the stages r, r + pipeline, r + 2 pipeline ...
    for (int stage = 0; stage < p.stages() && !speeds.empty(); ++stage) of_stages.push_back(speeds[std::size_t(stage % p.pipeline)]);
    return split_stages(costs.layers, costs.embedding, costs.head, p.stages(), of_stages);
  }
  require(int(p.layers.size()) == p.stages(), Exit::config, "parallel.layers names {} stages, but parallel.pipeline x parallel.virtual_stages is {}",
          p.layers.size(), p.stages());
  std::vector<Span> stages;
  Index first = 0;
  for (const Index n : p.layers) stages.push_back({first, first + n}), first += n;
  require(first == run.model.layers(), Exit::config, "parallel.layers adds up to {} layers, but the model has {}", first, run.model.layers());
  return stages;
}

// Keys that set the sequences of an optimizer step.
std::string batch_key(const RunConfig& run) {
  if (run.policy) return "rl.prompts x rl.num_generations / rl.minibatches";
  return run.train.ramp.empty() ? "train.global_batch_size" : "train.ramp";
}

void check_batches(const RunConfig& run, int data) {
  const Index micro_batch = run.train.micro_batch_size;
  for (const BatchStep& step : run.train.batches())
    require(step.batch % (data * micro_batch) == 0, Exit::config,
            "{}: {} sequences do not split into micro-batches of {} on {} data ranks; take a multiple of {}", batch_key(run), step.batch, micro_batch,
            data, data * micro_batch);
}

Layout layout_from_choices(const ParallelConfig& p, int data, int attention_ranks, std::vector<Span> stages) {
  Layout layout = grid_layout(data, p.pipeline, p.tensor, std::move(stages), p.permutation, p.order, p.context);
  layout.sequence = p.sequence;
  layout.context_mode = p.context_mode;
  layout.order = p.context_mode == ContextMode::ring ? SequenceOrder::zigzag : SequenceOrder::contiguous;
  layout.attention_ranks = attention_ranks;
  layout.expert = p.expert, layout.expert_receive_capacity = p.expert_receive_capacity;
  layout.shard = p.shard;
  layout.bucket_bytes = p.bucket_bytes;
  return layout;
}

void order_by_islands(Layout& layout, const ParallelConfig& p) {
  if (p.islands.size() > 1 && layout.permutation.empty()) layout.permutation = order_by_islands(layout, p.islands);
}

std::vector<double> speeds_of_stages(const Layout& layout, const ParallelConfig& p) {
  return p.islands.size() > 1 ? speeds_of_stages(layout, p.islands) : std::vector<double>();
}

// Remedy if parallel.data is that of another number of ranks, as when the layout of a large run is tried on few.
std::string remedy_for_data(const ParallelConfig& p, int ranks) {
  if (p.data == 0) return "";
  if (ranks % p.model_ranks() != 0)
    return ranks > p.data * p.model_ranks()
               ? ""
               : fmt::format("; to try this layout, leave out parallel.data and start a multiple of {} ranks", p.model_ranks());
  return fmt::format("; leave out parallel.data, which is then {}", ranks / p.model_ranks());
}

Layout layout_by_rules(const RunConfig& run, int ranks) {
  const ParallelConfig& p = run.parallel;
  const int attention_ranks = attention_ranks_of(p, run.model, run.train.seq_length);
  const int model_ranks = p.model_ranks(), data = p.data > 0 ? p.data : std::max(1, ranks / model_ranks);
  require(data * model_ranks == ranks, Exit::config,
          "parallel: {} x {} x {} x {} (data x pipeline x context x tensor) is {} ranks, but there are {}{}", data, p.pipeline, p.context, p.tensor,
          data * model_ranks, ranks, remedy_for_data(p, ranks));
  check_sharding(run, attention_ranks);
  check_permutation(p.permutation, ranks);
  check_schedule(p);
  require(!p.reduce_dtype || run.train.precision != "fp64", Exit::config,
          "parallel.reduce_dtype = bf16 is for fp32 gradients, but those of train.precision = fp64 are fp64; set it to full");
  check_islands(p.islands, ranks);
  Layout layout = layout_from_choices(p, data, attention_ranks, {});
  order_by_islands(layout, p);
  layout.stages = stages_of(run, speeds_of_stages(layout, p));
  check_batches(run, data);
  check_context(layout, run);
  check_experts(run, data);
  return layout;
}

namespace {

constexpr int most_tried = 64, most_with_context = 600;
constexpr std::size_t most_named = 6, few_named = 3;  // if fewer grids are found, those with context parallelism are named, too
constexpr int farthest = 32;                          // rank counts up to this far away are tried if no grid of the given number of ranks is valid
constexpr Index long_sequence = 8192;                 // context-parallel grids are tried first for sequences of more tokens

struct Sizes {
  int data, pipeline, context, tensor;
};

RunConfig on_grid(RunConfig run, const Sizes& sizes) {
  ParallelConfig& p = run.parallel;
  p.data = sizes.data, p.context = sizes.context, p.tensor = sizes.tensor;
  if (std::exchange(p.pipeline, sizes.pipeline) != sizes.pipeline) p.layers.clear();
  p.permutation.clear();
  return run;
}

// All grids of `ranks` ranks, sorted by distance to the deck's grid; context-parallel grids only on request. The distance
// is the sum over the axes that the deck sets of |ln(size / size in the deck)|.
std::vector<Sizes> grids_by_distance(const RunConfig& run, int ranks, bool by_context) {
  const ParallelConfig& p = run.parallel;
  std::vector<int> divisors;
  for (int n = 1; n <= ranks; ++n)
    if (ranks % n == 0) divisors.push_back(n);
  std::vector<Sizes> grids;
  for (const int tensor : divisors)
    for (const int pipeline : divisors)
      for (const int context : divisors) {
        const Index model = Index(tensor) * pipeline * context;
        if (model <= ranks && ranks % model == 0 && (context == 1 || by_context)) grids.push_back({int(ranks / model), pipeline, context, tensor});
      }
  const auto far = [](int n, int from) { return std::abs(std::log(double(n) / from)); };
  const auto distance = [&](const Sizes& s) {
    return far(s.tensor, p.tensor) + far(s.pipeline, p.pipeline) + far(s.context, p.context) + (p.data > 0 ? far(s.data, p.data) : 0);
  };
  std::stable_sort(grids.begin(), grids.end(), [&](const Sizes& a, const Sizes& b) { return distance(a) < distance(b); });
  return grids;
}

bool is_valid(const RunConfig& run, const Sizes& sizes, int ranks) {
  try {
    layout_by_rules(on_grid(run, sizes), ranks);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<std::string> nearest_grids(const RunConfig& run, int ranks, std::size_t most, bool by_context, int tries) {
  std::vector<std::string> grids;
  int tried = 0;
  for (const Sizes& s : grids_by_distance(run, ranks, by_context)) {
    if (grids.size() == most || ++tried > tries) break;
    if (is_valid(run, s, ranks)) grids.push_back(fmt::format("{} x {} x {} x {}", s.data, s.pipeline, s.context, s.tensor));
  }
  return grids;
}

// The valid grids nearest to the deck's, at most `most`; empty if none of the grids tried is valid. Context-parallel grids
// count if the deck has context parallelism or long sequences.
std::vector<std::string> nearest_grids(const RunConfig& run, int ranks, std::size_t most) {
  return nearest_grids(run, ranks, most, run.parallel.context > 1 || run.train.seq_length > long_sequence, most_tried);
}

using GridsByRanks = std::map<int, std::string>;

// The nearest number of ranks on either side of `ranks` that works with the deck's pipeline, context and tensor ranks, with its grid.
GridsByRanks counts_of_grid(const RunConfig& run, int ranks) {
  GridsByRanks counts;
  const ParallelConfig& p = run.parallel;
  const int model = p.model_ranks();
  for (const int side : {-1, 1}) {
    bool found = false;
    for (int data = ranks / model + (side > 0); !found && data > 0 && std::abs(data - ranks / model) <= farthest; data += side)
      if (data * model != ranks && is_valid(run, {data, p.pipeline, p.context, p.tensor}, data * model))
        counts.emplace(data * model, fmt::format("{} x {} x {} x {}", data, p.pipeline, p.context, p.tensor)), found = true;
  }
  return counts;
}

// ... as text: "480 (15 x 8 x 1 x 4), 512 (16 x 8 x 1 x 4)"; empty if there is none.
std::string text_of(const GridsByRanks& counts) {
  std::vector<std::string> texts;
  for (const auto& [count, grid] : counts) texts.push_back(fmt::format("{} ({})", count, grid));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Numbers of ranks near `ranks` that have a valid grid: on either side the nearest one, and that of counts_of_grid.
GridsByRanks nearest_rank_counts(const RunConfig& run, int ranks) {
  GridsByRanks counts;
  for (const int side : {-1, 1}) {
    bool found = false;
    for (int n = ranks + side; !found && n > 0 && std::abs(n - ranks) <= farthest; n += side)
      for (const std::string& grid : nearest_grids(run, n, 1)) counts.emplace(n, grid), found = true;
  }
  counts.merge(counts_of_grid(run, ranks));
  return counts;
}

// Advice on the grids of `ranks` ranks, or if none is valid on other rank counts; empty if none was found.
std::string advice_on_grids(const RunConfig& run, int ranks) {
  constexpr const char* axes = "data x pipeline x context x tensor";
  std::vector<std::string> grids = nearest_grids(run, ranks, most_named);
  if (grids.size() < few_named)
    for (const std::string& grid : nearest_grids(run, ranks, most_named, true, most_with_context))
      if (grids.size() < most_named && std::find(grids.begin(), grids.end(), grid) == grids.end()) grids.push_back(grid);
  if (!grids.empty())
    return fmt::format("Grids ({}) that work on {} rank{}, if they fit in memory: {}", axes, ranks, ranks > 1 ? "s" : "", fmt::join(grids, ", "));
  const std::string counts = text_of(nearest_rank_counts(run, ranks));
  if (counts.empty()) return "";
  return fmt::format("No grid was found for {} rank{}. Numbers of ranks that work, with a grid ({}), if it fits in memory: {}", ranks,
                     ranks > 1 ? "s" : "", axes, counts);
}

// Text about a batch that more ranks can divide; empty if there is none.
std::string other_batch_text(const RunConfig& run, int ranks) {
  const Index batch = run.train.global_batch_size, shared = std::gcd(batch, Index(ranks));
  if (!run.train.ramp.empty()) return "";
  constexpr Index few = 4;  // at least this many times as many ranks must be able to share the other batch
  for (Index divisor = std::min<Index>(ranks, batch + batch / 10); divisor >= few * shared; --divisor) {
    const Index other = (batch + divisor / 2) / divisor * divisor;
    if (ranks % divisor == 0 && other > 0 && std::abs(other - batch) <= batch / 10)
      return fmt::format(
          "{5} = {0} and {1} ranks have the common divisor {2}: the data-parallel ranks of a grid of {1} are at most {2}. With {5} = {3} they "
          "may be {4}",
          batch, ranks, shared, other, divisor, batch_key(run));
  }
  return "";
}

}  // namespace

std::string batch_limit_text(const RunConfig& run, int ranks) {
  Index batch = 0;
  for (const BatchStep& step : run.train.batches()) batch = std::gcd(batch, step.batch);
  if (ranks <= batch || !other_batch_text(run, ranks).empty()) return "";  // the other text has the tighter limit
  return fmt::format("{} = {} allows at most {} data-parallel ranks, so that {} ranks need context, tensor or pipeline parallelism",
                     run.train.ramp.empty() ? batch_key(run) : "train.ramp with a common divisor of its batches", batch, batch, ranks);
}

std::string divisible_batch_text(const RunConfig& run, int ranks) {
  const std::string text = other_batch_text(run, ranks), counts = text.empty() ? "" : text_of(counts_of_grid(run, ranks));
  return counts.empty() ? text : fmt::format("{}. Numbers of ranks that suit the deck, with their grids: {}", text, counts);
}

Layout layout_of(const RunConfig& run, int ranks) {
  try {
    return layout_by_rules(run, ranks);
  } catch (const Error& e) {
    if (e.code != Exit::config) throw;
    const std::string advice = advice_on_grids(run, ranks);
    if (advice.empty()) throw;
    const std::string limit = batch_limit_text(run, ranks),
                      other = advice.starts_with("No grid") ? other_batch_text(run, ranks) : divisible_batch_text(run, ranks);
    fail(Exit::config, "{}. {}{}{}{}{}", e.what(), limit, limit.empty() ? "" : ". ", other, other.empty() ? "" : ". ", advice);
  }
}

}  // namespace gyr
