// SPDX-License-Identifier: BSD-3-Clause
// Queries of a training run or of its validation: the chunks of m tokens of every sample that it reads. With the order shuffled a sample is
// keyed by its window, because every epoch has the same windows; with the order megatron by its number. Chunk c of sample s
// has the number s l + c, l = ceil(L / m). L: sequence length.
#pragma once

#include <functional>
#include <memory>

#include "src/data/dataset.hpp"
#include "src/retro/bm25.hpp"
#include "src/retro/database.hpp"

namespace gyr::retro {

inline constexpr std::int64_t most_candidates = 100'000;

// Everything that neighbours depend on. A training run with the same settings has the same hash.
struct QuerySettings {
  std::string project, index;  // hashes of the database and of its index
  std::int64_t chunk = 64, block = 100'000;
  std::vector<CorpusMark> corpora;
  std::vector<double> weights;  // one for each corpus, or none
  std::string split, order;
  bool validation = false;  // true: samples of the validation split; false: of the training split
  std::uint64_t seed = 1234;
  std::int64_t seq_length = 0;
  std::int64_t samples = 0;                   // samples that the run reads; 0 for the order shuffled
  std::int64_t candidates = 200, saved = 20;  // best chunks of the database per query; neighbours that are kept of them
  // Neighbours that have a run of this number of tokens in common with the tokens after the chunk are left out; 0: none
  std::int64_t overlap = 0;
  bool vectors = false;  // true: the index has vectors of an encoder; false: BM25
  // True: the query of a chunk has only tokens of the document of its last token (data.documents: separate)
  bool separate = false;

  NamedValues values() const;
  std::string hash() const { return hash_of(values()); }
  std::int64_t chunks_per_sample() const { return (seq_length + chunk - 1) / chunk; }
  DatasetOptions dataset() const;
};

// Folder of the neighbours: PROJECT/query/train-HASH or PROJECT/query/validation-HASH.
std::filesystem::path neighbours_folder(const std::filesystem::path& project, const QuerySettings&);
void write_query_settings(const std::filesystem::path& folder, const QuerySettings&);
// Exit::missing or Exit::data for config.json of the folder.
QuerySettings read_query_settings(const std::filesystem::path& folder);
// The settings with the places of token files that the project has, for those that do not exist where the queries were made. Exit::missing for
// token files that are at neither place. `config`: the file that holds the settings.
QuerySettings at_places_of(const ProjectSettings&, QuerySettings, const std::filesystem::path& config);

// A document of the database.
struct Place {
  std::uint32_t corpus, document;
  auto operator<=>(const Place&) const = default;
};

class QuerySamples {
 public:
  // Errors of Dataset. Exit::data if the corpora have changed, or were made with another tokenizer than the project.
  // `config`: the file that holds the settings, for messages.
  QuerySamples(const QuerySettings&, const ProjectSettings&, const std::filesystem::path& config);

  std::int64_t size() const { return size_; }  // number of samples
  std::int64_t chunks() const { return size_ * settings_.chunks_per_sample(); }
  // Tokens of each chunk of a sample, and the at most m tokens after each, which the model predicts with its neighbours; and the documents of
  // the database that the sample has tokens of, ascending.
  struct Sample {
    std::vector<std::vector<std::int32_t>> chunks, continuations;
    std::vector<Place> documents;
  };
  Sample sample(std::int64_t number) const;
  // Corpora of the run that are not in the database.
  std::int64_t foreign_corpora() const;

 private:
  std::pair<std::int64_t, std::vector<Extract>> extracts(std::int64_t number) const;

  QuerySettings settings_;
  ProjectSettings project_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::int64_t> in_project_;  // [corpus of the run]: its number in the project, or -1
  std::vector<std::int64_t> ends_;        // [corpus of the run]: windows of this and all earlier corpora
  std::int64_t size_;
};

// Neighbours of one chunk: the first `saved` candidates that are of no document of the sample, and that `is_copy` (if given) does not reject.
std::vector<Candidate> filtered(const std::vector<Candidate>& candidates, const std::vector<Place>& documents, std::int64_t saved,
                                const std::function<bool(std::int64_t id)>& is_copy = {});

// True if the texts have a run of n equal tokens in common. n >= 1.
bool share_a_run(std::span<const std::int32_t> a, std::span<const std::int32_t> b, std::int64_t n);

}  // namespace gyr::retro
