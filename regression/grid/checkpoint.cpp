// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint belongs to the model and not to the grid. What one layout wrote, every other layout reads with the same
// bits of weights and Adam moments. An error on one rank is thrown on all ranks, with the same message.
#include "src/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>

#include "regression/support/file_size_limit.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/trials.hpp"
#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"

namespace gyr::testing::checkpoint_suite {
namespace {

namespace fs = std::filesystem;

struct Shape3 {
  int data, pipeline, tensor;
  std::vector<int> permutation;
  std::vector<Axis> order = {};
  Shard shard = Shard::none;
  int ranks() const { return data * pipeline * tensor; }
  std::string text() const {
    return fmt::format("{}x{}x{}{} sharded {}", data, pipeline, tensor, permutation.empty() ? "" : " permuted", name_of(shard));
  }
};

Layout layout_of(const Shape3& s) {
  std::vector<Span> stages;
  for (int p = 0; p < s.pipeline; ++p) stages.push_back({8 * p / s.pipeline, 8 * (p + 1) / s.pipeline});
  return sharded(grid_layout(s.data, s.pipeline, s.tensor, stages, s.permutation, s.order), s.shard);
}

// Calls f(rig) on the first ranks of the world, as many as the layout has. All ranks wait for each other afterwards.
template <class T, class F>
void on_grid(const ModelConfig& model, const Shape3& shape, F&& f) {
  if (Grid* grid = grid_of(layout_of(shape))) {
    EngineConfig config;
    config.model = model;
    config.seq_length = 4;
    Rig<T> rig(config, *grid);
    f(rig);
  }
  sync_ranks();
}

// The model with fewer layers, which still has every kind of sharding.
ModelConfig small(ModelConfig model) {
  model.pattern = "M*-M-*-M";
  return model;
}

CheckpointHeader header_at(std::int64_t step) {
  CheckpointHeader h;
  h.step = step, h.seed = 7, h.deck = "model: {}\n";
  return h;
}

const std::vector<Shape3> shapes{{1, 1, 1, {}},
                                 {2, 2, 2, {}},
                                 {1, 8, 1, {}},
                                 {8, 1, 1, {}, {}, Shard::optimizer},
                                 {1, 1, 8, {}},
                                 {2, 1, 4, {}},
                                 {2, 2, 2, {}, {}, Shard::weights},
                                 {2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4}},
                                 {4, 1, 2, {}, {Axis::tensor, Axis::pipeline, Axis::data}, Shard::gradients}};

template <class T>
void expect_any_grid_reads_any_grid(const std::string& name, const ModelConfig& model) {
  const SharedFolder folder;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    on_grid<T>(model, shapes[i], [&](Rig<T>& rig) {
      set_state(rig.engine, 1);
      save_checkpoint(folder.path(), header_at(std::int64_t(i)), rig.engine);
    });
  // The bits are the same, whichever layout wrote them.
  if (SharedFolder::rank() == 0)
    for (std::size_t i = 1; i < shapes.size(); ++i) {
      const Difference d = diff_checkpoints(checkpoint_path(folder.path(), 0), checkpoint_path(folder.path(), std::int64_t(i)), {});
      EXPECT_TRUE(d.within) << shapes[i].text() << "\n" << d.text;
    }
  for (std::size_t i = 0; i < shapes.size(); ++i)
    on_grid<T>(model, shapes[i], [&](Rig<T>& rig) {
      set_state(rig.engine, 2);
      const fs::path file = checkpoint_path(folder.path(), std::int64_t((i + 1) % shapes.size()));
      EXPECT_EQ(load_checkpoint(file, rig.engine, LoadWhat::everything).step, std::int64_t((i + 1) % shapes.size()));
      expect_state(rig.engine, 1, name + " read by " + shapes[i].text());
    });
}

class checkpoint : public ::testing::TestWithParam<std::string> {};
// T2: two norm groups. T5: one key head and tied embeddings. T7: biases. The vocabulary of each is padded.
TEST_P(checkpoint, any_grid_reads_checkpoints_of_any_grid) { expect_any_grid_reads_any_grid<float>(GetParam(), widened(named(GetParam()))); }
INSTANTIATE_TEST_SUITE_P(T, checkpoint, ::testing::Values("T2", "T5", "T7"), [](const auto& info) { return info.param; });

TEST(checkpoint, bf16_master_weights_are_kept_on_any_grid) { expect_any_grid_reads_any_grid<bf16>("T5", widened(named("T5"))); }
TEST(checkpoint, any_grid_reads_checkpoints_with_replicated_heads) { expect_any_grid_reads_any_grid<float>("T7 narrowed", narrowed(named("T7"))); }

// All ranks must have thrown the same error.
void expect_same_everywhere(const Error& error, Exit code) {
  EXPECT_EQ(error.code, code) << error.what();
  std::string text(4096, '\0');
  text.replace(0, std::string(error.what()).size(), error.what());
  std::string first = text;
  sync_ranks();
  MPI_Bcast(first.data(), int(first.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(first, text);
}

// Every way to write files. In "nodes", ranks 0 and 1 are on one node, and ranks 2 to 7 on another.
struct Way {
  const char* name;
  Files files;
  std::vector<int> writers;
  int expected;  // number of files
  bool async;
};
const std::vector<Way> ways{{"rank", Files::rank, {}, 8, false},
                            {"rank, asynchronously", Files::rank, {}, 8, true},
                            {"node", Files::node, {}, 1, true},
                            {"nodes", Files::node, {0, 0, 2, 2, 2, 2, 2, 2}, 2, false},
                            {"single", Files::single, {}, 1, false}};

void expect_same_for_all_file_options(const Shape3& shape) {
  const SharedFolder folder;
  const ModelConfig model = small(widened(named("T2")));
  on_grid<float>(model, shape, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    for (const Way& way : ways) {
      const std::string name = way.name;
      const bool async = way.async;
      Saver saver(folder / name, {.files = way.files, .shard = {async ? 0 : 3, true}, .async = async}, rig.engine, way.writers);
      auto saved = saver.save(header_at(1));
      EXPECT_EQ(saved.has_value(), !async);
      if (async) {
        set_state(rig.engine, 2);
        while (!(saved = saver.poll())) {
        }
        set_state(rig.engine, 1);
      }
      EXPECT_EQ(saved->files, way.expected) << name;
      if (rig.engine.grid().position() == 0) {
        const Difference d = diff_checkpoints(folder / "rank/step_00000001", saved->path, {});
        EXPECT_TRUE(d.within) << name << "\n" << d.text;
        // Nothing is written twice: the elements of all files add up to those of the tensors.
        Index bytes = 0, most = 0;
        const StoredCheckpoint stored(saved->path);
        for (const ManifestFile& f : stored.manifest().files) {
          Index here = 0;
          for (const StoredBox& b : f.boxes) here += elements(b.box.count) * size_of(stored.tensors()[b.tensor].dtype);
          bytes += here, most = std::max(most, here);
        }
        EXPECT_EQ(bytes, saved->bytes);
        if (way.files == Files::rank) {  // replicas divide the work
          EXPECT_LT(double(most), 1.4 * double(bytes) / 8);
        }
      }
      rig.engine.grid().world().barrier();
    }
  });
}

TEST(checkpoint, file_options_do_not_change_the_checkpoint) {
  expect_same_for_all_file_options({2, 2, 2, {}});
  expect_same_for_all_file_options({2, 2, 2, {}, {}, Shard::weights});
}

// A rank reads each element that it needs once, and each HDF5 chunk at most once.
TEST(checkpoint, each_rank_reads_its_data_once) {
  const SharedFolder folder;
  const ModelConfig model = small(widened(named("T2")));
  on_grid<float>(model, {2, 2, 2, {}}, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    save_checkpoint(folder.path(), header_at(1), rig.engine);
  });
  for (const Shape3& shape : {Shape3{2, 2, 2, {}}, Shape3{1, 1, 8, {}}, Shape3{1, 1, 1, {}}, Shape3{4, 1, 2, {}},
                              Shape3{4, 1, 2, {}, {}, Shard::optimizer}, Shape3{2, 2, 2, {}, {}, Shard::weights}})
    for (const Reading reading : {Reading::all, Reading::broadcast})
      on_grid<float>(model, shape, [&](Rig<float>& rig) {
        set_state(rig.engine, 2);
        LoadTraffic traffic;
        const fs::path path = checkpoint_path(folder.path(), 1);
        load_checkpoint(path, rig.engine, LoadWhat::everything, reading, &traffic);
        expect_state(rig.engine, 1, shape.text());
        Index wanted = 0, files = 0;
        const bool all = reading == Reading::all || rig.engine.grid().coordinate(Axis::data) == 0;
        visit_state(rig.engine, [&](auto, Content content, const Parameter& p, const Span& of) {
          Index real = 0;  // without padding
          stretches(p, of, [&](Index, Index, Index count, const Held&) { real += count; });
          if (all || is_zero_sharded(content, shape.shard)) wanted += real * Index(sizeof(float));
        });
        const bool reads = wanted > 0;
        EXPECT_EQ(traffic.elements, wanted) << shape.text();
        const StoredCheckpoint stored(path);
        for (const ManifestFile& f : stored.manifest().files)
          for (const StoredBox& b : f.boxes)
            for (const hdf5::Extent& e : b.extents) files += e.bytes;
        EXPECT_LE(traffic.disk, reads ? files : 0) << shape.text();
        EXPECT_GE(traffic.disk, traffic.elements);
      });
}

TEST(checkpoint, full_disk_on_one_rank_fails_all_ranks) {
  const SharedFolder folder;
  const ModelConfig model = small(widened(named("T2")));
  on_grid<float>(model, {2, 2, 2, {}}, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    Communicator& world = rig.engine.grid().world();
    for (const Way& way : ways) {
      const fs::path here = folder / way.name;
      const bool async = way.async;
      SaveOptions options{.files = way.files, .retention = {1}, .async = async};
      Saver saver(here, options, rig.engine, way.writers);
      set_state(rig.engine, 1);
      saver.save(header_at(1));
      saver.finish();
      set_state(rig.engine, 2);
      const StoredCheckpoint old(checkpoint_path(here, 1));
      const ManifestFile& last = old.manifest().files.back();
      const int writer = way.files == Files::rank ? 7 : way.writers.empty() ? 0 : 2;  // writes the last file
      for (const Index limit : {last.bytes / 3, async ? Index(0) : last.bytes - 1}) {
        const Error error = error_of([&] {
          std::optional<FileSizeLimit> full;
          if (world.rank() == writer) full.emplace(rlim_t(limit));
          saver.save(header_at(2));
          saver.finish();
        });
        expect_same_everywhere(error, Exit::io);
        EXPECT_NE(std::string(error.what()).find("step_00000002.tmp"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << error.what();
        EXPECT_FALSE(fs::exists(here / "step_00000002.tmp"));
        world.barrier();  // before the next save begins
      }
      EXPECT_EQ(newest_checkpoint(here, world), checkpoint_path(here, 1));
      load_checkpoint(checkpoint_path(here, 1), rig.engine, LoadWhat::everything);
      expect_state(rig.engine, 1);
    }
  });
}

TEST(checkpoint, damage_found_by_one_rank_fails_all_ranks) {
  const SharedFolder folder;
  const ModelConfig model = widened(named("T2"));
  on_grid<float>(model, {1, 8, 1, {}}, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path, shard = path / "shard_00007.h5";
    if (rig.engine.grid().position() == 7) {  // no other rank reads its last layer
      for (const auto& p : rig.engine.stage().parameters().all())
        if (p->weight.name == "model.layers.7.mamba.in_proj.weight") {
          std::string bytes = contents(shard);
          const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(p->vector<float>().data()), 32));
          ASSERT_NE(at, std::string::npos);
          bytes[at] ^= 4;
          put_contents(shard, bytes);
        }
    }
    rig.engine.grid().world().barrier();
    for (const Reading reading : {Reading::all, Reading::broadcast}) {
      const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::everything, reading); });
      expect_same_everywhere(error, Exit::data);
      EXPECT_NE(std::string(error.what()).find("shard_00007.h5:/model/layers/7/mamba/in_proj/weight"), std::string::npos) << error.what();
    }
  });
}

