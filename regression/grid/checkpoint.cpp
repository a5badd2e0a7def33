// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint is of the model, not of the grid: what one layout wrote, every other reads, to the last bit of weights and moments; and
// what fails on one rank fails on all, with the same words.
#include "src/checkpoint/checkpoint.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

#include "regression/folder.hpp"
#include "regression/grids.hpp"
#include "regression/state.hpp"
#include "regression/testing.hpp"
#include "src/checkpoint/inspect.hpp"

namespace gyr::testing {
namespace {

namespace fs = std::filesystem;

// A folder that the first rank makes and removes and all know.
class SharedFolder {
 public:
  SharedFolder() {
    std::string path(4096, '\0');
    if (rank() == 0) own_.emplace(), path.replace(0, own_->path().string().size(), own_->path().string());
    meet();
    MPI_Bcast(path.data(), int(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = path.c_str();
  }
  ~SharedFolder() { meet(); }
  static int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::optional<Folder> own_;
  fs::path path_;
};

struct Shape3 {
  int data, pipeline, tensor;
  std::vector<int> permutation;
  int ranks() const { return data * pipeline * tensor; }
  std::string text() const { return fmt::format("{}x{}x{}{}", data, pipeline, tensor, permutation.empty() ? "" : " permuted"); }
};

Layout layout_of(const Shape3& s) {
  std::vector<Span> stages;
  for (int p = 0; p < s.pipeline; ++p) stages.push_back({8 * p / s.pipeline, 8 * (p + 1) / s.pipeline});
  return grid_layout(s.data, s.pipeline, s.tensor, stages, s.permutation);
}

// f(rig) on the first ranks of the world, as many as the layout has; the others wait behind it.
template <class T, class F>
void on_grid(const ModelConfig& model, const Shape3& shape, F&& f) {
  if (Grid* grid = grid_of(layout_of(shape))) {
    EngineConfig config;
    config.model = model;
    config.length = 4;
    Rig<T> rig(config, *grid);
    f(rig);
  }
  meet();
}

CheckpointHeader header_at(std::int64_t step) {
  CheckpointHeader h;
  h.step = step, h.seed = 7, h.deck = "model: {}\n";
  return h;
}

const std::vector<Shape3> shapes{{1, 1, 1, {}}, {2, 2, 2, {}}, {8, 1, 1, {}}, {1, 8, 1, {}}, {1, 1, 8, {}}, {1, 4, 2, {}},
                                 {2, 1, 4, {}}, {1, 2, 1, {}}, {2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4}}};

template <class T>
void any_grid_reads_what_any_grid_wrote(const std::string& name) {
  const SharedFolder folder;
  const ModelConfig model = widened(named(name));
  for (std::size_t i = 0; i < shapes.size(); ++i)
    on_grid<T>(model, shapes[i], [&](Rig<T>& rig) {
      set_state(rig.engine, 1);
      save_checkpoint(folder.path(), header_at(std::int64_t(i)), rig.engine);
    });
  // The same bits, whoever wrote them.
  if (SharedFolder::rank() == 0)
    for (std::size_t i = 1; i < shapes.size(); ++i) {
      const Difference d = diff_checkpoints(checkpoint_path(folder.path(), 0), checkpoint_path(folder.path(), std::int64_t(i)), 0);
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
// Two norm groups; one key head and tied ends; biases; each with a vocabulary that pads.
TEST_P(checkpoint, of_any_grid_is_read_by_any_grid) { any_grid_reads_what_any_grid_wrote<float>(GetParam()); }
INSTANTIATE_TEST_SUITE_P(T, checkpoint, ::testing::Values("T2", "T5", "T7"), [](const auto& info) { return info.param; });

TEST(checkpoint, keeps_bfloat16_and_its_masters_on_any_grid) { any_grid_reads_what_any_grid_wrote<bf16>("T5"); }

// All ranks threw the same.
void expect_same_everywhere(const Error& error, Exit code) {
  EXPECT_EQ(error.code, code) << error.what();
  std::string text(4096, '\0');
  text.replace(0, std::string(error.what()).size(), error.what());
  std::string first = text;
  meet();
  MPI_Bcast(first.data(), int(first.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(first, text);
}

TEST(checkpoint, a_full_disk_on_the_first_rank_is_an_error_of_all) {
  const SharedFolder folder;
  const ModelConfig model = widened(named("T2"));
  signal(SIGXFSZ, SIG_IGN);
  on_grid<float>(model, {2, 2, 2, {}}, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    const fs::path old = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
    const auto size = fs::file_size(old);
    set_state(rig.engine, 2);
    for (const std::size_t limit : {std::size_t(0), size / 3, size - 1}) {
      rlimit before;
      getrlimit(RLIMIT_FSIZE, &before);
      const rlimit full{limit, before.rlim_max};
      if (rig.engine.grid().position() == 0) setrlimit(RLIMIT_FSIZE, &full);
      const Error error = error_of([&] { save_checkpoint(folder.path(), header_at(2), rig.engine, 1); });
      setrlimit(RLIMIT_FSIZE, &before);
      expect_same_everywhere(error, Exit::io);
      EXPECT_FALSE(fs::exists(folder / "step_00000002.h5.tmp"));
      rig.engine.grid().world().barrier();  // before the next one begins
    }
    EXPECT_EQ(newest_checkpoint(folder.path(), rig.engine.grid().world()), old);
    load_checkpoint(old, rig.engine, LoadWhat::everything);
    expect_state(rig.engine, 1);
  });
  signal(SIGXFSZ, SIG_DFL);
}

TEST(checkpoint, damage_that_one_rank_meets_is_an_error_of_all) {
  const SharedFolder folder;
  const ModelConfig model = widened(named("T2"));
  on_grid<float>(model, {1, 8, 1, {}}, [&](Rig<float>& rig) {
    set_state(rig.engine, 1);
    const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
    if (rig.engine.grid().position() == 7) {  // whose last layer nobody else reads
      for (const auto& p : rig.engine.stage().parameters().all())
        if (p->weight.name == "model.layers.7.mamba.in_proj.weight") {
          std::string bytes = contents(path);
          const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(p->vector<float>().data()), 32));
          ASSERT_NE(at, std::string::npos);
          bytes[at] ^= 4;
          put_contents(path, bytes);
        }
    }
    rig.engine.grid().world().barrier();
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::everything); });
    expect_same_everywhere(error, Exit::data);
    EXPECT_NE(std::string(error.what()).find("/model/layers/7/mamba/in_proj/weight"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace gyr::testing
