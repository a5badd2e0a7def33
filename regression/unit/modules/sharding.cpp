// SPDX-License-Identifier: BSD-3-Clause
// Sharding of weights over ranks: every element has the expected number of copies, the elements of a rank tile its
// shard, and initial values do not depend on the layout.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "modules/model/layer.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::sharding_suite {
namespace {

bool can_shard(const Run& run, int ranks) { return run.units == 0 || run.units % ranks == 0 || ranks % run.units == 0; }

Coordinates at(int ranks, int rank) {
  Coordinates c;
  c[Axis::tensor] = {ranks, rank};
  return c;
}

// Expected number of ranks that hold row `row`.
int expected_copies(const Sharding* sharding, Index row, int ranks) {
  if (!sharding) return ranks;
  for (const Run& run : sharding->runs) {
    if (row < run.extent) {
      if (run.units == 0 || run.units >= ranks) return 1;
      const int holders = int(ranks / run.units);
      return run.divisible ? holders / int(std::gcd(run.extent / run.units, holders)) : holders;
    }
    row -= run.extent;
  }
  return ranks;
}

// Every element of the weight must have the copies that its shardings over these axes imply, numbered from 0. The
// elements of a rank must not overlap in its shard, and all shards must have the same shape.
void expect_placed(const Weight& w, const Coordinates& sizes) {
  std::vector<std::vector<int>> copies(w.size());  // copy indices of the ranks that hold each element
  std::vector<Coordinates> everyone{Coordinates{}};
  for (std::size_t axis = 0; axis < axis_names.size(); ++axis) {
    std::vector<Coordinates> more;
    for (Coordinates c : everyone)
      for (int rank = 0; rank < sizes.along[axis].ranks; ++rank) c.along[axis] = {sizes.along[axis].ranks, rank}, more.push_back(c);
    everyone = std::move(more);
  }
  std::optional<Shape> shape;
  for (const Coordinates& c : everyone) {
    const Placement held = place(w, c);
    EXPECT_EQ(shape.value_or(held.shape), held.shape) << "ranks hold different shapes";
    shape = held.shape;
    std::vector<int> filled(elements(held.shape), 0);
    stretches(w, held, [&](Index logical, Index local, Index count, const Held& box) {
      for (Index i = 0; i < count; ++i) {
        ++filled.at(local + i);
        copies.at(logical + i).push_back(box.copy().rank);
      }
    });
    Index covered = 0;
    for (const Held& box : held.boxes) covered += elements(box.box.count);
    EXPECT_EQ(std::count(filled.begin(), filled.end(), 1), covered) << "a local element holds several elements of the weight";
    const bool pads = std::any_of(w.shardings.begin(), w.shardings.end(), [](const Sharding& s) { return s.runs[0].units == 0; });
    EXPECT_TRUE(pads || covered == elements(held.shape)) << "a local element holds no element of the weight";
  }
  Shape element(w.shape.size());
  for (Index i = 0; i < w.size(); ++i) {
    Index rest = i;
    for (std::size_t d = w.shape.size(); d-- > 0; rest /= w.shape[d]) element[d] = rest % w.shape[d];
    int expected = 1;
    for (std::size_t axis = 0; axis < axis_names.size(); ++axis) {
      const Sharding* sharding = w.sharding(Axis(axis));
      expected *= expected_copies(sharding, sharding ? element[sharding->dim] : 0, sizes.along[axis].ranks);
    }
    std::sort(copies[i].begin(), copies[i].end());
    std::vector<int> numbered(expected);
    std::iota(numbered.begin(), numbered.end(), 0);
    ASSERT_EQ(copies[i], numbered) << w.name << ": element " << i;
  }
}
void expect_placed(const Weight& w, int ranks) { expect_placed(w, at(ranks, 0)); }

TEST(sharding, each_row_is_held_by_expected_ranks) {
  for (int ranks = 1; ranks <= 24; ++ranks)
    for (Index units = 0; units <= 48; ++units)
      for (const Index unit : {1, 5, 6})
        for (const bool divisible : {false, true}) {
          const gyr::Run run{units == 0 ? 37 * unit : units * unit, units, divisible};
          const Weight w{"w", {run.extent, 2}, by_rows({run}), zeros()};
          if (can_shard(run, ranks)) {
            expect_placed(w, ranks);
          } else {
            EXPECT_THROW(place(w, at(ranks, 0)), Error) << units << " units on " << ranks << " ranks";
          }
        }
}

TEST(sharding, sharding_of_several_runs_keeps_row_order) {
  for (int ranks : {1, 2, 3, 4, 6, 8, 12}) {
    const std::vector<gyr::Run> runs{{48, 24}, {48, 24}, {10, ranks % 2 == 0 ? 2 : 1}, {10, ranks % 2 == 0 ? 2 : 1}, {24, 24}};
    expect_placed({"rows", {140, 3}, by_rows(runs), zeros()}, ranks);
    expect_placed({"columns", {3, 140}, by_columns(runs), zeros()}, ranks);
    expect_placed({"everywhere", {7}, replicated(), zeros()}, ranks);
    Index last_index = -1;
    for (const Held& held : place({"rows", {140, 3}, by_rows(runs), zeros()}, at(ranks, 0)).boxes) {
      EXPECT_GT(held.box.first[0], last_index);
      last_index = held.box.first[0] + held.box.count[0] - 1;
    }
  }
}

// The last ranks may hold no rows: five rows on four ranks are split into 2, 2, 1 and 0.
TEST(sharding, last_ranks_get_fewer_single_rows) {
  const Weight w{"w", {5, 2}, by_rows({{5, 0}}), zeros()};
  const Index extents[] = {2, 2, 1, 0};
  for (int rank = 0; rank < 4; ++rank) {
    const Placement held = place(w, at(4, rank));
    EXPECT_EQ(held.boxes.empty() ? 0 : held.boxes[0].box.count[0], extents[rank]);
    EXPECT_EQ(held.shape[0], 2);
  }
}

// Two heads of six rows on eight ranks: four ranks share each head, so it is split into halves, and two ranks hold each
// half.
TEST(sharding, heads_are_split_if_ranks_outnumber_them) {
  const Weight w{"w", {12, 2}, by_rows({{12, 2, true}}), zeros()};
  for (int rank = 0; rank < 8; ++rank) {
    const Placement held = place(w, at(8, rank));
    EXPECT_EQ(held.shape[0], 3);
    EXPECT_EQ(held.boxes[0].box.first[0], 3 * (rank / 2));
    EXPECT_EQ(held.boxes[0].copy().ranks, 2);
    EXPECT_EQ(held.boxes[0].copy().rank, rank % 2);
  }
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  Index operator()(Index least, Index most) { return least + Index(random_() % std::uint64_t(most - least + 1)); }

 private:
  std::mt19937_64 random_;
};

// Random sharding of one dimension over one axis, with one to three runs of rows.
Sharding drawn_sharding(Dice& dice, Axis axis, int dim, int ranks) {
  Sharding s{axis, dim, {}};
  for (Index runs = dice(1, 3); runs > 0; --runs) {
    const Index unit = dice(1, 4);
    Index units = dice(0, 2) == 0 ? ranks * dice(1, 2) : dice(1, ranks);
    if (units < ranks && ranks % units != 0) units = 1;
    if (units > ranks && units % ranks != 0) units = ranks;
    s.runs.push_back({units * unit, units, dice(0, 1) == 1});
  }
  if (dice(0, 4) == 0) s.runs = {{dice(1, 12), 0}};  // sharded by single rows
  return s;
}

Weight drawn_weight(Dice& dice, const Coordinates& sizes) {
  Weight w{"w", Shape(axis_names.size(), 1), {}, zeros()};
  std::vector<int> dims(axis_names.size());
  std::iota(dims.begin(), dims.end(), 0);
  for (std::size_t axis = 0; axis < axis_names.size(); ++axis) {
    const std::size_t which = std::size_t(dice(0, Index(dims.size()) - 1));
    const int dim = dims[which];
    dims.erase(dims.begin() + std::ptrdiff_t(which));
    w.shape[dim] = dice(1, 5);
    if (dice(0, 3) == 0) continue;  // this axis replicates the weight
    w.shardings.push_back(drawn_sharding(dice, Axis(axis), dim, sizes.along[axis].ranks));
    w.shape[dim] = 0;
    for (const Run& run : w.shardings.back().runs) w.shape[dim] += run.extent;
  }
  return w;
}

TEST(sharding, sharding_over_several_axes_covers_every_element) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    Coordinates sizes;
    for (Coordinate& c : sizes.along) c.ranks = int(dice(1, 3));
    expect_placed(drawn_weight(dice, sizes), sizes);
    if (HasFailure()) return;
  }
}