// Checkpoints of every order of the axes are read, whichever way they are written and read.
TEST(checkpoint, checkpoint_of_another_axis_order_is_read) {
  const SharedFolder folder;
  const ModelConfig model = small(widened(named("T2")));
  const Shape3 inside_out{2, 2, 2, {}, {Axis::tensor, Axis::pipeline, Axis::data}}, usual{2, 2, 2, {}}, one{1, 1, 1, {}};
  for (const Files files : {Files::rank, Files::node, Files::single})
    on_grid<float>(model, inside_out, [&](Rig<float>& rig) {
      set_state(rig.engine, 1);
      save_checkpoint(folder.path(), header_at(std::int64_t(files)), rig.engine, {.files = files});
    });
  for (const Shape3& shape : {usual, inside_out, one})
    for (const Files files : {Files::rank, Files::node, Files::single})
      for (const Reading reading : {Reading::all, Reading::broadcast})
        on_grid<float>(model, shape, [&](Rig<float>& rig) {
          set_state(rig.engine, 2);
          load_checkpoint(checkpoint_path(folder.path(), std::int64_t(files)), rig.engine, LoadWhat::everything, reading);
          expect_state(rig.engine, 1, shape.text());
        });
}

// All factorizations of 1, 2, 4 and 8 ranks into data, pipeline and tensor parallelism.
std::vector<Shape3> all_shapes() {
  std::vector<Shape3> list;
  for (const int ranks : {1, 2, 4, 8})
    for (int pipeline = 1; pipeline <= ranks; pipeline *= 2)
      for (int tensor = 1; pipeline * tensor <= ranks; tensor *= 2) list.push_back({ranks / (pipeline * tensor), pipeline, tensor, {}});
  return list;
}

