// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/data_config.hpp"

#include <algorithm>
#include <cstdio>

#include "src/data/dataset.hpp"

namespace gyr {

namespace {

constexpr Index most_skipped = Index(1) << 60;

std::vector<Span> read_skip(const std::vector<std::string>& entries) {
  std::vector<Span> skip;
  for (const std::string& entry : entries) {
    Index first = 0, count = 0;
    char rest = 0;
    const bool pair = std::sscanf(entry.c_str(), "%ld:%ld%c", &first, &count, &rest) == 2 && first >= 0 && first <= most_skipped && count > 0 &&
                      count <= most_skipped;
    require(pair && (skip.empty() || skip.back().last <= first), Exit::config,
            "data.skip: '{}' is not 'FIRST:COUNT' with ranges in rising order, as in [\"640:32\", \"1280:32\"]", entry);
    skip.push_back({first, first + count});
  }
  return skip;
}

// Stages and epoch caps, which the megatron order does not have: it depends on the number of samples of each corpus.
void read_mixture(Section& s, DataConfig& c) {
  const auto entries = s.get("stages", std::vector<std::string>{},
                             "weights that change during the run: list of 'POSITION: WEIGHT WEIGHT ...' with a weight of at least 0 for each "
                             "prefix. POSITION counts tokens, or with the unit samples, in the order of samples; data.weights holds until the first")
                           .value();
  c.stages = read_stages(entries, c.prefixes.size());
  require(c.weights.empty() || c.stages.empty() || c.stages.front().position > 0, Exit::config,
          "data.weights and the stage '{}' both give the weights at the start; remove one of them", c.stages.empty() ? "" : c.stages.front().text);
  c.max_epochs = s.get("max_epochs", std::vector<Index>{},
                       "epochs of each prefix that the run reads at most; its weight then goes to the other prefixes in proportion to theirs; 0: no "
                       "limit; empty: no limits")
                     .at_least(0)
                     .at_most(1'000'000)
                     .value();
  require(c.max_epochs.empty() || c.max_epochs.size() == c.prefixes.size(), Exit::config,
          "data.max_epochs has {} values for {} prefixes; give one for each prefix, 0 for no limit", c.max_epochs.size(), c.prefixes.size());
  require((c.stages.empty() && c.max_epochs.empty()) || c.order != "megatron", Exit::config,
          "data.{} is not supported with data.order megatron, whose order depends on the number of samples of each corpus; set data.order: shuffled",
          c.stages.empty() ? "max_epochs" : "stages");
}

}  // namespace

DataConfig read_data(Section& s, const std::string& tokenizer) {
  DataConfig c;
  auto prefixes =
      s.get("prefixes", std::vector<std::string>{},
            "paths of the corpora, without extension: each is PREFIX.bin and PREFIX.idx. If PREFIX_mask.bin and .idx exist, they are the loss mask");
  c.prefixes = prefixes.must("no empty name", std::count(prefixes.value().begin(), prefixes.value().end(), "") == 0).value();
  c.weights =
      s.get("weights", std::vector<double>{}, "sampling weight of each prefix in the blend, with any sum; empty: in proportion to their sizes")
          .positive()
          .finite()
          .value();
  require(c.weights.empty() || c.weights.size() == c.prefixes.size(), Exit::config,
          "data.weights has {} values for {} prefixes; give one for each prefix", c.weights.size(), c.prefixes.size());
  auto split = s.get("split", "949,50,1",
                     "proportions of train, validation and test documents, in the order of the files: validation and test are the last ones, so mix "
                     "documents of different kinds before, as with shuf (Megatron: --split)");
  const auto fractions = split_fractions(split.value());
  c.split = split.must("one to three numbers, the first above 0, as in 949,50,1", fractions && fractions->at(0) > 0).value();
  c.order = s.get("order", "shuffled",
                  "order of samples. shuffled: windows of joined documents in random order; megatron: the order of Megatron-LM; documents: full "
                  "documents packed into windows")
                .one_of({"shuffled", "megatron", "documents"});
  require(c.order != "megatron" || c.prefixes.size() <= 1 || !c.weights.empty(), Exit::config,
          "data.order megatron needs a weight for each of the {} prefixes in data.weights", c.prefixes.size());
  read_mixture(s, c);
  const std::string documents = s.get("documents", "joined",
                                      "documents in one window. joined: attention crosses document boundaries; separate: attention is masked between "
                                      "documents, and positions restart at 0")
                                    .one_of({"joined", "separate"});
  c.separate = documents == "separate";
  c.tokenizer = s.get("tokenizer", tokenizer,
                      "path of the tokenizer.json of the data: default of generate, eval and exports; enables whole-word masking with "
                      "train.objective mlm; empty: none")
                    .effect(Effect::none)
                    .value();
  c.fim = read_fim(s, c.tokenizer);
  c.seed = std::uint64_t(Index(s.get("seed", 1234, "random seed of the sample order").at_least(0)));
  c.skip = read_skip(s.get("skip", std::vector<std::string>{},
                           "ranges of samples that training skips, each FIRST:COUNT; a batch that would overlap a range starts after it")
                         .value());
  require(c.skip.empty() || c.order != "megatron", Exit::config,
          "data.skip is not supported with data.order megatron, because that order depends on the number of samples read");
  return c;
}

}  // namespace gyr
