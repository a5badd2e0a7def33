// SPDX-License-Identifier: BSD-3-Clause
// LoRA adapters of stored models: merged weights equal W + s B A in any box, and a run continues adapters only with the
// settings with which they were stored.
#include "src/pretrained/adapters.hpp"

#include <random>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/state.hpp"
#include "src/config/run_config.hpp"
#include "src/deck/deck.hpp"

namespace gyr::testing::stored_adapters_suite {
namespace {

namespace fs = std::filesystem;

using Random = std::mt19937;
Index from(Random& random, Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); }

// A stored matrix with these values.
TensorReader reader_of(const char* name, Shape shape, std::vector<float> values) {
  TensorReader reader{name, DType::f32, shape, {}};
  reader.read_parts = [shape, values = std::move(values)](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const BoxPair& part : parts)
      for (Index i = 0; i < part.from.count[0]; ++i)
        for (Index j = 0; j < part.from.count[1]; ++j)
          static_cast<float*>(data)[(part.to.first[0] + i) * array[1] + part.to.first[1] + j] =
              values[std::size_t((part.from.first[0] + i) * shape[1] + part.from.first[1] + j)];
  };
  return reader;
}

std::vector<float> drawn(Random& random, Index count) {
  std::vector<float> values;
  for (Index i = 0; i < count; ++i) values.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  return values;
}

// A box that a rank reads: a random part of the matrix, at a random place of the rank's array.
BoxPair drawn_box(Random& random, const Shape& shape, Shape& array) {
  BoxPair part{{{}, {}}, {{}, {}}};
  array.clear();
  for (const Index size : shape) {
    const Index first = from(random, 0, size - 1), count = from(random, 1, size - first), before = from(random, 0, 3);
    part.from.first.push_back(first), part.from.count.push_back(count), part.to.first.push_back(before), part.to.count.push_back(count);
    array.push_back(before + count + from(random, 0, 3));
  }
  return part;
}

TEST(stored_adapters, merged_weights_equal_loops_in_any_box) {
  Random random(seed_of_run());
  for (int draw = 0; draw < 300; ++draw) {
    const Index rows = from(random, 1, 9), columns = from(random, 1, 9), rank = from(random, 1, 4);
    const double scale = std::uniform_real_distribution<double>(-3, 3)(random);
    const std::vector<float> w = drawn(random, rows * columns), a = drawn(random, rank * columns), b = drawn(random, rows * rank);
    const TensorReader sum = merged(reader_of("w", {rows, columns}, w), reader_of("a", {rank, columns}, a), reader_of("b", {rows, rank}, b), scale);
    Shape array;
    const BoxPair part = drawn_box(random, sum.shape, array);
    std::vector<float> read(std::size_t(elements(array)), 7);
    sum.read(part.from, read.data(), array, part.to);
    for (Index i = 0; i < array[0]; ++i)
      for (Index j = 0; j < array[1]; ++j) {
        const Index row = i - part.to.first[0] + part.from.first[0], column = j - part.to.first[1] + part.from.first[1];
        const bool inside =
            i >= part.to.first[0] && i < part.to.first[0] + part.to.count[0] && j >= part.to.first[1] && j < part.to.first[1] + part.to.count[1];
        double expected = inside ? double(w[std::size_t(row * columns + column)]) : 7;  // elements outside of the box stay
        for (Index r = 0; r < rank && inside; ++r)
          expected += scale * double(b[std::size_t(row * rank + r)]) * double(a[std::size_t(r * columns + column)]);
        EXPECT_NEAR(double(read[std::size_t(i * array[1] + j)]), expected, 1e-5) << "draw " << draw << " at " << i << ", " << j;
      }
  }
}

// Settings finetune.lora.* of a run; rank 0: no adapters.
struct Lora {
  Index rank = 0, alpha = 16;
  std::string targets = "q_proj";

  explicit Lora(Random& random) : rank(from(random, 0, 2)), alpha(from(random, 1, 2)) {
    targets = std::vector<std::string>{"q_proj", "k_proj", "\"*\"", "o_proj, down_proj"}[std::size_t(from(random, 0, 3))];
  }
  std::string text() const { return fmt::format("{{rank: {}, alpha: {}, targets: [{}]}}", rank, alpha, targets); }
};

struct AdaptedRun {
  ModelConfig model;
  std::string deck;

