// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/neighbours.hpp"

#include <memory>

#include "src/engine/model/source_padding.hpp"
#include "src/retro/megatron_project.hpp"
#include "src/retro/sample_neighbours.hpp"
#include "src/retro/vectors/vector_search.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/feed.hpp"

namespace gyr {

retro::QuerySettings query_settings_of(const RunConfig& run, const retro::ProjectSettings& project, const retro::IndexMark& index, Split split) {
  require(!run.data.prefixes.empty(), Exit::config, "data.prefixes is empty: name the token files of the training run");
  require(run.data.order != "documents", Exit::config,
          "data.order = documents: neighbours belong to windows of joined documents; set data.order to shuffled or megatron");
  require(run.data.fim.rate == 0, Exit::config,
          "data.fim.rate = {:g}: neighbours belong to the tokens of a window in their order, and fill-in-the-middle changes it; set it to 0",
          run.data.fim.rate);
  require(
      run.data.order != "megatron" || (run.data.stages.empty() && run.data.max_epochs.empty()), Exit::config,
      "data.order = megatron: neighbours are found by sample number, which data.stages and data.max_epochs give to other windows; remove these keys, "
      "or set data.order to shuffled");
  require(!run.policy && run.model.objective->writes_next_token(), Exit::config,
          "train.objective: neighbours serve a model that predicts the next token; use a deck of such a model");
  retro::QuerySettings s;
  s.project = project.hash(), s.index = index.hash, s.vectors = index.vectors;
  s.chunk = project.chunk, s.block = project.block;
  for (const std::string& prefix : run.data.prefixes) s.corpora.push_back(retro::corpus_mark(TokenFile(prefix)));
  s.weights = run.data.weights, s.split = run.data.split, s.order = run.data.order, s.seed = run.data.seed;
  s.seq_length = run.train.seq_length, s.separate = run.data.separate;
  s.validation = split == Split::validation;
  if (run.data.order == "megatron") s.samples = s.validation ? run.train.eval_batches * run.largest_batch() : samples_of(run);
  return s;
}

namespace {

template <class V>
void require_as_in(const std::filesystem::path& project, const char* key, const V& of_run, const std::optional<V>& found) {
  require(!found || *found == of_run, Exit::config, "{} = {}, but {} was made with {}; set the key to that value", key, of_run,
          retro::config_path(project).string(), found.value_or(V()));
}

// A project of Megatron-LM has neighbours of training samples by number, and no hash of the settings that they depend on.
retro::ProjectSettings megatron_project_of(const RunConfig& run, Split split) {
  const std::filesystem::path project = run.retro.project;
  require(!run.retro.neighbours.empty(), Exit::config,
          "retro.project = {} is a project of Megatron-LM, and retro.neighbors is empty; name the folder of the neighbours, PROJECT/query/FOLDER",
          project.string());
  require(run.data.order == "megatron" && !run.data.separate, Exit::config,
          "retro.neighbors: neighbours of Megatron-LM belong to samples of its order and of joined documents; set data.order to megatron, and "
          "data.documents to joined");
  require(split == Split::train, Exit::config,
          "retro.neighbors has the neighbours of training samples only; set train.eval_every to 0, or evaluate with --retrieval PROJECT");
  const retro::MegatronSettings s = retro::read_megatron_project(project);
  require_as_in(project, "train.seq_length", std::int64_t(run.train.seq_length), s.seq_length);
  require_as_in(project, "data.seed", std::int64_t(run.data.seed), s.seed);
  if (s.split && split_fractions(*s.split) != split_fractions(run.data.split)) require_as_in(project, "data.split", run.data.split, s.split);
  return s.project;
}

retro::PassageRule passage_rule_of(const RunConfig& run, const retro::ProjectSettings& project) {
  retro::PassageRule rule{run.retro.continuation == Continuation::database, {}};
  if (run.retro.padding == NeighbourPadding::unseen) return rule;
  rule.padding = project.end;
  if (!rule.padding && !run.data.tokenizer.empty()) rule.padding = Tokenizer::load(run.data.tokenizer).eod();
  require(
      rule.padding.has_value(), Exit::config,
      "retro.padding = seen: neighbours are padded with the end token of the tokenizer, and none is known; set data.tokenizer to a tokenizer that "
      "has one, or retro.padding to unseen");
  return rule;
}

// Settings of the queries, of which a project of Megatron-LM records none.
retro::QuerySettings wanted_settings(const RunConfig& run, const retro::ProjectSettings& project, Split split) {
  if (!project.foreign) return query_settings_of(run, project, retro::index_mark_of(run.retro.project, project), split);
  retro::QuerySettings s;
  s.chunk = project.chunk, s.seq_length = run.train.seq_length, s.order = run.data.order, s.samples = samples_of(run);
  return s;
}

}  // namespace

void add_neighbours(const RunConfig& run, Split split, Dataset& dataset) {
  if (!reads_neighbours(run.model)) return;
  require(!run.retro.project.empty(), Exit::config,
          "retro.project is empty, and layers R of model.pattern read the neighbours of a retrieval project; name its folder (gyrfalcon retro "
          "build-db, index, query)");
  const std::filesystem::path folder = run.retro.project;
  const bool foreign = retro::is_megatron_project(folder);
  require(
      foreign || run.retro.neighbours.empty(), Exit::config,
      "retro.neighbors = {}: {} is no project of Megatron-LM, and the neighbours of other projects are found by their settings; leave the key empty",
      run.retro.neighbours, folder.string());
  const retro::ProjectSettings project = foreign ? megatron_project_of(run, split) : retro::read_settings(folder);
  require(project.chunk == run.model.retrieval.chunk, Exit::config,
          "model.retrieval.chunk = {}, but the chunks of {} have {} tokens; set the key to {}, or name another project", run.model.retrieval.chunk,
          folder.string(), project.chunk, project.chunk);
  const retro::QuerySettings settings = wanted_settings(run, project, split);
  std::vector<std::int64_t> before;  // windows of the corpora before each
  std::int64_t samples = 0;
  for (std::int64_t c = 0; c < dataset.corpora(); ++c) before.push_back(samples), samples += dataset.per_epoch(c);
  if (settings.samples > 0) samples = settings.samples;
  const retro::SampleNeighbours::Options options{run.model.retrieval.neighbours, std::uint64_t(run.retro.shuffle), run.model.vocab_size,
                                                 passage_rule_of(run, project), run.retro.neighbours};
  const auto neighbours = std::make_shared<retro::SampleNeighbours>(folder, project, settings, samples, options);
  const bool by_number = settings.samples > 0;
  dataset.complete_with([neighbours, before, by_number](const Dataset& data, std::int64_t number, Sample& sample) {
    if (by_number) return neighbours->add_to(number, sample);
    const auto [corpus, window] = data.window_of(number);
    neighbours->add_to(before[std::size_t(corpus)] + window, sample);
  });
}

EncoderInput neighbours_of(const std::vector<Sample>& samples, const RetrievalConfig& c) {
  std::vector<NeighboursOfText> texts;
  for (const Sample& s : samples) texts.push_back({s.neighbours, s.neighbour_lengths});
  return encoder_input_of(texts, c);
}

}  // namespace gyr
