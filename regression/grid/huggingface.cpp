// SPDX-License-Identifier: BSD-3-Clause
// Golden models of transformers are loaded on grids of 1 to 8 ranks. Logits, loss, every gradient and greedy text must
// equal those of transformers. Folders of model families are exported again with the same bytes. `make families` prints
// the table.
#include <cmath>

#include "modules/model/layer.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/golden_step.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"
#include "src/base/table.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::huggingface_suite {
namespace {

// Limits of relative errors: of the loss, of the logits (relative to the largest one), and of each weight's gradient
// (as a vector).
struct Tolerance {
  double loss, logits, gradient;
};
template <class T>
constexpr Tolerance tolerance{1e-6, 5e-6, 2e-5};  // largest observed errors: 1e-7, 2.8e-6, 9.6e-6
template <>
constexpr Tolerance tolerance<double>{1e-14, 1e-13, 1e-12};  // largest observed errors: 4e-16, 4e-15, 2e-14

template <class T>
const GoldenValues& values(const Golden& g) {
  if constexpr (std::is_same_v<T, double>) return g.twice;
  else return g.single;
}

struct Shape4 {
  int data, pipeline, tensor, context;
};
constexpr Shape4 grids[] = {{1, 1, 1, 1}, {1, 1, 2, 1}, {1, 2, 1, 1}, {1, 1, 4, 1}, {1, 2, 2, 1}, {1, 1, 1, 2}, {2, 2, 2, 1}, {1, 1, 2, 2}};

// Calls f(grid, name) on the ranks of each grid that suits the model. `shared` also allows data and context
// parallelism, if the batch suits.
template <class F>
void on_grids(const Golden& g, bool shared, const F& f) {
  for (const auto& [data, pipeline, tensor, context] : grids) {
    // A context-parallel block of tokens must be at least as long as the tokens that a convolution reads before it.
    if (context > 1 && (!shared || reads_images(g.model) || g.batch.seq_length < 2 * context * (g.model.mamba.conv_kernel - 1))) continue;
    if (!splits(g.model, tensor) || pipeline > g.model.layers() || (data > 1 && !shared) || g.batch.batch % data != 0) continue;
    std::vector<Span> stages;
    for (int s = 0; s < pipeline; ++s) stages.push_back({g.model.layers() * s / pipeline, g.model.layers() * (s + 1) / pipeline});
    if (Grid* grid = grid_of(grid_layout(data, pipeline, tensor, stages, {}, {}, context)))
      f(*grid, fmt::format("{} data {} pipeline {} tensor {} context {}", g.name, data, pipeline, tensor, context));
  }
  sync_ranks();
}

// Observed results of a model: maximum errors over all grids, and the number of grids.
struct Seen {
  double loss = 0, logits = 0, gradients[2] = {0, 0};  // errors in double; gradients[1] is in float
  int grids = 0, texts = 0;
  bool folder = false;
};
std::map<std::string, Seen>& seen() {
  static std::map<std::string, Seen> all;
  return all;
}
void raise(double& worst, double error) { worst = std::max(worst, error); }

// Prints the table of the model families, if all of their tests have run.
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
    if (all && rank == 0) fmt::print("Errors relative to transformers, in double unless noted, maximum over the grids:\n{}", table.str());
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
      const GoldenValues& expected = values<T>(g);
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

  // All sequences at once. Each rank compares its own columns of the vocabulary.
  template <class T>
  void expect_logits() {
    on_grids(g, false, [&](Grid& grid, const std::string& where) {
      if (grid.layout().size(Axis::pipeline) > 1) return;
      const double error = GoldenReader<T>(g, g.model, grid).error(values<T>(g));
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

// Generates token by token with a KV cache, cached convolution inputs and SSM states. The text must equal that of
// reading the full sequence for every token.
TEST_P(huggingface, greedy_text_equals_transformers) {
  if (g.generated.empty()) return;  // this model generates no text
  on_grids(g, false, [&](Grid& grid, const std::string& where) {
    const Index prompt = g.prompt.size(), made = g.generated.size();
    Generator generator(g.model, DType::f32, grid, {1, prompt, made});
    load_weights(g.folder, grid, generator.stage().config(), generator.stage().parameters().all());
    const auto text = texts_of(generator, {g.prompt}, {0, 0, 1, 1, made});
    EXPECT_EQ(text[0], g.generated) << where;
    seen()[g.name].texts += text[0] == g.generated;
  });
}

class family_folders : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(huggingface, family_folders, ::testing::ValuesIn(golden_family_names()), [](const auto& info) { return info.param; });

// Every rank converts the folder on its own.
TEST_P(family_folders, imported_folder_is_exported_unchanged) {
  const Golden& g = golden(GetParam());
  const Folder folder;
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  import_folder(g.folder, folder / "checkpoint", false, note);
  const HuggingFaceConfig in = read_model_folder(g.folder);
  export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, in.blocks ? g.folder : "", false}, note);
  EXPECT_TRUE(notes.empty()) << notes.front();
  const bool same = contents(g.folder / one_file_name) == contents(folder / "out" / one_file_name);
  EXPECT_TRUE(same);
  const HuggingFaceConfig out = read_model_folder(folder / "out");
  EXPECT_EQ(in.model_type, out.model_type);
  EXPECT_EQ(in.architecture, out.architecture);
  EXPECT_EQ(write_config_json(in), write_config_json(out));
  seen()[g.name].folder = same;
}

}  // namespace
}  // namespace gyr::testing::huggingface_suite
