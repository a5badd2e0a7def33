// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/rotary.hpp"

#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::rotary_suite {

namespace {

constexpr Index batch = 2, length = 9;

EngineConfig config_of(int components) {
  EngineConfig c;
  c.model = named("T2").model;
  c.model.pattern = "*W-", c.model.attention.head_dim = 8, c.model.window.size = 4;
  if (components > 1) c.model.attention.rotary_sections = {components, {1, 2, 4}};
  c.micro_batch_size = batch, c.seq_length = length;
  return c;
}

// Positions of a text with an image of 2 x 2 rows from token 3 on: time, row and column.
MicroBatch with_image(MicroBatch m) {
  std::vector<Token>& values = m.values[rotary_components];
  for (Index b = 0; b < m.batch; ++b)
    for (Index t = 0; t < m.seq_length; ++t) {
      const Token image = Token(t - 3);
      const bool inside = image >= 0 && image < 4;
      const Token text = Token(t < 3 ? t : t - 2);
      for (const Token p : {inside ? 3 : text, inside ? 3 + image / 2 : text, inside ? 3 + image % 2 : text}) values.push_back(p);
    }
  return m;
}

}  // namespace

// Without components, and with equal ones, all sections turn by the position: loss and gradient norm have the bits of RoPE.
TEST(rotary, equal_position_components_leave_loss_bits_unchanged) {
  const auto step = [](const EngineConfig& c, bool equal) {
    Rig<double> rig(c, single_rank_grid(c.model.layers()));
    set_weights(rig.engine);
    MicroBatch m = micro_batch(0, batch, length, c.model.vocab_size);
    for (Index r = 0; equal && r < batch * length; ++r) m.values[rotary_components].insert(m.values[rotary_components].end(), 3, Token(r % length));
    const StepResult result = rig.engine.gradients([&](int) { return m; }, 1, 1);
    return std::pair(result.loss, result.gradient_norm);
  };
  const auto plain = step(config_of(1), false);
  EXPECT_EQ(step(config_of(3), false), plain);
  EXPECT_EQ(step(config_of(3), true), plain);
}

TEST(rotary, gradients_with_position_components_match_differences) {
  const EngineConfig c = config_of(3);
  Rig<double> rig(c, single_rank_grid(c.model.layers()));
  set_weights(rig.engine);
  const MicroBatch plain = micro_batch(0, batch, length, c.model.vocab_size), image = with_image(plain);
  expect_differences_of(rig.engine, image);
  const auto loss = [&](const MicroBatch& m) { return rig.engine.evaluate([&](int) { return m; }, 1).first; };
  EXPECT_NE(loss(image), loss(plain));
  MicroBatch wrong = image;
  wrong.values[rotary_components].pop_back();
  EXPECT_NE(std::string(error_of([&] { loss(wrong); }).what()).find("components of positions"), std::string::npos);
}

TEST(rotary, each_rotary_table_is_computed_once) {
  constexpr Index positions = 12;
  Arena memory(Memory::weights, 1 << 20);
  RotaryTables tables(memory, positions);
  Device dev(false, 0);
  const auto angle = [](const auto& table, Index p, Index j) { return std::atan2(double(table.sine(p, j)), double(table.cosine(p, j))); };
  const auto first = tables.get<double>(dev, 100, {}, 4);
  const Index taken = memory.used();
  EXPECT_EQ(Index(first.cosine.extent(0)), positions);
  EXPECT_EQ(tables.get<double>(dev, 100, {}, 4).cosine.data(), first.cosine.data());
  EXPECT_EQ(memory.used(), taken) << "a second request for the same table allocated memory";
  const auto other = tables.get<double>(dev, 25, {}, 4);
  const auto half = tables.get<double>(dev, 100, {RopeScaling::linear, 2}, 4);
  const auto narrow = tables.get<float>(dev, 100, {}, 4);
  EXPECT_NEAR(angle(first, 3, 1), 0.3, 1e-12);
  EXPECT_NEAR(angle(other, 3, 1), 0.6, 1e-12);
  EXPECT_NEAR(angle(half, 3, 1), 0.15, 1e-12);
  EXPECT_NEAR(angle(narrow, 3, 1), 0.3, 1e-6);
}

}  // namespace gyr::testing::rotary_suite
