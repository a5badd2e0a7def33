// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/data_reading.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"

namespace gyr {
namespace {

std::string name_of_corpus(const Dataset& data, std::int64_t corpus) { return printable(data.file(corpus).prefix().string()); }

std::string shares_text(const Dataset& data, const std::vector<double>& shares) {
  std::string text;
  for (std::size_t d = 0; d < shares.size(); ++d)
    if (shares[d] > 0) text += fmt::format("{}{:.3g} % {}", text.empty() ? "" : ", ", 100 * shares[d], name_of_corpus(data, std::int64_t(d)));
  return text;
}

std::string names_of_corpora(const Dataset& data, const std::vector<std::int64_t>& corpora) {
  std::string names;
  for (const std::int64_t d : corpora) names += (names.empty() ? "" : ", ") + name_of_corpus(data, d);
  return names;
}

}  // namespace

bool has_mixture(const Dataset& data) { return data.corpora() > 1 || data.mixture().stages().size() > 1 || data.mixture().is_limited(); }

std::vector<StageReading> readings_of(const Dataset& data, std::int64_t samples) {
  const std::vector<MixtureStage>& stages = data.mixture().stages();
  std::vector<StageReading> rows;
  for (std::size_t s = 0; s < stages.size() && stages[s].first < samples; ++s) {
    const std::int64_t first = stages[s].first, last = s + 1 < stages.size() ? std::min(samples, stages[s + 1].first) : samples;
    const auto before = data.mixture().taken_before(first), after = data.mixture().taken_before(last);
    const double sum = std::accumulate(stages[s].weights.begin(), stages[s].weights.end(), 0.0);
    for (std::size_t d = 0; d < before.size(); ++d) {
      if (stages[s].weights[d] == 0) continue;
      const auto epochs = [&](std::int64_t read) { return double(read) / double(data.per_epoch(std::int64_t(d))); };
      rows.push_back(
          {s, first, last, std::int64_t(d), stages[s].weights[d] / sum, after[d] - before[d], epochs(after[d] - before[d]), epochs(after[d])});
    }
  }
  return rows;
}

std::string reading_table(const Dataset& data, std::int64_t samples) {
  Table table({{"stage", true},
               {"samples"},
               {"corpus", false, 60},
               {"weight %", true},
               {"read", true},
               {"tokens", true},
               {"epochs", true},
               {"epochs so far", true}});
  for (const StageReading& r : readings_of(data, samples))
    table.row({fmt::format("{}", r.stage + 1), fmt::format("{} to {}", r.first, r.last - 1), name_of_corpus(data, r.corpus),
               fmt::format("{:.2f}", 100 * r.share), fmt::format("{}", r.read), metric_text(double(r.read) * double(data.seq_length()), ""),
               fmt::format("{:.3g}", r.epochs), fmt::format("{:.3g}", r.sum)});
  return table.str();
}

std::vector<std::string> reading_lines(const Dataset& data, std::int64_t samples) {
  std::vector<std::string> lines;
  const bool stages = data.mixture().stages().size() > 1;
  for (const StageReading& r : readings_of(data, samples))
    lines.push_back(fmt::format("{}{}: weight {:.3g} %, {}, {:.3g} epochs{}",
                                stages ? fmt::format("stage {} (samples {} to {}): ", r.stage + 1, r.first, r.last - 1) : "",
                                name_of_corpus(data, r.corpus), 100 * r.share, counted(r.read, "sample"), r.epochs,
                                stages && r.stage > 0 ? fmt::format(", {:.3g} so far", r.sum) : ""));
  return lines;
}

std::vector<std::string> change_lines(const Dataset& data, std::int64_t first, std::int64_t last) {
  std::vector<std::string> lines;
  for (const MixtureChange& change : data.mixture().changes(first, last)) {
    if (!change.left.empty())
      lines.push_back(fmt::format("at sample {}, {} {} been read as often as data.max_epochs allows, and the weights ask for more: {}", change.sample,
                                  names_of_corpora(data, change.left), change.left.size() == 1 ? "has" : "have",
                                  change.shares.empty() ? "no corpus is left" : "the samples are now " + shares_text(data, change.shares)));
    else if (change.stage)
      lines.push_back(
          fmt::format("stage {} of the data begins at sample {}: {}", *change.stage + 1, change.sample, shares_text(data, change.shares)));
  }
  return lines;
}

std::string total_reading(const Dataset& data, std::int64_t samples) {
  const std::vector<std::int64_t> read = data.mixture().taken_before(samples);
  std::string text;
  for (std::size_t d = 0; d < read.size(); ++d)
    text += fmt::format("{}{:.3g} epochs of {} ({})", text.empty() ? "" : ", ", double(read[d]) / double(data.per_epoch(std::int64_t(d))),
                        name_of_corpus(data, std::int64_t(d)), counted(read[d], "sample"));
  return text;
}

}  // namespace gyr
