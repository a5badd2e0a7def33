// SPDX-License-Identifier: BSD-3-Clause
// The same numbers as transformers: its folders are loaded on grids of 1 to 8 ranks, and logits, loss, every gradient and greedy text are
// those that transformers computed from them. Folders of families go out again with the same bytes. `make families` prints the table.
#include <cmath>

#include "regression/support/folder.hpp"
#include "regression/support/golden_step.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/base/table.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/engine/generate/generator.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::huggingface_suite {
namespace {

// Of the loss, of the logits as parts of the largest, and of each weight's gradient as a vector.
struct Tolerance {
  double loss, logits, gradient;
};
template <class T>
constexpr Tolerance tolerance{1e-6, 5e-6, 2e-5};  // the worst seen: 1e-7, 2.8e-6, 9.6e-6
template <>
constexpr Tolerance tolerance<double>{1e-14, 1e-13, 1e-12};  // 4e-16, 4e-15, 2e-14

template <class T>
const GoldenNumbers& numbers(const Golden& g) {
  if constexpr (std::is_same_v<T, double>) return g.twice;
  else return g.single;
}

struct Shape4 {
  int data, pipeline, tensor, context;
};
constexpr Shape4 grids[] = {{1, 1, 1, 1}, {1, 1, 2, 1}, {1, 2, 1, 1}, {1, 1, 4, 1}, {1, 2, 2, 1}, {1, 1, 1, 2}, {2, 2, 2, 1}, {1, 1, 2, 2}};

// f(grid, its name) on the ranks of each of the grids that suit the model and, where `shared`, its batch.
template <class F>
void on_grids(const Golden& g, bool shared, const F& f) {
  for (const auto& [data, pipeline, tensor, context] : grids) {
    // A block of tokens is not shorter than what a convolution reads before it.
    if (context > 1 && (!shared || g.batch.seq_length < 2 * context * (g.model.mamba.conv_kernel - 1))) continue;
    if (!splits(g.model, tensor) || pipeline > g.model.layers() || (data > 1 && !shared) || g.batch.batch % data != 0) continue;
    std::vector<Span> stages;
    for (int s = 0; s < pipeline; ++s) stages.push_back({g.model.layers() * s / pipeline, g.model.layers() * (s + 1) / pipeline});
    if (Grid* grid = grid_of(grid_layout(data, pipeline, tensor, stages, {}, {}, context)))
      f(*grid, fmt::format("{} data {} pipeline {} tensor {} context {}", g.name, data, pipeline, tensor, context));
  }
  meet();
}

// What has been seen of a model: the worst errors over all grids, and how many grids gave them.
struct Seen {
  double loss = 0, logits = 0, gradients[2] = {0, 0};  // in double; gradients in float too
  int grids = 0, texts = 0;
  bool folder = false;
};
std::map<std::string, Seen>& seen() {
  static std::map<std::string, Seen> all;
  return all;
}
void raise(double& worst, double error) { worst = std::max(worst, error); }

// Prints what was seen of the families, if all of it was looked at.
class FamilyTable : public ::testing::Environment {
 public:
  void TearDown() override {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Table table({{"model"},
                 {"class"},
                 {"layers"},
                 {"loss", true},
                 {"logits", true},
                 {"gradients", true},
                 {"in float", true},
                 {"64 tokens"},
                 {"folder"},
                 {"grids", true}});
    bool all = !seen().empty();
    for (const std::string& name : golden_family_names()) {
      const auto found = seen().find(name);
      all = all && found != seen().end() && found->second.grids > 0 && (found->second.texts > 0 || golden(name).generated.empty()) &&
            found->second.folder;
      if (!all) return;
      const Seen& s = found->second;
      const Golden& g = golden(name);
      const auto error = [](double x) { return fmt::format("{:.1e}", x); };
      table.row({name, read_config_json(g.folder / config_file_name).architecture, g.model.pattern, error(s.loss), error(s.logits),
                 error(s.gradients[0]), error(s.gradients[1]), s.texts > 0 ? "the same" : "none", "same bytes", fmt::format("{}", s.grids)});
    }
    if (all && rank == 0) fmt::print("Errors beside transformers' own classes, in double unless said, the worst of the grids:\n{}", table.str());
  }
};
const auto* const family_table = ::testing::AddGlobalTestEnvironment(new FamilyTable);

class huggingface : public ::testing::TestWithParam<std::string> {
 protected:
  const Golden& g = gyr::testing::golden(GetParam());

