// SPDX-License-Identifier: BSD-3-Clause
// A flipped bit in any kind of state of one replica is detected by all ranks, and the error names its rank.
#include "src/engine/model/replicas.hpp"

#include <array>
#include <random>
#include <set>
#include <vector>

#include "regression/support/folder.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::replicas_suite {
namespace {

template <class T>
void expect_flipped_bit_detected(std::set<Content> kinds) {
  ModelConfig model = widened(named("T2"));
  model.pattern = "M*-M-*-M";
  for (const auto& [data, pipeline, tensor] : std::vector<std::array<int, 3>>{{3, 1, 2}, {4, 2, 1}, {8, 1, 1}}) {
    Grid* grid = grid_of(layout_of(data, pipeline, tensor));
    if (grid) {
      EngineConfig config;
      config.model = model;
      config.seq_length = 4;
      Rig<T> rig(config, *grid);
      set_state(rig.engine, 1);
      EXPECT_EQ(error_of([&] { check_replicas(rig.engine, 5); }).code, Exit::ok);
      std::mt19937 random(7);  // the same draws on every rank
      for (const Content kind : kinds)
        for (int draw = 0; draw < 3; ++draw) {
          const int culprit = int(random() % unsigned(grid->layout().ranks()));
          const std::size_t which = random(), element = random(), bit = random();
          const auto flip = [&] {
            if (grid->position() != culprit) return;
            std::vector<std::pair<void*, std::size_t>> tensors;  // and their sizes in bytes
            visit_state(rig.engine, [&](auto x, Content content, const Parameter&, const Span&) {
              using S = typename decltype(x)::value_type;
              if (content == kind && x.extent(0) > 0) tensors.push_back({x.data(), x.extent(0) * sizeof(S)});
            });
            ASSERT_FALSE(tensors.empty());
            const auto [data, bytes] = tensors[which % tensors.size()];
            static_cast<unsigned char*>(data)[element % bytes] ^= static_cast<unsigned char>(1 << bit % 8);
          };
          flip();
          const Error error = error_of([&] { check_replicas(rig.engine, 5); });
          EXPECT_EQ(error.code, Exit::numeric) << name_of(kind) << " of rank " << culprit;
          EXPECT_NE(std::string(error.what()).find(fmt::format("rank {} holds", culprit)), std::string::npos) << error.what();
          flip();  // flips the bit back
          EXPECT_EQ(error_of([&] { check_replicas(rig.engine, 5); }).code, Exit::ok);
        }
    }
    sync_ranks();
  }
}

TEST(replicas, flipped_bit_of_any_state_is_detected) {
  expect_flipped_bit_detected<float>({Content::weight, Content::state("first_moment"), Content::state("second_moment")});
}
TEST(replicas, flipped_bit_of_master_weight_is_detected) {
  expect_flipped_bit_detected<bf16>({Content::weight, Content::state("first_moment"), Content::state("second_moment"), Content::master});
}

}  // namespace
}  // namespace gyr::testing::replicas_suite
