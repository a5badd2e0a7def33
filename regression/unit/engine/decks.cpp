// SPDX-License-Identifier: BSD-3-Clause
// Decks of published models other than Falcon-H1 have the published parameter counts.
#include <map>

#include "modules/cost/flops.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::decks_suite {
namespace {

const std::map<std::string, Index> published{
    {"bert-base", 109'514'298},      {"falcon-7b", 6'921'720'704},    {"gemma2-2b", 2'614'341'888},     {"gemma3-1b", 999'885'952},
    {"gpt2-124m", 124'439'808},      {"llama-3.2-1b", 1'235'814'400}, {"mamba2-130m", 128'989'632},     {"mamba2-hybrid-8b", 8'654'517'248},
    {"qwen2.5-0.5b", 494'032'768},   {"qwen3-0.6b", 596'049'920},     {"mixtral-8x7b", 46'702'792'704}, {"deepseek-v3", 671'026'419'200},
    {"gpt-oss-20b", 20'914'757'184}, {"t5-small", 60'506'624},        {"modernbert-base", 149'655'232},
};

TEST(decks, published_models_have_published_parameter_counts) {
  for (const auto& [name, parameters] : published) {
    Deck deck = Deck::read(std::filesystem::path(GYR_SOURCE_DIR) / "input" / (name + ".yaml"));
    const RunConfig run = read_run_config(deck);
    deck.finish();
    EXPECT_EQ(parameter_count(run.model), parameters) << name;
  }
}

}  // namespace
}  // namespace gyr::testing::decks_suite