  explicit AdaptedRun(const Lora& lora) {
    Deck parsed = Deck::parse(
        "model: {pattern: \"*-\", hidden_size: 16, vocab_size: 24, attention: {num_heads: 4, num_kv_heads: 2, head_dim: 4}, mlp: {intermediate_size: "
        "20}}\nfinetune: {lora: " +
            lora.text() + "}\n",
        "drawn.yaml");
    model = read_run_config(parsed).model, deck = parsed.effective();
  }
  // Saves a checkpoint of this run with the weights of state 1.
  fs::path save(const fs::path& folder) const {
    EngineConfig config;
    config.model = model, config.optimizer.lora = model.lora, config.seq_length = 4;
    Rig<float> rig(config, single_rank_grid(model.layers()));
    set_state(rig.engine, 1);
    CheckpointHeader header;
    header.step = 1, header.deck = deck;
    return save_checkpoint(folder, header, rig.engine).path;
  }
};

float stored_value(const std::string& name, Index i) { return float(state_value(1, Content::weight, name, i)); }

// Value of a weight of a run that starts from the stored one: the stored value, a drawn value of a new adapter, or the
// stored value with the stored adapter merged.
double expected_value(const Weight& w, Index i, const LoraConfig& stored, const LoraConfig& asked, std::uint64_t seed) {
  if (w.of_adapter && !stored) return draw(w.init, Stream(seed, w.name), i);
  double value = double(stored_value(w.name, i));
  if (asked || !stored.targets_weight(w)) return value;
  const Index columns = w.shape[1];
  for (Index r = 0; r < stored.rank; ++r)
    value += stored.scale() * double(stored_value(adapter_b_of(w.name), i / columns * stored.rank + r)) *
             double(stored_value(adapter_a_of(w.name), r * columns + i % columns));
  return value;
}

std::vector<double> values_of(const TensorReader& reader) {
  std::vector<double> values(std::size_t(elements(reader.shape)));
  if (reader.dtype == DType::f64) {  // initialised adapters
    reader.read(full_box(reader.shape), values.data(), reader.shape, full_box(reader.shape));
    return values;
  }
  std::vector<float> stored(values.size());
  reader.read(full_box(reader.shape), stored.data(), reader.shape, full_box(reader.shape));
  return {stored.begin(), stored.end()};
}

void expect_values(const fs::path& path, const ModelConfig& model, const LoraConfig& stored, std::uint64_t seed) {
  const auto source = open_adapted(path, model, seed);
  for (const Weight& w : declared_weights(model)) {
    const std::vector<double> read = values_of(source->open(w.name, DType::f32));
    for (Index i = 0; i < w.size(); ++i) ASSERT_NEAR(read[std::size_t(i)], expected_value(w, i, stored, model.lora, seed), 1e-5) << w.name;
  }
}

// Without adapters in the deck they are merged, and without stored ones they are initialised. Otherwise rank, alpha and
// adapted layers must be those of the checkpoint.
TEST(stored_adapters, adapters_continue_only_with_stored_settings) {
  Random random(seed_of_run());
  int continued = 0, refused = 0, merged = 0, initialised = 0;
  for (int draw = 0; draw < 80; ++draw) {
    const Lora stored(random);
    Lora asked(random);
    if (const Index same = from(random, 0, 4); same < 4) {  // at most one setting differs
      if (same != 1) asked.rank = stored.rank;
      if (same != 2) asked.alpha = stored.alpha;
      if (same != 3) asked.targets = stored.targets;
    }
    SCOPED_TRACE(fmt::format("draw {}: stored {}, asked {}", draw, stored.text(), asked.text()));
    const Folder folder;
    const AdaptedRun before(stored), now(asked);
    const fs::path path = before.save(folder.path());
    const bool differ = stored.rank > 0 && asked.rank > 0 && stored.text() != asked.text();
    if (!differ) {
      expect_values(path, now.model, before.model.lora, 7);
      (stored.rank > 0 ? asked.rank > 0 ? continued : merged : initialised) += 1;
      continue;
    }
    const Error error = error_of([&] { open_adapted(path, now.model, 7); });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find(fmt::format("has adapters of rank {} with alpha {} on ", stored.rank, stored.alpha)), std::string::npos)
        << error.what();
    ++refused;
  }
  for (const int count : {continued, refused, merged, initialised}) EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace gyr::testing::stored_adapters_suite
