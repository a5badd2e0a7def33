// SPDX-License-Identifier: BSD-3-Clause
// Random models, batches and layouts on up to as many ranks as there are. Loss and gathered gradients must equal those
// of one rank. Bytes, calls and memory must equal those of the plan and of the closed form. What cannot be sharded must
// be refused before a rank starts.
//   GYR_SEED=1 GYR_DRAWS=200 GYR_FIRST_DRAW=0   selects the draws. A failing draw is reduced to the smallest one that
//   still fails, and the message shows how to repeat it.
#include <cmath>
#include <cstdlib>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::draws_suite {
namespace {

class World {
 public:
  int size = 0, rank = 0;
  World() {
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
  // True on all ranks if `mine` is true on any rank. Waits without blocking inside MPI.
  bool any(bool mine) const {
    int local = mine, any = 0;
    MPI_Request request;
    MPI_Iallreduce(&local, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      std::this_thread::sleep_for(std::chrono::microseconds(done ? 0 : 100));
    }
    return any;
  }
  // Grid of the first ranks, null on the others. It is kept until another layout is requested, because creating a grid
  // takes longer than a step.
  Grid* grid(const Draw& d) {
    if (d.layout_text() == kept_) return grid_.get();
    kept_ = d.layout_text();
    grid_.reset();
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < d.ranks() ? 0 : MPI_UNDEFINED, rank, &comm);
    if (comm == MPI_COMM_NULL) return nullptr;
    grid_ = std::make_unique<Grid>(d.layout(), comm, patience_);
    MPI_Comm_free(&comm);
    return grid_.get();
  }