// Goes through all layouts. Each reads the checkpoint of the one before it, bit for bit.
TEST(checkpoint, checkpoint_survives_conversion_through_every_layout) {
  const SharedFolder folder;
  const ModelConfig model = small(widened(named("T2")));
  std::vector<Shape3> walk = all_shapes();
  std::swap(walk[1], walk.back());  // from one rank to eight, and back
  int pairs = 0;
  for (std::size_t i = 0; i < walk.size(); ++i, ++pairs)
    on_grid<float>(model, walk[i], [&](Rig<float>& rig) {
      if (i == 0) {
        set_state(rig.engine, 1);
      } else {
        set_state(rig.engine, 2);
        load_checkpoint(checkpoint_path(folder.path(), std::int64_t(i) - 1), rig.engine, LoadWhat::everything);
        expect_state(rig.engine, 1, walk[i].text());
      }
      save_checkpoint(folder.path(), header_at(std::int64_t(i)), rig.engine, {.retention = {1}});
    });
  EXPECT_EQ(pairs, 20);
}

// Random layouts of every kind, from a fixed seed. In each pair, one layout reads the checkpoint of the other.
TEST(checkpoint, random_layout_reads_checkpoint_of_another_random_layout) {
  ModelConfig model = widened(named("T5"));
  model.pattern = "MP*E";
  model.moe.experts = model.moe.intermediate_size = 8;
  const int layers = int(model.layers());
  std::mt19937 random(1);  // the same draws on every rank
  int distributed = 0;     // layouts with expert parallelism
  const auto pick = [&](std::initializer_list<int> from) { return from.begin()[random() % from.size()]; };
  const auto drawn = [&] {
    int data = 0, pipeline = 0, context = 0, tensor = 0;
    do data = pick({1, 2, 3, 4, 8}), pipeline = pick({1, 2, 4}), context = pick({1, 1, 2}), tensor = pick({1, 2, 4, 8});
    while (data * pipeline * context * tensor > 8);
    const int chunks = pipeline == 2 ? pick({1, 2}) : 1;
    std::vector<Span> stages;
    for (int s = 0; s < pipeline * chunks; ++s) stages.push_back({layers * s / (pipeline * chunks), layers * (s + 1) / (pipeline * chunks)});
    std::vector<int> permutation(std::size_t(data * pipeline * context * tensor));
    std::iota(permutation.begin(), permutation.end(), 0);
    if (random() % 2) std::shuffle(permutation.begin(), permutation.end(), random);
    std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::tensor};
    std::shuffle(order.begin(), order.end(), random);
    Layout layout = grid_layout(data, pipeline, tensor, stages, permutation, order, context);
    layout.sequence = tensor > 1 && random() % 2;
    if (tensor > 1 && random() % 2) layout.attention_ranks = tensor / 2;
    if (random() % 2) layout = balanced(layout);
    do layout.expert = pick({1, 2, 4, 8});
    while (data * context % layout.expert != 0);
    distributed += layout.expert > 1;
    return sharded(layout, Shard(random() % 4), random() % 2 ? 1 : Index(1) << 30);
  };
  const auto on = [&](const Layout& layout, Schedule schedule, const auto& f) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < layout.ranks() ? 0 : MPI_UNDEFINED, rank, &comm);
    if (comm != MPI_COMM_NULL) {
      Grid grid(layout, comm, wait_policy_of(comm));
      MPI_Comm_free(&comm);
      EngineConfig config;
      config.model = model, config.seq_length = 16, config.schedule = schedule;
      Rig<bf16> rig(config, grid);
      f(rig);
    }
    sync_ranks();
  };
  const auto schedule_of = [](const Layout& layout) {
    return int(layout.stages.size()) > layout.size(Axis::pipeline) ? Schedule(interleaved) : Schedule(one_f_one_b);
  };
  std::set<std::pair<Shard, Shard>> kinds;
  for (int pair = 0; pair < 50; ++pair) {
    const SharedFolder folder;
    const Layout from = drawn(), to = drawn();
    kinds.insert({from.zero_shard(), to.zero_shard()});
    on(from, schedule_of(from), [&](Rig<bf16>& rig) {
      set_state(rig.engine, 1);
      save_checkpoint(folder.path(), header_at(1), rig.engine, {.files = Files(pair % 3)});
    });
    on(to, schedule_of(to), [&](Rig<bf16>& rig) {
      set_state(rig.engine, 2);
      load_checkpoint(checkpoint_path(folder.path(), 1), rig.engine, LoadWhat::everything, Reading(pair % 2));
      expect_state(rig.engine, 1, from.text() + " read by " + to.text());
    });
  }
  EXPECT_GE(kinds.size(), 12u);
  EXPECT_GE(distributed, 15);
}

