// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/passage_search.hpp"

#include "kernels/base/error.hpp"
#include "src/retro/cut.hpp"
#include "src/retro/summary.hpp"

namespace gyr::retro {

std::vector<std::int32_t> neighbour_tokens(const Database& database, std::int64_t id, std::int64_t vocab_size, const PassageRule& rule) {
  std::vector<std::int32_t> tokens = database.passage(id, rule);
  for (const std::int32_t token : tokens)
    require(token >= 0 && token < vocab_size, Exit::data,
            "{}: chunk {} has the token {}, but model.vocab_size is {}; use a project with token files of the model's tokenizer",
            merged_path(".").filename().string(), id, token, vocab_size);
  return tokens;
}

PassageSearch::PassageSearch(const std::filesystem::path& project, std::int64_t chunk, std::int64_t vocab_size)
    : project_(project), vocab_size_(vocab_size), settings_(read_settings(project)) {
  require(settings_.chunk == chunk, Exit::config, "model.retrieval.chunk = {}, but the chunks of {} have {} tokens; name a project of the model",
          chunk, project.string(), settings_.chunk);
  corpora_ = std::make_unique<Corpora>(settings_);
  for (std::size_t c = 0; c < corpora_->size(); ++c) require_unchanged(settings_.corpora[c], corpora_->file(c), config_path(project));
  database_ = std::make_unique<Database>(project, settings_, *corpora_);
  grid_ = std::make_unique<Grid>(grid_layout(1, 1, 1, {{0, 1}}), MPI_COMM_SELF, WaitPolicy::spin);
  retriever_ = std::make_unique<Retriever>(project, *database_, grid_->world());
}

std::vector<std::int64_t> PassageSearch::best(std::span<const std::int32_t> text, std::int64_t most, const std::set<std::int64_t>& without) {
  const auto found = retriever_->search({distinct_terms_of(settings_, text)}, most + std::int64_t(without.size()), 0);
  std::vector<std::int64_t> ids;
  for (const Candidate& c : found[0])
    if (std::int64_t(ids.size()) < most && !without.contains(c.id)) ids.push_back(c.id);
  return ids;
}

std::string PassageSearch::place(std::int64_t id) const { return place_text(settings_, database_->rows(id, 1)[0]); }

}  // namespace gyr::retro