 private:
  WaitPolicy patience_ = wait_policy_of(MPI_COMM_WORLD);
  std::string kept_;
  std::unique_ptr<Grid> grid_;
};

// All deviations beyond the limits (src/verify/equality.hpp), or empty.
std::string difference(const StepOutcome& one, const StepOutcome& many) {
  const Errors errors = errors_of(one, many);
  if (within_limits(errors, DType::f64)) return "";
  std::string all =
      fmt::format("{} labels, {} on one rank; loss off by {}, gradient norm by {}", many.result.tokens, one.result.tokens, errors.loss, errors.norm);
  for (const auto& [name, error] : errors.gradients)
    if (!(error <= limit_of(DType::f64, name))) all += fmt::format("; gradient of {} by {}", name, error);
  return all;
}

// FP8 rounds outputs of GEMMs that have few significant bits. Some of them are near a tie, and get another code if they differ by one part in
// 1e16. In these small models, one code is up to a tenth of a gradient. Few draws have such a difference: rank 0 counts them.
constexpr double largest_difference_of_ties = 0.1;
int draws_with_ties = 0;

std::string difference_beyond_ties(const StepOutcome& one, const StepOutcome& many) {
  const std::string all = difference(one, many);
  const Errors errors = errors_of(one, many);
  const bool small = std::max({errors.loss, errors.norm, errors.worst_gradient()}) <= largest_difference_of_ties;
  if (!all.empty() && small) ++draws_with_ties;
  return small ? "" : all;
}

// Result of one step on one rank.
StepOutcome single_rank_outcome(const Draw& d) {
  Grid grid(grid_layout(1, 1, 1, {{0, d.model.layers()}}), MPI_COMM_SELF, WaitPolicy::spin);
  const int micros = d.micros * d.data;
  Rig<double> rig(d.config(micros), grid);
  const StepResult result = rig.engine.gradients([&](int i) { return d.batch(i); }, micros, 1);
  return {result, gathered_gradients(rig.engine)};
}

std::string text(const Ledger& ledger) {
  std::string all;
  for (const auto& [key, traffic] : ledger)
    all += fmt::format("{}{} {}: {} calls of {} bytes", all.empty() ? "" : ", ", key.first, name_of(key.second), traffic.calls, traffic.bytes);
  return all;
}

// Planned traffic of a rank without the parts that ranks split unevenly, if the parts of all ranks add up to their
// closed form. Otherwise the traffic of all these ranks.
template <class T>
Ledger planned_even_traffic(const EngineConfig& config, const Layout& layout, int position, const RankPlan& plan) {
  Ledger mine = ledger_of(plan.traffic);
  const Ledger regular = closed_form<T>(config, layout, position), parts = closed_form_of_parts<T>(config, layout, position);
  if (parts.empty()) return mine;
  Ledger all;
  const int ranks = layout.size(token_axes);
  for (int other = 0; other < layout.ranks(); ++other) {
    if (layout.coordinate(other, all_but(token_axes)) != layout.coordinate(position, all_but(token_axes))) continue;
    for (const auto& [key, traffic] : ledger_of(plan_rank(in<T>(config), layout, other).traffic)) all[key].bytes += traffic.bytes;
  }
  for (const auto& [key, traffic] : parts) {
    const auto found = regular.find(key);
    const Traffic each = found == regular.end() ? Traffic() : found->second;
    if (all[key].bytes != ranks * each.bytes + traffic.bytes) return all;
    if (mine[key].bytes >= each.bytes && mine[key].calls - each.calls <= traffic.calls) mine[key] = each;
    if (found == regular.end()) mine.erase(key);
  }
  return mine;
}

// Checks the lines of a plan: memory lines must add up to their category and not be negative, and every transfer must
// have a purpose. Returns the first error, or empty.
std::string plan_line_error(const RankPlan& plan) {
  for (const Memory category : {Memory::weights, Memory::gradients, Memory::optimizer, Memory::activations}) {
    Index sum = 0;
    for (const MemoryLine& line : plan.memory) {
      if (line.category != category) continue;
      sum += line.bytes;
      if (line.bytes < 0) return fmt::format("{}: {} takes {} bytes", name_of(category), line.what, line.bytes);
    }
    if (sum != plan.capacity.bytes(category))
      return fmt::format("{}: the lines add up to {} of {} bytes", name_of(category), sum, plan.capacity.bytes(category));
  }
  for (const CommunicatorTraffic& c : plan.traffic)
    for (const TrafficCount::Line& line : c.count.lines())
      if (line.purpose == std::string_view() && line.traffic.calls > 0)
        return fmt::format("{} of {} has no purpose", name_of(line.operation), c.name);
  return "";
}

// Compares the plan of any rank of the layout with the closed form. Returns the first difference, or empty.
template <class T>
std::string of_plan(const Draw& d, int position) {
  const Layout layout = d.layout();
  const EngineConfig config = d.config(d.micros);
  const RankPlan plan = plan_rank(in<T>(config), layout, position);
  if (const std::string wrong = plan_line_error(plan); !wrong.empty()) return wrong;
  if (!d.frozen.empty() || d.model.lora || d.model.moe.bias) return "";
  const Ledger planned = planned_even_traffic<T>(config, layout, position, plan), closed = closed_form<T>(config, layout, position);
  if (planned != closed)
    return fmt::format("planned in {}\n    {}\n  and in closed form\n    {}", name_of(dtype_of<T>()), text(planned), text(closed));
  for (const auto& [category, bytes] :
       {std::pair{Memory::gradients, gradient_bytes<T>(config, layout, position)}, {Memory::optimizer, optimizer_bytes<T>(config, layout, position)}})
    if (plan.capacity.bytes(category) != bytes)
      return fmt::format("{}: planned {} bytes, in closed form {}", name_of(category), plan.capacity.bytes(category), bytes);
  return "";
}

// With expert parallelism, the routing determines how much a rank receives, returns and computes. All ranks together
// must do what is planned for all of them. If they do, the planned values replace those counted on this rank.
void take_jointly(Grid& grid, Ledger& counted, double& flops, const Ledger& planned, double planned_flops, bool limited) {
  if (grid.layout().expert == 1) return;
  const auto found = planned.find({"expert", Operation::all_to_all});
  Traffic* const here = found == planned.end() ? nullptr : &counted[found->first];  // a pipeline stage may have no expert layers
  const double bytes = grid.world().sum(here ? double(here->bytes - found->second.bytes) : 0), work = grid.world().sum(flops - planned_flops);
  if (here && (limited ? bytes <= 0 : bytes == 0)) here->bytes = found->second.bytes;
  if (work <= 0) flops = planned_flops + work;
}

// Runs a step on the grid. Traffic, FLOPs and memory must be as planned, and values as on one rank. Returns the error
// on this rank, or empty.
std::string of_step(const Draw& d, Grid& grid) {
  const EngineConfig config = d.config(d.micros);
  const RankPlan plan = plan_rank(in<double>(config), grid.layout(), grid.position());
  Rig<double> rig(config, grid);
  const auto source = [&](int micro) { return d.batch(Index(micro) * d.data + grid.coordinate(Axis::data)); };
  const StepResult result = rig.engine.gradients(source, d.micros, 1);
  const NamedGradients gradients = gathered_gradients(rig.engine);

  grid.visit([](Communicator& c) { c.clear_traffic(); });
  rig.engine.device().clear_work();
  rig.engine.train(source, d.micros, 1, 1e-3);
  Ledger counted = ledger_of(traffic_of(grid));
  const Ledger planned = ledger_of(plan.traffic);
  double flops = rig.engine.device().flops();  // fully masked attention tiles (packed documents, encoder padding) are not computed
  const bool limited = all_layers(config.model).find('E') != std::string::npos && config.model.moe.capacity_factor > 0;
  take_jointly(grid, counted, flops, planned, plan.flops, limited);  // dropped choices are not computed
  if (counted != planned) return fmt::format("transferred\n    {}\n  but planned\n    {}", text(counted), text(planned));
  if (d.packed || d.padded || limited ? flops > plan.flops : flops != plan.flops) return fmt::format("{} flops, planned {}", flops, plan.flops);
  rig.engine.evaluate(source, 1);  // a validation may take more memory than a step that keeps few activations
  for (int i = 0; i < memory_categories; ++i)
    if (rig.engine.measured().bytes(Memory(i)) != plan.capacity.bytes(Memory(i)))
      return fmt::format("{} takes {} bytes, planned {}", name_of(Memory(i)), rig.engine.measured().bytes(Memory(i)), plan.capacity.bytes(Memory(i)));
  if (grid.position() != 0 || d.rounds_other_values) return "";
  const StepOutcome one = single_rank_outcome(d), many{result, gradients};
  return d.fp8 == Fp8Recipe::none ? difference(one, many) : difference_beyond_ties(one, many);
}

// Error of a step of the draw on this rank, or empty. Every rank of the world takes part.
std::string wrong_step(World& world, const Draw& d) {
  std::string complaint;
  Grid* const grid = world.grid(d);
  try {
    if (grid) complaint = of_step(d, *grid);
  } catch (const std::exception& e) {
    complaint = e.what();
    fmt::print(stderr, "rank {}: {}\n  {}\n", world.rank, complaint, d.text());  // other ranks may wait for this rank forever
  }
  return complaint;
}

// Error of a draw on this rank, or empty. Every rank of the world takes part.
std::string wrong(World& world, const Draw& d) {
  std::string complaint;
  bool refused = false;
  try {
    const int position = world.rank % d.ranks();
    complaint = world.rank % 2 ? of_plan<float>(d, position) : of_plan<bf16>(d, position);
    if (complaint.empty()) complaint = of_plan<double>(d, position);
  } catch (const Error& e) {
    refused = e.code == Exit::config;
    if (!refused) complaint = e.what();
  }
  refused = world.any(refused);  // a stage without layers that cannot be sharded refuses nothing
  if (complaint.empty() && refused == can_shard(d.full_model(), d.tensor, d.attention_ranks))
    complaint = refused ? "refused though it can be sharded" : "not refused though it cannot be sharded";
  if (world.any(!complaint.empty()) || refused) return complaint;
  return wrong_step(world, d);
}

// Smallest draw that still fails, and its error on this rank.
std::pair<Draw, std::string> smallest(World& world, Draw d, std::string complaint) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Draw& candidate : simpler(d)) {
      const std::string now = wrong(world, candidate);
      if (!world.any(!now.empty())) continue;
      d = candidate, complaint = now, smaller = true;
      break;
    }
  }
  return {d, complaint};
}