  template <class T>
  void expect_gradients() {
    on_grids(g, true, [&](Grid& grid, const std::string& where) {
      const auto [result, gradients] = step_of<T>(g, grid);
      const GoldenNumbers& expected = numbers<T>(g);
      const double loss_error = std::abs(result.loss - expected.loss) / expected.loss;
      EXPECT_LE(loss_error, tolerance<T>.loss) << where;
      ASSERT_EQ(result.ahead_losses.size(), expected.ahead_losses.size()) << where;
      for (std::size_t k = 0; k < expected.ahead_losses.size(); ++k)
        EXPECT_LE(std::abs(result.ahead_losses[k].value() - expected.ahead_losses[k]) / expected.ahead_losses[k], tolerance<T>.loss)
            << where << " " << k;
      Seen& s = seen()[g.name];
      if (std::is_same_v<T, double>) raise(s.loss, loss_error), ++s.grids;
      EXPECT_EQ(gradients.size(), expected.gradients.size()) << where;
      for (const auto& [name, gradient] : expected.gradients) {
        const double error = distance(gradients.at(name), gradient, expected.lengths.at(name));
        EXPECT_LE(error, tolerance<T>.gradient) << where << " " << name;
        raise(s.gradients[std::is_same_v<T, float>], error);
      }
    });
  }

  // All sequences at once; each rank looks at its own columns.
  template <class T>
  void expect_logits() {
    on_grids(g, false, [&](Grid& grid, const std::string& where) {
      if (grid.layout().size(Axis::pipeline) > 1) return;
      const double error = GoldenReader<T>(g, g.model, grid).error(numbers<T>(g));
      EXPECT_LE(error, tolerance<T>.logits) << where;
      if (std::is_same_v<T, double>) raise(seen()[g.name].logits, error);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(families, huggingface, ::testing::ValuesIn(golden_family_names()), [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(golden, huggingface, ::testing::ValuesIn(golden_names()), [](const auto& info) { return info.param; });

TEST_P(huggingface, loss_and_gradients_in_single_precision) { expect_gradients<float>(); }
TEST_P(huggingface, loss_and_gradients_in_double_precision) { expect_gradients<double>(); }
TEST_P(huggingface, logits_in_single_precision) { expect_logits<float>(); }
TEST_P(huggingface, logits_in_double_precision) { expect_logits<double>(); }

// Token by token, with keys and values, convolution inputs and SSM states of every layer kept: what reading everything again gives.
TEST_P(huggingface, greedy_text) {
  if (g.generated.empty()) return;  // it does not write
  on_grids(g, false, [&](Grid& grid, const std::string& where) {
    const Index prompt = g.prompt.size(), made = g.generated.size();
    Generator generator(g.model, DType::f32, grid, {1, {prompt}, made});
    load_weights(g.folder, grid, generator.stage().config(), generator.stage().parameters().all());
    const auto text = generator.generate({g.prompt}, {0, 0, 1, 1, made}, [](Index, Token) { return false; });
    EXPECT_EQ(text[0], g.generated) << where;
    seen()[g.name].texts += text[0] == g.generated;
  });
}

class family_folders : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(huggingface, family_folders, ::testing::ValuesIn(golden_family_names()), [](const auto& info) { return info.param; });

// Every rank converts for itself.
TEST_P(family_folders, go_out_as_they_came_in) {
  const Golden& g = golden(GetParam());
  const Folder folder;
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  import_folder(g.folder, folder / "checkpoint", false, note);
  const HuggingFaceConfig in = read_config_json(g.folder / config_file_name);
  export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, in.blocks ? g.folder : "", false}, note);
  EXPECT_TRUE(notes.empty()) << notes.front();
  const bool same = contents(g.folder / one_file_name) == contents(folder / "out" / one_file_name);
  EXPECT_TRUE(same);
  const HuggingFaceConfig out = read_config_json(folder / "out" / config_file_name);
  EXPECT_EQ(in.model_type, out.model_type);
  EXPECT_EQ(in.architecture, out.architecture);
  EXPECT_EQ(write_config_json(in), write_config_json(out));
  seen()[g.name].folder = same;
}

}  // namespace
}  // namespace gyr::testing::huggingface_suite
