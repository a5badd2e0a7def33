// SPDX-License-Identifier: BSD-3-Clause
// With RoPE scaling by the sequence length (rope_type dynamic), every sequence is scaled by its own length: scores and
// generated text do not depend on the other sequences of a run, on padding, on packing or on the grid.
#include <random>

#include "regression/support/encoder_decoder.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"
#include "src/evaluation/scorer.hpp"

namespace gyr::testing::sequence_lengths_suite {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  Index from(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  template <class V>
  V of(const std::vector<V>& values) {
    return values[std::size_t(from(0, Index(values.size()) - 1))];
  }

 private:
  std::mt19937 random_;
};

// A model of eight layers whose RoPE is scaled beyond a few tokens.
ModelConfig drawn_model(Dice& dice, const std::string& pattern) {
  ModelConfig m = pattern.find(encoder_end) == std::string::npos ? widened(named("T2")) : encoder_and_decoder(pattern, 0);
  m.pattern = pattern, m.vocab_size = 62;
  m.attention.num_heads = 8, m.latent.num_heads = 8;
  m.attention.rope_theta = m.latent.rope_theta = double(dice.from(5, 50));
  m.attention.out_multiplier = 6;  // so that the text depends on attention
  m.attention.rotary_fraction = dice.of<double>({0.5, 1});
  m.attention.rope_scaling = {RopeScaling::dynamic, double(dice.from(2, 8)), 1, 4, dice.from(1, 12)};
  m.latent.rope_scaling = {RopeScaling::dynamic, double(dice.from(2, 8)), 1, 4, dice.from(1, 12)};
  m.window = {dice.from(2, 9), dice.of<double>({0, 7})};
  return m;
}

Passage drawn_passage(Dice& dice, Index length, Index source_length) {
  Passage p;
  for (Index t = 0; t < length; ++t) p.tokens.push_back(Token(dice.from(1, 61))), p.labels.push_back(Token(dice.from(1, 61)));
  for (Index t = 0; t < source_length; ++t) p.source.push_back(Token(dice.from(1, 61)));
  return p;
}

// Several passages one after the other, as packed documents of one passage.
Passage packed(const std::vector<Passage>& documents) {
  Passage all;
  for (const Passage& d : documents) {
    all.tokens.insert(all.tokens.end(), d.tokens.begin(), d.tokens.end());
    all.labels.insert(all.labels.end(), d.labels.begin(), d.labels.end());
    for (std::size_t t = 0; t < d.tokens.size(); ++t) all.positions.push_back(std::int32_t(t));
  }
  return all;
}

std::vector<PassageScore> scores_of(const ModelConfig& model, Grid& grid, const std::vector<Passage>& all, const BatchLimits& limits) {
  Passages passages;
  for (const Passage& p : all) {
    passages.lengths.push_back(Index(p.tokens.size()));
    passages.source_length = std::max(passages.source_length, Index(p.source.size()));
  }
  passages.make = [&](Index i) { return all[std::size_t(i)]; };
  const Fill fill = [](Stage& stage) {
    Device device(false, 0);
    for (const auto& p : stage.parameters().all()) assign(device, *p, WeightValues(p->weight));
  };
  return score_passages(model, DType::f64, grid, fill, passages, limits);
}

double single_rank_loss(const ModelConfig& model, const Passage& p) {
  return scores_of(model, single_rank_grid(model.layers()), {p}, {}).front().loss;
}

Layout drawn_layout(Dice& dice) {
  const auto [data, pipeline, tensor] = dice.of<std::array<int, 3>>({{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 4}, {2, 2, 2}});
  return layout_of(data, pipeline, tensor);
}

TEST(sequence_lengths, dynamic_rope_scores_ignore_other_sequences) {
  Dice dice(seed_of_run());
  double worst = 0;
  for (int number = 0; number < 24; ++number) {
    const bool encoder = number % 4 == 3;
    const std::string pattern = encoder ? "*-*->*X-" : dice.of<std::string>({"*-*-*-*-", "W-*-W-*-", "L-L-L-L-", "*-L-W-*-"});
    ModelConfig model = drawn_model(dice, pattern);
    model.attention.causal = encoder || dice.from(0, 2) > 0;
    const bool packs = !encoder && dice.from(0, 1);
    std::vector<Passage> passages;
    std::vector<double> expected;
    for (Index i = dice.from(2, 5); i > 0; --i) {
      std::vector<Passage> documents;
      for (Index d = packs ? dice.from(1, 3) : 1; d > 0; --d)
        documents.push_back(drawn_passage(dice, dice.from(1, 20), encoder ? dice.from(1, 20) : 0));
      passages.push_back(packs ? packed(documents) : documents.front());
      expected.push_back(0);
      for (const Passage& d : documents) expected.back() += single_rank_loss(model, d);
    }
    const BatchLimits limits{dice.from(1, 4), dice.from(8, 90)};
    const Layout layout = drawn_layout(dice);
    if (Grid* grid = grid_of(layout)) {
      const auto scores = scores_of(model, *grid, passages, limits);
      for (std::size_t i = 0; i < passages.size(); ++i) {
        const double error = std::abs(scores[i].loss - expected[i]) / expected[i];
        worst = std::max(worst, error);
        EXPECT_LE(error, 1e-12) << "draw " << number << ": " << pattern << ", passage " << i << " of " << passages.size() << ", up to "
                                << limits.passages << " in a batch, on " << layout.ranks() << " ranks";
      }
    }
    sync_ranks();
  }
  std::printf("largest relative difference of a loss: %.1e\n", worst);
}

std::vector<std::vector<Token>> written(const ModelConfig& model, Grid& grid, const std::vector<std::vector<Token>>& prompts, Index batch_size,
                                        Index made) {
  Generator generator(model, DType::f64, grid, {batch_size, longest_of(prompts), made});
  Device device(false, 0);
  generator.stage().fill([&](ParameterList weights, const Arrived& arrived) {
    for (const auto& p : weights) {
      assign(device, *p, WeightValues(p->weight));
      arrived(*p);
    }
  });
  return texts_of(generator, prompts, {0, 0, 1, 7, made});
}

TEST(sequence_lengths, dynamic_rope_text_ignores_other_prompts) {
  Dice dice(seed_of_run() + 1000);
  for (int number = 0; number < 30; ++number) {
    const std::string pattern = dice.of<std::string>({"*-*-*-*-", "W-*-W-*-", "L-L-L-L-", "P-P-P-P-", "*-*->*X-"});
    const ModelConfig model = drawn_model(dice, pattern);
    std::vector<std::vector<Token>> prompts, expected;
    const Index made = dice.from(1, 16);
    for (Index i = dice.from(2, 5); i > 0; --i) {
      prompts.push_back(drawn_passage(dice, dice.from(1, 20), 0).tokens);
      expected.push_back(written(model, single_rank_grid(8), {prompts.back()}, 1, made).front());
    }
    const Index batch_size = dice.from(1, 4);
    const auto [pipeline, tensor] = dice.of<std::array<int, 2>>({{1, 1}, {2, 1}, {1, 4}, {2, 2}});
    if (Grid* grid = grid_of(layout_of(1, pipeline, tensor))) {
      EXPECT_EQ(written(model, *grid, prompts, batch_size, made), expected)
          << "draw " << number << ": " << pattern << ", " << batch_size << " together, pipeline " << pipeline << " tensor " << tensor;
    }
    sync_ranks();
  }
}

}  // namespace
}  // namespace gyr::testing::sequence_lengths_suite