Index number_of(const char* variable, Index otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

// Reports a draw that is wrong, with the smallest one that still is. Returns false if there is an error on any rank.
bool expect_right(World& world, const Draw& d, const std::string& which, const std::string& how_to_repeat) {
  const std::string complaint = wrong(world, d);
  if (!world.any(!complaint.empty())) return true;
  const auto [small, what] = smallest(world, d, complaint);
  if (!what.empty())
    ADD_FAILURE() << which << ": " << d.text() << "\n  smallest that fails: " << small.text() << "\n  rank " << world.rank << ": " << what
                  << "\n  repeat with: " << how_to_repeat;
  else ADD_FAILURE() << which << " failed on another rank";
  return false;
}

TEST(draws, random_draws_on_any_grid_equal_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1), first = number_of("GYR_FIRST_DRAW", 0), count = number_of("GYR_DRAWS", 200);
  std::map<std::string, int> seen, shared, mixers, experts, ahead;
  for (Index i = first; i < first + count; ++i) {
    const Draw d = draw(std::uint64_t(seed), i, world.size);
    if (!expect_right(world, d, fmt::format("draw {} of seed {}", i, seed), fmt::format("GYR_SEED={} GYR_FIRST_DRAW={} GYR_DRAWS=1", seed, i)))
      return;
    ++seen[!can_shard(d.full_model(), d.tensor, d.attention_ranks) ? "refused"
           : d.tensor == 1                                         ? "tensor 1"
           : d.tensor < 5                                          ? "tensor 2 to 4"
                                                                   : "tensor 5 and more"];
    ++mixers[d.attention_ranks > 0 ? "separate mixers" : "mixers on all ranks"];
    if (all_layers(d.full_model()).find('E') != std::string::npos) ++experts[d.expert > 1 ? "expert parallel" : "experts on every rank"];
    ++ahead[d.beta > 0 ? "preference pairs" : d.ahead.depths > 0 ? "multi-token prediction" : "next token"];
    ++shared[d.context > 1 ? name_of(d.context_mode) : "no context parallel"];
  }
  std::string kinds;
  for (const auto* of : {&seen, &shared, &mixers, &experts, &ahead})
    for (const auto& [kind, times] : *of) kinds += fmt::format(", {} {}", kind, times);
  if (world.rank == 0) fmt::print("seed {}, {} draws on up to {} ranks{}\n", seed, count, world.size, kinds);
  EXPECT_TRUE(count < 200 || (seen.size() == 4 && shared.size() == 4 && mixers.size() == 2 && experts.size() == 2 && ahead.size() == 3))
      << "a kind of layout was not drawn";
}

