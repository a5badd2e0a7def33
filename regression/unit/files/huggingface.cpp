// SPDX-License-Identifier: BSD-3-Clause
// The comparison with transformers in regression/grid/huggingface.cpp must detect errors that ports of Falcon-H1 are
// known to make: a multiplier that is missing, misplaced or cancelled by a norm, heads in the wrong group, norms over
// the wrong channels. Each test here introduces such an error and expects a large difference.
#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::huggingface_suite {
namespace {

using Multiplier = std::function<double&(ModelConfig&)>;

const std::map<std::string, Multiplier>& multipliers() {
  static const std::map<std::string, Multiplier> all{{"embedding", [](ModelConfig& m) -> double& { return m.embedding_multiplier; }},
                                                     {"head", [](ModelConfig& m) -> double& { return m.lm_head_multiplier; }},
                                                     {"attention in", [](ModelConfig& m) -> double& { return m.attention.in_multiplier; }},
                                                     {"key", [](ModelConfig& m) -> double& { return m.attention.key_multiplier; }},
                                                     {"attention out", [](ModelConfig& m) -> double& { return m.attention.out_multiplier; }},
                                                     {"ssm in", [](ModelConfig& m) -> double& { return m.mamba.in_multiplier; }},
                                                     {"ssm out", [](ModelConfig& m) -> double& { return m.mamba.out_multiplier; }},
                                                     {"z", [](ModelConfig& m) -> double& { return m.mamba.multipliers[0]; }},
                                                     {"x", [](ModelConfig& m) -> double& { return m.mamba.multipliers[1]; }},
                                                     {"B", [](ModelConfig& m) -> double& { return m.mamba.multipliers[2]; }},
                                                     {"C", [](ModelConfig& m) -> double& { return m.mamba.multipliers[3]; }},
                                                     {"dt", [](ModelConfig& m) -> double& { return m.mamba.multipliers[4]; }},
                                                     {"gate", [](ModelConfig& m) -> double& { return m.mlp.gate_multiplier; }},
                                                     {"down", [](ModelConfig& m) -> double& { return m.mlp.down_multiplier; }}};
  return all;
}

// Smallest error that counts as detected. It is at least 100 times the error of a correct model in fp32.
constexpr double seen = 1e-3;

double error(const Golden& g, const ModelConfig& model) { return GoldenReader<double>(g, model, single_rank_grid(model.layers())).error(g.twice); }

class huggingface : public ::testing::TestWithParam<std::string> {
 protected:
  const Golden& g = gyr::testing::golden(GetParam());
};

INSTANTIATE_TEST_SUITE_P(golden, huggingface, ::testing::Values("plain_gate", "gate_first_two_groups", "norm_first_one_group", "like_7b", "like_34b"),
                         [](const auto& info) { return info.param; });

TEST_P(huggingface, detects_each_multiplier_off_by_a_tenth) {
  EXPECT_LT(error(g, g.model), seen / 1e6);
  for (const auto& [name, multiplier] : multipliers()) {
    ModelConfig model = g.model;
    multiplier(model) *= 1.1;
    EXPECT_GT(error(g, model), seen) << name;
  }
}

TEST_P(huggingface, detects_any_two_exchanged_multipliers) {
  const auto& all = multipliers();
  for (auto a = all.begin(); a != all.end(); ++a)
    for (auto b = std::next(a); b != all.end(); ++b) {
      ModelConfig model = g.model;
      if (std::abs(std::log(a->second(model) / b->second(model))) < 0.05) continue;  // some published models use equal multipliers
      std::swap(a->second(model), b->second(model));
      EXPECT_GT(error(g, model), seen) << a->first << " and " << b->first;
    }
}

TEST(huggingface, multipliers_of_the_golden_model_are_distinct) {
  ModelConfig model = golden("plain_gate").model;
  std::vector<double> values;
  for (const auto& [name, multiplier] : multipliers()) values.push_back(multiplier(model));
  values.push_back(1);
  std::sort(values.begin(), values.end());
  for (std::size_t i = 1; i < values.size(); ++i) EXPECT_GT(values[i], values[i - 1] * 1.04);
}

TEST_P(huggingface, detects_wrong_order_of_gate_and_norm) {
  for (const SsmNorm norm : {SsmNorm::gate_first, SsmNorm::norm_first}) {
    if (norm == g.model.mamba.norm || g.model.mamba.norm == SsmNorm::none) continue;
    ModelConfig model = g.model;
    model.mamba.norm = norm;
    EXPECT_GT(error(g, model), seen);
  }
}

// Heads belong to groups in contiguous blocks (0 0 0 1 1 1). Other ports interleaved them (0 1 0 1 0 1). Exchanging the
// B weights of the two groups gives what such a model computes for the affected heads.
TEST(huggingface, detects_heads_in_the_wrong_group) {
  const Golden& g = gyr::testing::golden("gate_first_two_groups");
  GoldenReader<double> reader(g, g.model, single_rank_grid(g.model.layers()));
  const MambaConfig& m = g.model.mamba;
  for (const auto& p : reader.stage().parameters().all()) {
    if (!p->weight.name.ends_with("mamba.in_proj.weight")) continue;
    auto w = p->template matrix<double>();
    for (Index n = 0; n < m.state_size; ++n)
      for (Index column = 0; column < g.model.hidden_size; ++column)
        std::swap(w(2 * m.inner() + n, column), w(2 * m.inner() + m.state_size + n, column));  // swaps the B rows of groups 0 and 1
  }
  EXPECT_GT(reader.error(g.twice), seen);
}

// One norm feeds both branches (attention and Mamba). A second copy of it would be trained separately.
TEST_P(huggingface, attention_and_mamba_share_one_input_norm) {
  GoldenReader<double> reader(g, g.model, single_rank_grid(g.model.layers()));
  Index norms = 0;
  for (const auto& p : reader.stage().parameters().all()) norms += p->weight.name.find("input_layernorm") != std::string::npos;
  EXPECT_EQ(norms, g.model.layers());
}

// Later tokens do not change the logits of a token: truncated sequences give the same logits for the remaining tokens.
TEST_P(huggingface, logits_do_not_depend_on_later_tokens) {
  GoldenReader<double> reader(g, g.model, single_rank_grid(g.model.layers()));
  for (Index seq_length = 1; seq_length < g.batch.seq_length; ++seq_length) EXPECT_LT(reader.error(g.twice, seq_length), 1e-13) << seq_length;
}

}  // namespace
}  // namespace gyr::testing::huggingface_suite
