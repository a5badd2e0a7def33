// SPDX-License-Identifier: BSD-3-Clause
// A dump of a step does not depend on the grid. It has the same unsharded tensors under the same names, with equal
// values up to rounding. The values are those that the names promise.
#include "src/dump/dump.hpp"

#include <cmath>
#include <set>

#include "regression/support/file_size_limit.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"

namespace gyr::testing::dump_suite {
namespace {

namespace fs = std::filesystem;

constexpr Index sequences = 8, seq_length = 11;
constexpr std::int64_t step = 3;

CheckpointHeader header_of_step() {
  CheckpointHeader h;
  h.step = step;
  return h;
}

// Computes the gradients of a step on a grid and dumps the step into `folder`. Returns the gathered gradients.
template <class T>
std::map<std::string, std::vector<double>> dump(const ModelConfig& model, Grid& grid, const fs::path& folder,
                                                const std::vector<std::string>& what = {"/activations/*", "/gradients/*", "/model/*"},
                                                Note note = {}) {
  EngineConfig config;
  config.model = model;
  config.micro_batch_size = 2, config.seq_length = seq_length;
  config.micros = int(sequences / grid.layout().size(Axis::data) / config.micro_batch_size);
  Rig<T> rig(config, grid);
  const int data = grid.layout().size(Axis::data), mine = grid.coordinate(Axis::data);
  const auto source = [&](int micro) { return micro_batch((Index(micro) * data + mine) * 2, 2, seq_length, model.vocab_size); };
  const Dump looks(folder, header_of_step(), what, rig.engine, sequences, note);
  rig.engine.gradients(source, config.micros, step);
  return gathered_gradients(rig.engine);
}

std::vector<double> values(const StoredCheckpoint& from, const std::string& path) {
  const StoredTensor* tensor = from.find(path);
  if (tensor == nullptr) ADD_FAILURE() << path << " is missing";
  if (tensor == nullptr) return {};
  std::vector<double> all(std::size_t(elements(tensor->shape)));
  EXPECT_EQ(tensor->dtype, DType::f64) << path;
  from.read_rows(*tensor, 0, tensor->shape[0], all.data());
  return all;
}

fs::path in(const fs::path& folder) { return checkpoint_path(folder, step); }

void expect_one_dump(const ModelConfig& model) {
  const SharedFolder folder;
  if (SharedFolder::rank() == 0) dump<double>(model, single_rank_grid(8), folder / "one");
  sync_ranks();
  const std::vector<Axis> inside_out{Axis::tensor, Axis::pipeline, Axis::data};
  for (const Layout& layout :
       {layout_of(1, 1, 8), with_sequence(layout_of(1, 1, 8)), layout_of(1, 8, 1), layout_of(4, 1, 2), with_sequence(layout_of(2, 1, 4)),
        sharded(layout_of(4, 2, 1), Shard::optimizer), sharded(layout_of(4, 1, 2), Shard::gradients), sharded(layout_of(2, 2, 2), Shard::weights),
        with_separate_mixers(layout_of(1, 1, 8), 4), with_separate_mixers(sharded(with_sequence(layout_of(2, 1, 4)), Shard::weights), 2),
        layout_with_context(2, 1, 2, 2), with_sequence(layout_with_context(1, 2, 2, 2, SequenceOrder::contiguous)),
        balanced(layout_with_context(1, 1, 4, 2)), balanced(layout_with_context(1, 2, 3, 1)),
        layout_of(2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4}, inside_out)}) {
    const fs::path many = folder / layout.text();
    if (Grid* grid = grid_of(layout)) dump<double>(model, *grid, many);
    sync_ranks();
    if (SharedFolder::rank() > 0) continue;
    const Difference difference = diff_checkpoints(in(folder / "one"), in(many), {{"*", 0, 1e-12}});
    EXPECT_TRUE(difference.within) << many << "\n" << difference.text;
  }
}

TEST(dump, dump_is_the_same_from_any_grid) { expect_one_dump(widened(named("T5"))); }  // several ranks hold the same key heads
TEST(dump, dump_is_the_same_with_replicated_heads) { expect_one_dump(narrowed(named("T6"))); }

double silu(double x) { return x / (1 + std::exp(-x)); }

void expect_near(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i]))) << what << " " << i;
}

// Causal attention as plain loops: output of every row and head from the keys and values of the tokens up to it.
std::vector<double> attended(const ModelConfig& model, const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v) {
  const Index w = model.attention.head_dim, heads = model.attention.num_heads, keys = model.attention.num_kv_heads;
  std::vector<double> out(q.size());
  for (Index row = 0; row < sequences * seq_length; ++row)
    for (Index h = 0; h < heads; ++h) {
      const Index key_head = h / (heads / keys), first = row / seq_length * seq_length;
      const auto dot = [&](Index other) {
        double sum = 0;
        for (Index c = 0; c < w; ++c) sum += q[(row * heads + h) * w + c] * k[(other * keys + key_head) * w + c];
        return std::exp(sum / std::sqrt(double(w)));
      };
      double total = 0;
      for (Index other = first; other <= row; ++other) total += dot(other);
      for (Index c = 0; c < w; ++c) {
        double sum = 0;
        for (Index other = first; other <= row; ++other) sum += dot(other) * v[(other * keys + key_head) * w + c];
        out[(row * heads + h) * w + c] = sum / total;
      }
    }
  return out;
}