// Three to five ranks share each sequence. With two, a ring has one transfer, and load-balanced attention needs no help.
TEST(draws, many_context_ranks_equal_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1);
  std::map<std::string, int> seen;
  for (Index i = 0; i < 90; ++i) {
    const int context = 3 + int(i / 5 % 3);
    const Draw d = draw(std::uint64_t(seed), i, world.size, context);
    if (!expect_right(world, d, fmt::format("draw {} of seed {} on {} context ranks", i, seed, context), fmt::format("GYR_SEED={}", seed))) return;
    if (can_shard(d.full_model(), d.tensor, d.attention_ranks)) ++seen[name_of(d.context_mode)];
  }
  EXPECT_EQ(seen.size(), 3u);
  for (const auto& [mode, draws] : seen) EXPECT_GE(draws, 10) << mode;
}

// A draw whose MLP layers have the type of twin_layer.cpp.
Draw with_twins(Draw d) {
  for (std::string* pattern : {&d.model.pattern, &d.ahead.pattern}) std::replace(pattern->begin(), pattern->end(), '-', 'D');
  if (auto policy = d.recompute.by_type.extract('-'); policy) policy.key() = 'D', d.recompute.by_type.insert(std::move(policy));
  return d;
}

// A draw in which MLPs replace layer types whose linear layers have no other form.
Draw without_latent_attention_and_experts(Draw d) {
  for (std::string* pattern : {&d.model.pattern, &d.ahead.pattern}) {
    std::replace(pattern->begin(), pattern->end(), 'L', '-');
    std::replace(pattern->begin(), pattern->end(), 'E', '-');
  }
  return d;
}
Draw with_ternary_layers(Draw d) {
  d = without_latent_attention_and_experts(std::move(d));
  d.model.lora = {}, d.model.linear = LinearLayers::ternary;
  return d;
}
// True if several tensor-parallel ranks hold the same head or group. Each has a part of its gradient, and rounds this part.
bool has_copies_of_heads(const Draw& d) {
  const ModelConfig& m = d.model;
  const std::string layers = all_layers(d.full_model());
  const auto fewer = [&](const char* symbols, std::initializer_list<Index> units) {
    return layers.find_first_of(symbols) != std::string::npos && std::min(units) < d.tensor;
  };
  return fewer("P*WB", {m.attention.num_heads, m.attention.num_kv_heads}) || fewer("PM", {m.mamba.num_heads, m.mamba.num_groups}) ||
         fewer("G", {m.delta.num_heads, m.delta.num_key_heads});
}
Draw with_fp8(Draw d, Fp8Recipe recipe) {
  d = without_latent_attention_and_experts(std::move(d));
  d.fp8 = recipe, d.rounds_other_values = recipe == Fp8Recipe::tensor ? has_copies_of_heads(d) : d.tensor > 1 || d.context > 1;
  return d;
}

