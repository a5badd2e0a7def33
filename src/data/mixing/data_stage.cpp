// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/mixing/data_stage.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

constexpr double most_tokens_of_stage = 1e18;

// Number at the beginning of `text`, which it removes from there; -1 if there is none.
double leading_number(std::string_view& text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || !std::isfinite(number)) return -1;
  text.remove_prefix(std::size_t(end - copy.c_str()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  return number;
}

DataStage stage_in(const std::string& entry, std::size_t corpora) {
  DataStage stage{0, false, {}, entry};
  std::string_view rest = entry;
  stage.position = leading_number(rest);
  stage.in_samples = rest.starts_with("samples");
  for (const std::string_view unit : {"tokens", "samples"})
    if (rest.starts_with(unit)) rest.remove_prefix(unit.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  bool good = stage.position >= 0 && stage.position <= most_tokens_of_stage && rest.starts_with(':');
  if (good) rest.remove_prefix(1);
  while (good && rest.find_first_not_of(' ') != rest.npos) {
    stage.weights.push_back(leading_number(rest));
    good = stage.weights.back() >= 0;
  }
  require(
      good && !stage.weights.empty(), Exit::config,
      "data.stages: '{}' is not 'POSITION: WEIGHT WEIGHT ...' with one weight of at least 0 for each prefix, as in [\"0: 0.7 0.3\", \"1e9 tokens: "
      "0.4 0.6\"]; POSITION counts tokens or samples",
      entry);
  require(stage.weights.size() == corpora, Exit::config, "data.stages: '{}' has {} weights for {} data.prefixes; give one for each prefix", entry,
          stage.weights.size(), corpora);
  require(std::any_of(stage.weights.begin(), stage.weights.end(), [](double w) { return w > 0; }), Exit::config,
          "data.stages: '{}' reads no corpus, because all weights are 0; give at least one prefix a positive weight", entry);
  return stage;
}

}  // namespace

std::vector<DataStage> read_stages(const std::vector<std::string>& entries, std::size_t corpora) {
  std::vector<DataStage> stages;
  for (const std::string& entry : entries) stages.push_back(stage_in(entry, corpora));
  return stages;
}

std::vector<MixtureStage> mixture_stages(const std::vector<DataStage>& stages, std::int64_t seq_length, const std::vector<double>& initial) {
  std::vector<MixtureStage> all;
  if (stages.empty() || stages.front().position > 0) all.push_back({0, initial});
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const DataStage& stage = stages[s];
    const auto first = std::int64_t(std::ceil(stage.in_samples ? stage.position : stage.position / double(seq_length)));
    require(
        all.empty() || all.back().first < first, Exit::config,
        "data.stages: '{}' begins at sample {}, and the stage before it at sample {}; list the stages in rising order, each with a first sample of "
        "its own (a sample has {} tokens)",
        stage.text, first, all.empty() ? 0 : all.back().first, seq_length);
    all.push_back({first, stage.weights});
  }
  return all;
}

}  // namespace gyr