// Every layout of up to 8 ranks that this model allows reads the checkpoint of every other layout: 32 x 32 pairs. They
// include uneven pipeline stages and all ways to write and read files. This takes minutes: `ctest -L slow`.
TEST(checkpoint_matrix, every_layout_reads_checkpoints_of_every_layout) {
  const SharedFolder folder;
  ModelConfig model = small(widened(named("T5")));  // one key head, tied embeddings
  model.attention.num_heads = model.mamba.num_heads = 24, model.mlp.intermediate_size = 48;
  std::vector<Shape3> shapes;
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    for (int pipeline = 1; pipeline <= ranks; ++pipeline)
      for (int tensor = 1; pipeline * tensor <= ranks; ++tensor)
        if (ranks % (pipeline * tensor) == 0) shapes.push_back({ranks / (pipeline * tensor), pipeline, tensor, {}});
  EXPECT_EQ(shapes.size(), 32u);
  for (std::size_t i = 0; i < shapes.size(); ++i)
    on_grid<float>(model, shapes[i], [&](Rig<float>& rig) {
      set_state(rig.engine, 1);
      save_checkpoint(folder.path(), header_at(std::int64_t(i)), rig.engine, {.files = Files(i % 3)});
    });
  std::optional<Trials> pairs;  // counted on the rank that is in every layout
  if (SharedFolder::rank() == 0) pairs.emplace("checkpoint of one layout read by another");
  for (const Shape3& to : shapes)
    on_grid<float>(model, to, [&](Rig<float>& rig) {
      for (std::size_t from = 0; from < shapes.size(); ++from) {
        const auto read = [&] {
          set_state(rig.engine, 2);
          load_checkpoint(checkpoint_path(folder.path(), std::int64_t(from)), rig.engine, LoadWhat::everything, Reading(from % 2));
          const auto [wrong, first] = wrong_elements(rig.engine, 1);
          const double mine[] = {double(wrong)};
          for (const double theirs : rig.engine.grid().world().gather(mine))
            EXPECT_EQ(theirs, 0) << shapes[from].text() << " read by " << to.text() << ": first here " << first;
        };
        if (pairs) pairs->attempt(read);
        else read();
      }
    });
}

}  // namespace
}  // namespace gyr::testing::checkpoint_suite