// The number of random draws of a value below `count`, as a function of seed, draw and purpose.
class Choice {
 public:
  Choice(Index seed, Index number) : random_(std::uint64_t(1000 * seed + number)) {}
  Index below(Index count) { return Index(random_() % std::uint64_t(count)); }
  Index between(Index least, Index most) { return least + below(most - least + 1); }

 private:
  std::mt19937_64 random_;
};

// A draw in which layers R replace some layers. What they do not support is replaced too.
Draw with_retrieval(Draw d, Choice& choice) {
  ModelConfig& m = d.model;
  d.masked = d.ordered = false, d.classes = 0, d.beta = 0, d.ahead.depths = 0, d.frozen.clear();
  m.lora = {}, m.dropout = {}, m.attention.causal = true, m.attention.relative_bias.buckets = 0, m.attention.rope_scaling = {};
  m.embed_norm = false, m.moe.capacity_factor = 0;
  if (m.norm_placement == NormPlacement::after || m.norm_placement == NormPlacement::output) m.norm_placement = NormPlacement::before;
  for (Index i = choice.between(1, 3); i > 0; --i) m.pattern[std::size_t(choice.below(m.layers()))] = 'R';
  const char* const encoders[] = {"*X-*-", "X", "X-*", "*X-X"};
  m.retrieval = {choice.between(1, 4), choice.between(1, 3), encoders[choice.below(4)], choice.below(2) * 0.3};
  if (choice.below(3) == 0) {
    m.encoder = StackConfig{choice.between(3, 14), m.norm, 1e-4, m.attention, m.mlp};
    AttentionConfig& attention = m.encoder->attention;
    attention.num_kv_heads = choice.between(1, 3), attention.num_heads = attention.num_kv_heads * choice.between(1, 2);
    m.encoder->mlp.intermediate_size = choice.between(2, 16);
  }
  d.padded = choice.below(2) == 0;
  if (m.positions > 0) m.positions = 64;
  const Index unit = m.retrieval.chunk * d.context * (d.context > 1 && d.tokens == SequenceOrder::zigzag ? 2 : 1);
  d.seq_length = (d.seq_length + unit - 1) / unit * unit;  // at least one chunk in each block
  return d;
}

// Scales are those of the full weights and rows, also if ranks hold copies of a part. The planned traffic is that of the closed form.
TEST(draws, ternary_layers_equal_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1);
  int tried = 0, sharded = 0;
  for (Index i = 0; i < 36; ++i) {
    const Draw d = with_ternary_layers(draw(std::uint64_t(seed), i, world.size));
    if (d.source_length > 0 || !can_shard(d.full_model(), d.tensor, d.attention_ranks)) continue;
    if (!expect_right(world, d, fmt::format("ternary draw {} of seed {}", i, seed), fmt::format("GYR_SEED={}", seed))) return;
    ++tried, sharded += d.tensor > 1;
  }
  EXPECT_TRUE(tried >= 15 && sharded >= 5) << tried << " draws, " << sharded << " of them with tensor parallelism";
}

// One scale per operand is that of the micro-batch and of the full weight on any layout. Blocks equal those of one rank where ranks share
// neither a sequence nor a layer. On all layouts, traffic, memory and FLOPs are as planned. Some seeds need more draws until each kind of layout
// has been compared.
TEST(draws, fp8_gemms_equal_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1);
  std::map<std::string, int> seen;
  const std::array kinds{"blocks", "compared, blocks", "tensor parallel", "compared, tensor parallel", "compared, context parallel"};
  const auto missing = [&] { return std::any_of(kinds.begin(), kinds.end(), [&](const char* kind) { return seen[kind] == 0; }); };
  draws_with_ties = 0;
  for (Index i = 0; i < 30 || (i < 120 && missing()); ++i) {
    const Fp8Recipe recipe = i % 3 < 2 ? Fp8Recipe::tensor : i % 2 == 0 ? Fp8Recipe::blocks : Fp8Recipe::mxfp8;
    const Draw d = with_fp8(draw(std::uint64_t(seed), 3 * i, world.size), recipe);
    if (d.source_length > 0 || !can_shard(d.full_model(), d.tensor, d.attention_ranks)) continue;
    if (!expect_right(world, d, fmt::format("FP8 draw {} of seed {}", i, seed), fmt::format("GYR_SEED={}", seed))) return;
    const std::string compared = d.rounds_other_values ? "" : "compared, ";
    ++seen[compared + (recipe != Fp8Recipe::tensor ? "blocks" : d.tensor > 1 ? "tensor parallel" : d.context > 1 ? "context parallel" : "data")];
  }
  for (const char* kind : kinds) EXPECT_GE(seen[kind], 1) << kind;
  EXPECT_LE(draws_with_ties, 3);
}

