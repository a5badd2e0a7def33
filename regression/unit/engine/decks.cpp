// SPDX-License-Identifier: BSD-3-Clause
// Decks of published models other than Falcon-H1 have the published parameter counts.
#include <map>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_advice.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::decks_suite {
namespace {

const std::map<std::string, Index> published{
    {"bert-base", 109'514'298},
    {"falcon-7b", 6'921'720'704},
    {"gemma2-2b", 2'614'341'888},
    {"gemma3-1b", 999'885'952},
    {"gpt2-124m", 124'439'808},
    {"llama-3.2-1b", 1'235'814'400},
    {"mamba2-130m", 128'989'632},
    {"mamba2-hybrid-8b", 8'654'517'248},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen3-0.6b", 596'049'920},
    {"mixtral-8x7b", 46'702'792'704},
    {"deepseek-v3", 671'026'419'200},
    {"gpt-oss-20b", 20'914'757'184},
    {"t5-small", 60'506'624},
    {"modernbert-base", 149'655'232},
    {"qwen3-next-80b-a3b", 79'674'391'296},
    {"granite-4-h-small", 32'207'337'984},
    {"nemotron-3-nano-30b-a3b", 31'577'940'288},
};

TEST(decks, published_models_have_published_parameter_counts) {
  for (const auto& [name, parameters] : published) {
    Deck deck = Deck::read(std::filesystem::path(GYR_SOURCE_DIR) / "input" / (name + ".yaml"));
    const RunConfig run = read_run_config(deck);
    deck.finish();
    EXPECT_EQ(parameter_count(run.model), parameters) << name;
  }
}

// finetune.yaml and lora.yaml take the shape of the model from --init-from, and have the default shape here.
TEST(decks, every_deck_is_valid_and_listed) {
  const std::filesystem::path folder = std::filesystem::path(GYR_SOURCE_DIR) / "input";
  const std::string page = contents(folder / "README.md");
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    Deck deck = Deck::read(entry.path());
    const RunConfig run = read_run_config(deck);
    deck.finish();
    EXPECT_EQ(doubtful_settings(run), std::vector<std::string>());
    const bool falcon_h1 = name.starts_with("falcon-h1-");  // listed as falcon-h1-{...}.yaml
    EXPECT_TRUE(falcon_h1 || page.find("`" + name + "`") != page.npos) << "input/README.md does not list it";
    ++decks;
  }
  EXPECT_GE(decks, 25);
}

}  // namespace
}  // namespace gyr::testing::decks_suite
