// SPDX-License-Identifier: BSD-3-Clause
// Layers R added to a stored model: the weights of its layers are read under their new numbers, those of R are initialised, and the
// output matrix of each R is 0.
#include "src/pretrained/added_retrieval.hpp"

#include <algorithm>
#include <random>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::added_retrieval_suite {
namespace {

std::vector<double> read(const WeightSource& source, const std::string& weight) {
  const TensorReader tensor = source.open(weight, DType::f32);
  std::vector<double> values(std::size_t(elements(tensor.shape)));
  if (tensor.dtype == DType::f64) tensor.read(full_box(tensor.shape), values.data(), tensor.shape, full_box(tensor.shape));
  else {
    std::vector<float> stored(values.size());
    tensor.read(full_box(tensor.shape), stored.data(), tensor.shape, full_box(tensor.shape));
    std::copy(stored.begin(), stored.end(), values.begin());
  }
  return values;
}

// The model with R at drawn places, at least at one.
ModelConfig with_drawn_places(ModelConfig model, std::mt19937& random) {
  for (std::size_t added = 1 + random() % 3; added > 0; --added) model.pattern.insert(1 + random() % model.pattern.size(), 1, 'R');
  return model;
}

bool of_retrieval(const Weight& w, const std::string& pattern) {
  const std::string prefix = "model.layers.";
  if (w.name.starts_with("model.encoder.")) return true;
  return w.name.starts_with(prefix) && pattern[std::stoul(w.name.substr(prefix.size()))] == 'R';
}

}  // namespace

TEST(added_retrieval, weights_of_other_layers_keep_their_values) {
  constexpr std::uint64_t seed = 7;
  std::mt19937 random(seed_of_run());
  for (const char* name : {"llama", "gate_first_two_groups"}) {
    const Golden& stored = golden(name);
    const auto before = open_weights(stored.folder, stored.model);
    for (int draw = 0; draw < 3; ++draw) {
      ModelConfig model = with_drawn_places(stored.model, random);
      if (draw == 1) model.encoder = StackConfig{stored.model.hidden_size / 2, model.norm, model.rms_norm_eps, model.attention, model.mlp};
      SCOPED_TRACE(model.pattern);
      check_initial(stored.folder, model, false);
      const auto source = open_initial(stored.folder, model, false, seed);
      // The weights of the other layers are declared in the order of the stored model.
      const std::vector<Weight> all = declared_weights(model), old = declared_weights(stored.model);
      std::size_t next = 0, zero = 0;
      for (const Weight& w : all) {
        if (!of_retrieval(w, model.pattern)) {
          ASSERT_LT(next, old.size());
          EXPECT_EQ(read(*source, w.name), read(*before, old[next++].name)) << w.name;
          continue;
        }
        std::vector<double> expected(std::size_t(w.size()), 0);
        const bool is_output = w.name.ends_with("cross_attn.o_proj.weight") && w.name.find("encoder") == std::string::npos;
        for (Index i = 0; !is_output && i < w.size(); ++i) expected[std::size_t(i)] = gyr::draw(w.init, Stream(seed, w.name), i);
        EXPECT_EQ(read(*source, w.name), expected) << w.name;
        zero += is_output;
      }
      EXPECT_EQ(next, old.size());
      EXPECT_EQ(zero, std::size_t(std::count(model.pattern.begin(), model.pattern.end(), 'R')));
    }
  }
}

TEST(added_retrieval, other_patterns_are_refused) {
  const Golden& stored = golden("llama");
  ModelConfig model = stored.model;
  model.pattern = "*R-";  // the stored model has more layers
  const Error error = error_of([&] { open_initial(stored.folder, model, false, 1); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("model.pattern without its layers R is *-"), std::string::npos) << error.what();
  model.pattern = stored.model.pattern + "R", model.norm_placement = NormPlacement::after;
  EXPECT_EQ(error_of([&] { open_initial(stored.folder, model, false, 1); }).code, Exit::config);
}

}  // namespace gyr::testing::added_retrieval_suite
