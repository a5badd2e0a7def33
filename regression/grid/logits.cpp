// SPDX-License-Identifier: BSD-3-Clause
// The logits that `eval --logits` writes equal those of transformers, row by row, on any grid and with any batch size.
#include <cmath>

#include "regression/support/golden.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/evaluation/scorer.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::logits_suite {
namespace {

// Sequences of a golden model without their padding.
Passages passages_of(const Golden& g) {
  Passages passages;
  for (Index b = 0; b < g.batch.batch; ++b) {
    const auto row = g.row.begin() + b * g.batch.seq_length;
    passages.lengths.push_back(std::count_if(row, row + g.batch.seq_length, [](Index r) { return r >= 0; }));
  }
  passages.make = [&g, lengths = passages.lengths](Index b) {
    const auto part = [&](const std::vector<Token>& x) {
      const auto begin = x.begin() + b * g.batch.seq_length;
      return std::vector<Token>(begin, begin + lengths[b]);
    };
    return Passage{part(g.batch.tokens), part(g.batch.labels)};
  };
  return passages;
}

template <class V>
std::vector<V> values_in(const hdf5::File& file, const std::string& name, const Shape& shape) {
  const hdf5::Dataset dataset = file.dataset(name);
  EXPECT_EQ(dataset.shape(), shape) << name;
  std::vector<V> x(elements(dataset.shape()));
  dataset.read_rows(0, dataset.shape()[0], x.data());
  return x;
}

template <class T>
void expect_written(const std::filesystem::path& path, const Golden& g, const Passages& passages, double tolerance, const std::string& where) {
  const GoldenValues& expected = std::is_same_v<T, double> ? g.twice : g.single;
  const hdf5::File file = hdf5::File::open(path);
  Index rows = 0;
  for (const Index length : passages.lengths) rows += length;
  const auto logits = values_in<T>(file, "/logits", {rows, g.model.vocab_size});
  const auto tokens = values_in<std::int32_t>(file, "/tokens", {rows}), labels = values_in<std::int32_t>(file, "/labels", {rows});
  const auto offsets = values_in<std::int64_t>(file, "/offsets", {passages.count() + 1});
  double largest = 0, error = 0;
  for (const double x : expected.logits) largest = std::max(largest, std::abs(x));
  for (Index i = 0; i < passages.count(); ++i) {
    const Passage p = passages.make(i);
    ASSERT_EQ(offsets[i + 1] - offsets[i], passages.lengths[i]) << where;
    for (Index t = 0; t < passages.lengths[i]; ++t) {
      EXPECT_EQ(tokens[offsets[i] + t], p.tokens[t]) << where;
      EXPECT_EQ(labels[offsets[i] + t], p.labels[t]) << where;
      const Index row = g.row[i * g.batch.seq_length + t];
      for (Index v = 0; v < g.model.vocab_size; ++v)
        error = std::max(error, std::abs(double(logits[(offsets[i] + t) * g.model.vocab_size + v]) - expected.logits[row * g.model.vocab_size + v]));
    }
  }
  EXPECT_LE(error, tolerance * largest) << where;
}

class logits : public ::testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void expect_transformers(double tolerance) {
    const Golden& g = golden(GetParam());
    const Passages passages = passages_of(g);
    const SharedFolder folder;
    for (const auto& [data, pipeline, tensor] : {std::tuple{1, 1, 1}, {3, 1, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 1}})
      for (const BatchLimits& limits : {BatchLimits{}, BatchLimits{1, 16}}) {
        if (!splits(g.model, tensor)) continue;
        const std::vector<Span> stages = pipeline == 1 ? std::vector<Span>{{0, 2}} : std::vector<Span>{{0, 1}, {1, 2}};
        Grid* grid = grid_of(grid_layout(data, pipeline, tensor, stages));
        const std::string where = fmt::format("{} data {} pipeline {} tensor {}, {} together", g.name, data, pipeline, tensor, limits.passages);
        if (grid) {
          LogitsFile file(folder / "logits.h5", *grid, passages, g.model.vocab_size, dtype_of<T>());
          score_passages(
              g.model, dtype_of<T>(), *grid, [&](Stage& stage) { load_weights(g.folder, *grid, stage.config(), stage.parameters().all()); }, passages,
              limits, &file);
          file.finish();
        }
        sync_ranks();
        if (SharedFolder::rank() == 0) {
          expect_written<T>(folder / "logits.h5", g, passages, tolerance, where);
          EXPECT_FALSE(std::filesystem::exists(folder / "logits.h5.tmp"));
          std::filesystem::remove(folder / "logits.h5");
        }
        sync_ranks();
      }
  }
};

TEST_P(logits, written_logits_equal_transformers_in_double) { expect_transformers<double>(1e-13); }
TEST_P(logits, written_logits_equal_transformers_in_float) { expect_transformers<float>(5e-6); }

INSTANTIATE_TEST_SUITE_P(golden, logits, ::testing::Values("plain_gate", "right_padding", "padded_vocabulary", "tied_multi_query"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyr::testing::logits_suite