// On a grid with data, pipeline and tensor parallelism, plain loops over dumped tensors must give other dumped tensors.
TEST(dump, dumped_tensors_match_plain_loops) {
  const SharedFolder folder;
  const ModelConfig model = widened(named("T2"));
  ASSERT_FALSE(model.tie_word_embeddings);
  const auto gradients = dump<double>(model, *grid_of(layout_of(2, 2, 2)), folder.path());
  if (SharedFolder::rank() == 0) {
    const StoredCheckpoint stored(in(folder.path()));
    for (const auto& [name, gradient] : gradients) expect_near(values(stored, path_of(Content::gradient, name)), gradient, name);

    const std::string layer = "/activations/layers/5";
    const auto gate = values(stored, layer + "/feed_forward/gate"), up = values(stored, layer + "/feed_forward/up");
    std::vector<double> inner(gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i) inner[i] = silu(gate[i] * model.mlp.gate_multiplier) * up[i];
    expect_near(values(stored, layer + "/feed_forward/inner"), inner, "inner");
    const auto found = attended(model, values(stored, layer + "/self_attn/queries"), values(stored, layer + "/self_attn/keys"),
                                values(stored, layer + "/self_attn/values"));
    expect_near(values(stored, layer + "/self_attn/attended"), found, "attended");

    // The embedding reads the matrix row of each token, and adds the token's gradient to that row.
    const MicroBatch batch = micro_batch(0, sequences, seq_length, model.vocab_size);
    const auto table = values(stored, "/model/embed_tokens/weight"), upstream = values(stored, "/gradients/embed_tokens/output");
    std::vector<double> embedded, summed(table.size());
    for (std::size_t r = 0; r < batch.tokens.size(); ++r)
      for (Index c = 0; c < model.hidden_size; ++c) {
        embedded.push_back(model.embedding_multiplier * table[batch.tokens[r] * model.hidden_size + c]);
        if (batch.tokens[r] != model.pad_token_id)
          summed[batch.tokens[r] * model.hidden_size + c] += model.embedding_multiplier * upstream[Index(r) * model.hidden_size + c];
      }
    expect_near(values(stored, "/activations/embed_tokens/output"), embedded, "embedded");
    expect_near(values(stored, "/gradients/embed_tokens/weight"), summed, "gradient of the embedding");
  }
  sync_ranks();
}

TEST(dump, patterns_select_the_dumped_tensors) {
  const SharedFolder folder;
  std::vector<std::string> printed;
  const std::vector<std::string> what{"/gradients/layers/7/*.weight", "/activations/layers/?/output", "/model/layers/6/mamba/D"};
  if (Grid* grid = grid_of(layout_of(1, 2, 2)))
    dump<float>(widened(named("T2")), *grid, folder.path(), what, [&](const std::string& line) { printed.push_back(line); });
  sync_ranks();
  if (SharedFolder::rank() == 0) {
    std::set<std::string> paths, wanted{"/model/layers/6/mamba/D"};
    for (int layer = 0; layer < 8; ++layer) wanted.insert(fmt::format("/activations/layers/{}/output", layer));
    const StoredCheckpoint stored(in(folder.path()));
    for (const StoredTensor& t : stored.tensors()) paths.insert(t.path);
    EXPECT_EQ(paths, wanted);
    ASSERT_EQ(printed.size(), 2u);  // one for the written dump, one for the pattern without a match, since names have no dots
    EXPECT_NE(printed[1].find("no tensor matches /gradients/layers/7/*.weight"), std::string::npos) << printed[1];
  } else {
    EXPECT_TRUE(printed.empty());
  }
  sync_ranks();
}

// The step continues meanwhile, also on the rank with the full disk.
TEST(dump, full_disk_on_one_rank_fails_all_ranks) {
  const SharedFolder folder;
  std::optional<FileSizeLimit> full;
  if (SharedFolder::rank() == 5) full.emplace(40'000);
  const Error error = error_of([&] { dump<double>(widened(named("T2")), *grid_of(layout_of(2, 2, 2)), folder.path()); });
  full.reset();
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_NE(std::string(error.what()).find("shard_00005.h5"), std::string::npos) << error.what();
  sync_ranks();
  EXPECT_TRUE(SharedFolder::rank() > 0 || fs::is_empty(folder.path()));
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::dump_suite
