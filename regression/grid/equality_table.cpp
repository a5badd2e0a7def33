// SPDX-License-Identifier: BSD-3-Clause
// Table of layouts that equal one rank. Every pair of features occurs in it at least twice. A second table has a row for
// every model family. `make parity` prints both.
//   GYR_SEED=1   selects the rows; another seed combines the features differently
//   GYR_ROWS=n   runs only every n-th row, from the first on
// Errors and their limits are those of src/verify/equality.hpp: of every parameter's gradient, of the loss and of the
// gradient norm. One step of the optimizer follows, whose weights are compared in double. A float gradient may exceed its limit twofold if rounding
// is amplified. This is so if its error in double, times the ratio of float to double rounding, is as large. bf16 is compared with its own run on one
// rank, and both with double.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/golden_step.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/pairs.hpp"
#include "regression/support/testing.hpp"
#include "src/deck/deck.hpp"
#include "src/verify/gathered.hpp"

namespace gyr::testing::equality_table_suite {
namespace {

constexpr int sequences = 12, most_ranks = 16;
constexpr std::size_t least_rows = 120;
constexpr double limit_of_weights = 1e-10;  // Adam divides small gradients by their own size

enum Factor { data, pipeline, stages, context, tensor, mixer, sequence, shard, recompute, model, tied, batch, frozen, order, rule, factors };
const std::vector<int> axis_sizes{1, 2, 3, 4}, tensor_sizes{1, 2, 4, 8};
struct Context {
  int ranks;
  SequenceOrder order;
  ContextMode mode;
  const char* name;
};
const std::vector<Context> contexts{{1, SequenceOrder::zigzag, ContextMode::ring, "-"},
                                    {2, SequenceOrder::zigzag, ContextMode::ring, "2 zigzag"},
                                    {2, SequenceOrder::contiguous, ContextMode::heads, "2 Ulysses"},
                                    {3, SequenceOrder::zigzag, ContextMode::ring, "3 zigzag"},
                                    {4, SequenceOrder::contiguous, ContextMode::ring, "4 contig."},
                                    {3, SequenceOrder::contiguous, ContextMode::balanced, "3 balanced"},
                                    {4, SequenceOrder::contiguous, ContextMode::balanced, "4 balanced"}};
const std::vector<std::string> stage_kinds{"1F1B", "GPipe", "zero bubble", "2 chunks", "3 chunks", "4 chunks"},
    models{"T2", "T3", "T4", "T5", "uneven"}, batches{"plain", "packed", "masked"}, rules{"adamw", "lamb", "muon", "gather"};
const Levels levels{
    4, 4, int(stage_kinds.size()), int(contexts.size()), 4, 2, 2, int(shard_names.size()), 4, int(models.size()), 2, int(batches.size()),
    2, 2, int(rules.size())};

int chunks_of(const Levels& row) { return std::max(1, row[stages] - 1); }

ModelConfig model_of(const Levels& row);

// Smallest number of tensor-parallel ranks that can compute the attention while the others compute the SSM. 0 if the
// mixers are not separate.
int attention_ranks(const Levels& row) {
  const int t = tensor_sizes[row[tensor]];
  for (int n = 1; row[mixer] && n < t; ++n)
    if (can_shard(model_of(row), t, n)) return n;
  return 0;
}

bool valid(const Levels& row) {
  const int p = axis_sizes[row[pipeline]], c = contexts[row[context]].ranks, t = tensor_sizes[row[tensor]];
  return axis_sizes[row[data]] * p * c * t <= most_ranks && (p > 1 || row[stages] == 0) && (t > 1 || row[sequence] == 0) &&
         (row[data] > 0 || c > 1 || row[shard] == 0) && p * chunks_of(row) <= 8 && (attention_ranks(row) > 0) == bool(row[mixer]) &&
         (contexts[row[context]].mode != ContextMode::heads || can_exchange(model_of(row), t, c, attention_ranks(row)));
}

ModelConfig model_of(const Levels& row) {
  const bool uneven = models[row[model]] == "uneven";
  ModelConfig m = widened(named(uneven ? "T3" : models[row[model]]));
  if (uneven) m.pattern = "MP*-PM-P";
  m.tie_word_embeddings = row[tied];
  return m;
}

// "gather": Muon on all ranks, each head apart.
Rule rule_of(const Levels& row) {
  const std::string& name = rules[row[rule]];
  Deck deck = Deck::parse(name == "gather" ? "optimizer: {name: muon, muon: {distribute: gather, split: heads}}" : "optimizer: {name: " + name + "}",
                          "test.yaml", {});
  return read_optimizer(deck.section("optimizer", "test"), {}).rule;
}

Draw draw_of(const Levels& row, int number) {
  Draw d;
  d.model = model_of(row);
  d.data = axis_sizes[row[data]], d.pipeline = axis_sizes[row[pipeline]], d.tensor = tensor_sizes[row[tensor]];
  d.context = contexts[row[context]].ranks, d.tokens = contexts[row[context]].order, d.context_mode = contexts[row[context]].mode;
  d.sequence = row[sequence], d.attention_ranks = attention_ranks(row);
  d.shard = Shard(row[shard]);
  d.chunks = chunks_of(row);
  if (row[stages] < 3) d.schedule = Draw::Kind(row[stages]);
  d.chunk_begins = {1, 2, 3, 4, 5, 6, 7};
  std::shuffle(d.chunk_begins.begin(), d.chunk_begins.end(), std::mt19937_64(number));
  d.chunk_begins.resize(d.pipeline * d.chunks - 1);
  std::sort(d.chunk_begins.begin(), d.chunk_begins.end());
  d.micro_batch_size = 1, d.seq_length = 13, d.micros = sequences / d.data;
  d.packed = batches[row[batch]] == "packed", d.some_ignored = batches[row[batch]] == "masked";
  d.bucket_bytes = number % 2 ? 1 : 4096;
  d.recompute.all = recompute_of(recompute_names[row[recompute]]);
  if (row[frozen]) d.frozen = {"model.layers.0.*", "*.k_proj.weight", "*norm*"};
  if (row[order]) d.order = {Axis::tensor, Axis::pipeline, Axis::data};
  return d;
}

struct Outcome : StepOutcome {
  NamedTensors weights;  // after the step
};

template <class T>
Outcome step(const Levels& row, const Draw& d, Grid& grid, int micros, int ranks, int rank) {
  EngineConfig config = d.config(micros);
  config.optimizer.rule = rule_of(row);
  Rig<T> rig(config, grid);
  const StepResult result = rig.engine.train([&](int micro) { return d.batch(Index(micro) * ranks + rank); }, micros, {1, 1e-3});
  return {{result, gathered_gradients(rig.engine)}, gathered(rig.engine, Content::weight)};
}

// Result of the same batch on this rank only. It depends only on model, tied embeddings, batch, frozen weights and rule,
// so that several rows share it.
template <class T>
const Outcome& on_one_rank(const Levels& row) {
  static std::map<std::vector<int>, Outcome> known;
  const auto [entry, fresh] = known.try_emplace({row[model], row[tied], row[batch], row[frozen], row[rule]});
  if (!fresh) return entry->second;
  Levels plain(row.size(), 0);
  for (const Factor f : {model, tied, batch, frozen, rule}) plain[f] = row[f];
  const Draw d = draw_of(plain, 0);
  return entry->second = step<T>(plain, d, single_rank_grid(d.model.layers()), sequences, 1, 0);
}

// Largest difference of a weight, relative to the largest element.
double worst_weight(const NamedTensors& wanted, const NamedTensors& found) {
  double worst = wanted.size() == found.size() ? 0 : INFINITY;
  for (const auto& [name, values] : wanted) {
    double difference = 0, largest = 1e-300;
    for (std::size_t i = 0; i < values.size(); ++i)
      difference = std::max(difference, std::abs(values[i] - found.at(name)[i])), largest = std::max(largest, std::abs(values[i]));
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

// Errors, and the error of the weights after the step. Both are valid on the first rank of the grid.
template <class T>
std::pair<Errors, double> compare(const Levels& row, const Draw& d, Grid& grid) {
  const Outcome many = step<T>(row, d, grid, d.micros, d.data, grid.coordinate(Axis::data));
  if (grid.position() != 0) return {};
  const Outcome& one = on_one_rank<T>(row);
  return {errors_of(one, many), worst_weight(one.weights, many.weights)};
}

Rounding compare_in_bf16(const Levels& row, const Draw& d, Grid& grid) {
  const StepOutcome many = step<bf16>(row, d, grid, d.micros, d.data, grid.coordinate(Axis::data));
  if (grid.position() != 0) return {};
  return rounding_of(on_one_rank<double>(row), on_one_rank<bf16>(row), many);
}

struct Worst {
  double gradients = 0, loss = 0, norm = 0;
};
Worst worst_of(const Errors& e) { return {e.worst_gradient(), e.loss, e.norm}; }

struct RowErrors {
  Worst in_double = {}, in_float = {};
  double weights = 0;  // of the weights after the step, in double
  Rounding in_bf16 = {};
  bool small = true;

  void raise(const RowErrors& e) {
    for (const auto& [mine, theirs] : {std::pair{&in_double, &e.in_double}, {&in_float, &e.in_float}})
      *mine = {std::max(mine->gradients, theirs->gradients), std::max(mine->loss, theirs->loss), std::max(mine->norm, theirs->norm)};
    weights = std::max(weights, e.weights);
    in_bf16 = {std::max(in_bf16.norm, e.in_bf16.norm), std::max(in_bf16.ratio, e.in_bf16.ratio)};
  }
};

bool within_limits_of_float(Errors in_float, const Errors& in_double) {
  constexpr double roundings = 0x1p32;  // float rounding is 2^29 times that of double; the errors of two runs may differ by another factor of eight
  for (auto& [name, error] : in_float.gradients)
    if (error <= roundings * in_double.gradients.at(name)) error /= 2;
  return within_limits(in_float, DType::f32);
}

// Errors on the first rank, empty on the others. The grid consists of the first ranks and exists only for this row.
std::optional<RowErrors> compare(const Levels& row, const Draw& d, int rank, WaitPolicy patience) {
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, rank < d.ranks() ? 0 : MPI_UNDEFINED, rank, &comm);
  std::optional<RowErrors> errors;
  if (comm != MPI_COMM_NULL) {
    Grid grid(d.layout(), comm, patience);
    MPI_Comm_free(&comm);
    const auto [in_double, weights] = compare<double>(row, d, grid);
    const Errors in_float = compare<float>(row, d, grid).first;
    const Rounding in_bf16 = compare_in_bf16(row, d, grid);
    if (grid.position() == 0)
      errors = {worst_of(in_double), worst_of(in_float), weights, in_bf16,
                within_limits(in_double, DType::f64) && weights <= limit_of_weights && within_limits_of_float(in_float, in_double) &&
                    within_limits(in_bf16)};
  }
  sync_ranks();
  return errors;
}

std::string text_of(const Levels& row, const Draw& d) {
  return fmt::format("{:4} {:9} {:4}x{} {:11} {:10} {:6} {:6} {:8} {:16} {:6} {:5} {:6} {:6} {:7} {:6}", d.data, shard_names[row[shard]], d.pipeline,
                     d.chunks, stage_kinds[row[stages]], contexts[row[context]].name, d.tensor, d.attention_ranks > 0 ? "split" : "-",
                     d.sequence ? "parallel" : "-", recompute_names[row[recompute]], models[row[model]], row[tied] ? "tied" : "-",
                     batches[row[batch]], row[frozen] ? "some" : "-", row[order] ? "tensor" : "data", rules[row[rule]]);
}

std::string text_of(const Worst& e) { return fmt::format(" | {:7.1e} {:7.1e} {:7.1e}", e.gradients, e.loss, e.norm); }

std::string text_of(const RowErrors& e) {
  return text_of(e.in_double) + fmt::format(" {:7.1e}", e.weights) + text_of(e.in_float) +
         fmt::format(" | {:7.1e} {:4.2f}", e.in_bf16.norm, e.in_bf16.ratio);
}

int every_row() {
  const char* text = std::getenv("GYR_ROWS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

TEST(equality_table, every_pair_of_features_equals_one_rank) {
  const char* seed_text = std::getenv("GYR_SEED");
  const std::uint64_t seed = seed_text ? std::strtoull(seed_text, nullptr, 10) : 1;
  const int every = every_row();
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ASSERT_GE(ranks, most_ranks);
  const WaitPolicy patience = wait_policy_of(MPI_COMM_WORLD);
  const auto table = every_pair(levels, valid, 2, least_rows, seed);
  if (rank == 0)
    fmt::print(
        "seed {}; maximum errors of gradients, loss and norm in double, of weights after a step, and in float; in bf16 of the norm, and rounding "
        "relative to one rank\n"
        "row  data sharded   pipeline stages      context    tensor mixers sequence recompute        model  head  batch  frozen outer   rule\n",
        seed);
  RowErrors worst;
  int number = 0, looked_at = 0;
  for (const Levels& row : table) {
    const Draw d = draw_of(row, ++number);
    if ((number - 1) % every != 0) continue;
    ++looked_at;
    const auto errors = compare(row, d, rank, patience);
    if (!errors) continue;
    fmt::print("{:3}  {}{}{}\n", number, text_of(row, d), text_of(*errors), errors->small ? "" : "  BEYOND");
    std::fflush(stdout);
    EXPECT_TRUE(errors->small) << number << " of seed " << seed << ": " << d.text();
    worst.raise(*errors);
  }
  if (rank == 0)
    fmt::print("{} of {} layouts, maximum errors:{}\nlimits: double {:.0e} and {:.0e}, float {:.0e}, bf16 {} and {}\n", looked_at, table.size(),
               text_of(worst), limit_of(DType::f64), limit_of_weights, limit_of(DType::f32), limit_in_bf16.norm, limit_in_bf16.ratio);
}

// Candidate layouts. A family uses the first that suits its model and batch, with as many pipeline stages as possible.
struct FamilyLayout {
  int data, context, tensor;
  Shard shard;
};
const std::vector<FamilyLayout> family_layouts{{2, 2, 2, Shard::weights},   {2, 1, 4, Shard::weights}, {2, 1, 2, Shard::weights},
                                               {2, 1, 1, Shard::gradients}, {1, 1, 4, Shard::none},    {1, 1, 1, Shard::none}};

bool suits(const Golden& g, const FamilyLayout& l) {
  if (l.context > 1 && reads_images(g.model)) return false;
  const bool has_blocks = l.context == 1 || g.batch.seq_length >= 2 * l.context * (g.model.mamba.conv_kernel - 1);
  return has_blocks && g.batch.batch % l.data == 0 && splits(g.model, l.tensor);
}

Layout layout_of_family(const Golden& g) {
  const FamilyLayout& l = *std::find_if(family_layouts.begin(), family_layouts.end(), [&](const FamilyLayout& l) { return suits(g, l); });
  const int layers = g.model.layers(), pipeline = std::min(layers, most_ranks / (l.data * l.context * l.tensor));
  std::vector<Span> stages;
  for (int s = 0; s < pipeline; ++s) stages.push_back({layers * s / pipeline, layers * (s + 1) / pipeline});
  const Layout layout = grid_layout(l.data, pipeline, l.tensor, stages, {}, {}, l.context);
  return l.shard == Shard::none ? layout : sharded(layout, l.shard);
}

// The result is valid on the first rank of the grid.
template <class T>
Errors compare_family(const Golden& g, Grid& grid) {
  const StepOutcome many = step_of<T>(g, grid);
  return grid.position() == 0 ? errors_of(step_of<T>(g, single_rank_grid(g.model.layers())), many) : Errors{};
}

TEST(equality_table, every_model_family_equals_one_rank) {
  int rank = 0, number = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    fmt::print("model                    layers              data pipeline context tensor sharded   maximum errors of gradients, loss and norm\n");
  for (const std::string& name : golden_family_names()) {
    if (number++ % every_row() != 0) continue;
    const Golden& g = golden(name);
    const Layout layout = layout_of_family(g);
    if (Grid* const grid = grid_of(layout)) {
      const Errors in_double = compare_family<double>(g, *grid), in_float = compare_family<float>(g, *grid);
      if (grid->position() == 0) {
        fmt::print("{:24} {:19} {:4} {:8} {:7} {:6} {:9}{}{}\n", name, g.model.pattern, layout.size(Axis::data), layout.size(Axis::pipeline),
                   layout.size(Axis::context), layout.size(Axis::tensor), name_of(layout.shard), text_of(worst_of(in_double)),
                   text_of(worst_of(in_float)));
        std::fflush(stdout);
        EXPECT_TRUE(within_limits(in_double, DType::f64)) << name;
        EXPECT_TRUE(within_limits_of_float(in_float, in_double)) << name;
      }
    }
    sync_ranks();
  }
}

}  // namespace
}  // namespace gyr::testing::equality_table_suite