// Splitting the flattened shard at any places assigns each element of the shard to exactly one part.
TEST(sharding, flat_split_of_shard_covers_each_element_once) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    Coordinates here;
    for (Coordinate& c : here.along) c.ranks = int(dice(1, 3)), c.rank = int(dice(0, c.ranks - 1));
    const Weight w = drawn_weight(dice, here);
    const Placement held = place(w, here);
    std::map<Index, Index> full, parts;  // logical index of each local element
    const auto note = [](std::map<Index, Index>& in) {
      return [&in](Index logical, Index local, Index count, const Held&) {
        for (Index i = 0; i < count; ++i) EXPECT_TRUE(in.emplace(local + i, logical + i).second) << "a local element occurs twice";
      };
    };
    stretches(w, held, note(full));
    const Index all = elements(held.shape);
    for (Index first = 0; first < all;) {
      const Index last = std::min(all, first + dice(1, std::max<Index>(1, all / 2)));
      std::map<Index, Index> part;
      stretches(w, {held.shape, pieces_of(held, first, last)}, note(part));
      for (const auto& [local, logical] : part) {
        EXPECT_TRUE(local >= first && local < last) << "a local element is outside of its part";
        EXPECT_TRUE(parts.emplace(local, logical).second) << "a local element is in two parts";
      }
      first = last;
    }
    EXPECT_EQ(parts, full);
    if (HasFailure()) return;
  }
}