// Each rank has a head of 128 channels and 128 MLP channels, so that no block is cut.
TEST(draws, tensor_parallel_ranks_round_the_same_fp8_blocks) {
  World world;
  draws_with_ties = 0;
  for (const Fp8Recipe recipe : {Fp8Recipe::blocks, Fp8Recipe::mxfp8})
    for (const bool sequence : {false, true}) {
      Draw d;
      d.model = named("T1").model, d.model.pattern = "*-", d.model.hidden_size = 128;
      d.tensor = 2, d.data = std::min(2, world.size / 2), d.sequence = sequence;
      d.model.attention.num_heads = d.model.attention.num_kv_heads = d.tensor, d.model.attention.head_dim = 128;
      d.model.mlp.intermediate_size = 128 * d.tensor;
      d.micro_batch_size = 2, d.seq_length = 70, d.fp8 = recipe;
      if (!expect_right(world, d, "FP8 with full blocks", "the same test")) return;
    }
  EXPECT_EQ(draws_with_ties, 0);
}

// Layers R between all other layers, with context-parallel ranks that read the neighbours of each other's chunks. The planned traffic is that
// of the closed form. Some seeds need more draws until each kind of layout has been compared.
TEST(draws, retrieval_layers_equal_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1), count = number_of("GYR_DRAWS", 50);
  std::map<std::string, int> seen;
  const auto missing = [&] { return std::any_of(seen.begin(), seen.end(), [](const auto& kind) { return kind.second == 0; }); };
  for (Index i = 0; i < count || (count >= 50 && i < 8 * count && missing()); ++i) {
    Choice choice(seed, i);
    const Draw base = draw(std::uint64_t(seed), i, world.size);
    if (base.source_length > 0) continue;
    const Draw d = with_retrieval(base, choice);
    if (!can_shard(d.full_model(), d.tensor, d.attention_ranks)) continue;
    const std::string complaint = wrong(world, d);
    EXPECT_EQ(complaint, "") << "draw " << i << " of seed " << seed << " with layers R, m " << d.model.retrieval.chunk << ", k "
                             << d.model.retrieval.neighbours << ", encoder " << d.model.retrieval.encoder
                             << (d.model.encoder ? fmt::format(" of width {}", d.model.encoder->hidden_size) : "") << ": " << d.text();
    if (world.any(!complaint.empty())) return;
    ++seen["all"], seen["context"] += d.context > 1, seen["tensor"] += d.tensor > 1, seen["pipeline"] += d.pipeline > 1;
    seen["sequence"] += d.sequence, seen["recompute"] += bool(d.recompute.all), seen["offload"] += d.offload.on;
    seen["encoder"] += bool(d.model.encoder), seen["encoder and tensor"] += d.model.encoder && d.tensor > 1;
    seen["packed"] += d.packed, seen["context and packed"] += d.context > 1 && d.packed;
    seen["context and pipeline"] += d.context > 1 && d.pipeline > 1, seen["context and recompute"] += d.context > 1 && d.recompute.all;
  }
  for (const auto& [kind, times] : seen) EXPECT_TRUE(count < 50 || times >= 1) << kind;
}

// Every part of the program learns of a layer type from its registration alone: with a type that only the tests have, a
// step equals one rank, and takes the planned memory, traffic and FLOPs.
TEST(draws, layer_type_of_tests_equals_one_rank) {
  World world;
  const Index seed = number_of("GYR_SEED", 1);
  int tried = 0, sharded = 0;
  for (Index i = 0; i < 200; ++i) {
    const Draw d = draw(std::uint64_t(seed), i, world.size);
    if (all_layers(d.full_model()).find('-') == std::string::npos || !can_shard(d.full_model(), d.tensor, d.attention_ranks)) continue;
    const Draw twins = with_twins(d);
    const std::string complaint = wrong_step(world, twins);
    EXPECT_EQ(complaint, "") << "draw " << i << " of seed " << seed << " with twin layers: " << twins.text();
    if (world.any(!complaint.empty())) return;
    ++tried, sharded += d.tensor > 1;
  }
  EXPECT_TRUE(tried >= 20 && sharded >= 8) << tried << " draws, " << sharded << " of them with tensor parallelism";
}

}  // namespace
}  // namespace gyr::testing::draws_suite