TEST(sharding, error_names_units_that_do_not_divide) {
  try {
    place({"model.layers.0.mamba.A_log", {6}, by_rows({{6, 6}}), zeros()}, at(4, 0));
    FAIL() << "6 units were sharded over 4 ranks";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    for (const char* part : {"A_log", "6 units", "4 tensor ranks"}) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// Initial weights, collected from all ranks of a layout. All ranks that hold an element must initialize it with the
// same bits.
template <class T>
std::map<std::string, std::vector<double>> drawn(const ModelConfig& model, const Layout& layout) {
  std::map<std::string, std::vector<double>> all;
  for (int position = 0; position < layout.ranks(); ++position) {
    Grid grid = Grid::dry_run(layout, position);
    Stage stage(model, dtype_of<T>(), grid);
    Arena weights(Memory::weights, Index(1) << 24), none(Memory::gradients, 0);
    Device device(false, 0);
    stage.parameters().allocate(weights, none, Gradients::none);
    for (const auto& p : stage.parameters().all()) {
      initialise(device, *p, 11);
      std::vector<double> mine(p->size());
      for (Index i = 0; i < p->size(); ++i)
        mine[i] = p->dtype() == dtype_of<T>() ? double(p->template vector<T>()(i)) : double(p->template vector<Acc<T>>()(i));
      auto& values = all.try_emplace(p->weight.name, p->weight.size(), NAN).first->second;
      stretches(*p, [&](Index logical, Index local, Index count, const Held&) {
        for (Index i = 0; i < count; ++i) {
          double& value = values.at(logical + i);
          EXPECT_TRUE(std::isnan(value) || value == mine.at(local + i)) << p->weight.name << ": ranks disagree at element " << logical + i;
          value = mine.at(local + i);
        }
      });
    }
  }
  return all;
}

template <class T>
void expect_one_draw(const std::string& name) {
  const ModelConfig model = widened(named(name));
  const auto one = drawn<T>(model, grid_layout(1, 1, 1, {{0, 8}}));
  for (const int tensor : {2, 4, 8}) EXPECT_EQ(drawn<T>(model, grid_layout(1, 1, tensor, {{0, 8}})), one) << name << " tensor " << tensor;
  EXPECT_EQ(drawn<T>(model, grid_layout(2, 2, 2, {{0, 3}, {3, 8}})), one) << name;
  EXPECT_EQ(drawn<T>(model, grid_layout(1, 4, 1, {{0, 1}, {1, 2}, {2, 6}, {6, 8}})), one) << name;
}

TEST(sharding, sharding_does_not_change_initial_values) {
  for (const char* name : {"T2", "T5", "T6", "T7"}) expect_one_draw<double>(name), expect_one_draw<bf16>(name);
}

TEST(sharding, weights_of_different_names_get_different_values) {
  const auto all = drawn<double>(widened(named("T2")), grid_layout(1, 1, 1, {{0, 8}}));
  EXPECT_NE(all.at("model.layers.0.mamba.in_proj.weight"), all.at("model.layers.1.mamba.in_proj.weight"));
  EXPECT_NE(all.at("model.layers.0.feed_forward.gate_proj.weight"), all.at("model.layers.0.feed_forward.up_proj.weight"));
}

}  // namespace
}  // namespace gyr::testing::sharding_suite
