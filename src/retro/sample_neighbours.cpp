// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/sample_neighbours.hpp"

#include <algorithm>

#include "kernels/base/philox.hpp"
#include "src/data/samples.hpp"
#include "src/retro/megatron_project.hpp"
#include "src/retro/passage_search.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* query_again = "`gyrfalcon retro query PROJECT DECK` with this deck finds them";

std::vector<fs::path> folders_of(const fs::path& project, bool validation) {
  std::vector<fs::path> folders;
  std::error_code error;
  const std::string prefix = validation ? "validation-" : "train-";
  for (const auto& entry : fs::directory_iterator(query_folder(project), error))
    if (entry.path().filename().string().starts_with(prefix)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

// The settings of the run with the options of the search that found these neighbours.
QuerySettings with_search_of(QuerySettings wanted, const QuerySettings& found) {
  wanted.candidates = found.candidates, wanted.saved = found.saved, wanted.overlap = found.overlap;
  return wanted;
}

std::size_t differences(const NamedValues& a, const NamedValues& b) {
  std::size_t count = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] != b[i];
  return count;
}

// Settings of the folder that has the neighbours of the run. Without one, the message compares the most similar folder.
QuerySettings matching(const fs::path& project, const QuerySettings& wanted) {
  const char* const split = wanted.validation ? "validation" : "training";
  std::optional<QuerySettings> best;
  std::size_t least = 0;
  for (const fs::path& folder : folders_of(project, wanted.validation)) {
    const QuerySettings found = read_query_settings(folder);
    const std::size_t count = differences(found.values(), with_search_of(wanted, found).values());
    require(!best || count > 0 || least > 0, Exit::config,
            "{}: has the neighbours of these {} samples twice, by different --candidates, --saved or --overlap; remove one of the folders {} and {}",
            project.string(), split, folder.filename().string(), best ? neighbours_folder(project, *best).filename().string() : "");
    if (!best || count < least) best = found, least = count;
  }
  require(best.has_value(), Exit::missing, "{}: has no neighbours of the {} samples; {}", query_folder(project).string(), split, query_again);
  require_same(best->values(), with_search_of(wanted, *best).values(), neighbours_folder(project, *best) / "config.json",
               fmt::format("restore that setting, or find the neighbours of these {} samples: `gyrfalcon retro query PROJECT DECK`", split));
  return *best;
}

}  // namespace

// Files of Megatron-LM name no settings. Their samples depend on the number of all samples, so that it must be that of the run.
SampleNeighbours::Files SampleNeighbours::files_of(const fs::path& project, const QuerySettings& wanted, std::int64_t samples,
                                                   const Options& options) {
  const std::int64_t chunks = samples * wanted.chunks_per_sample();
  if (options.folder.empty()) {
    const QuerySettings found = matching(project, wanted);
    return {found, neighbour_blocks(neighbours_folder(project, found), found, chunks)};
  }
  const MegatronNeighbours found = megatron_neighbours(options.folder);
  require(found.blocks.all_rows() == chunks, Exit::config,
          "retro.neighbors: {} has the neighbours of {} chunks, but the run reads {} samples of {}; set train.steps and train.global_batch_size "
          "as in the run that they were found for",
          options.folder.string(), found.blocks.all_rows(), samples, wanted.chunks_per_sample());
  QuerySettings settings = wanted;
  settings.saved = found.saved, settings.block = std::max<std::int64_t>(1, found.blocks.rows(0));
  return {settings, found.blocks};
}

SampleNeighbours::SampleNeighbours(const fs::path& project, const ProjectSettings& settings, const QuerySettings& wanted, std::int64_t samples,
                                   const Options& options)
    : SampleNeighbours(project, settings, files_of(project, wanted, samples, options), options) {}

SampleNeighbours::SampleNeighbours(const fs::path& project, const ProjectSettings& settings, Files files, const Options& options)
    : project_(settings), corpora_(project_), database_(project, project_, corpora_), settings_(std::move(files.settings)), options_(options),
      blocks_(std::move(files.blocks)) {
  for (std::size_t c = 0; c < corpora_.size() && !project_.foreign; ++c)
    require_unchanged(project_.corpora[c], corpora_.file(c), config_path(project));
  require(
      settings_.saved >= options.neighbours, Exit::config,
      "model.retrieval.neighbors = {}, but {} holds {} of each chunk; set it to at most that number, or run `gyrfalcon retro query` with --saved {}",
      options.neighbours, blocks_.folder().string(), settings_.saved, options.neighbours);
  std::int64_t there = 0;
  for (std::int64_t b = 0; b < blocks_.count(); ++b) there += blocks_.exists(b);
  require(there == blocks_.count(), Exit::missing, "{}: has {} of {} block files of neighbours; `gyrfalcon retro query {} DECK` finds the others",
          blocks_.folder().string(), there, blocks_.count(), project.string());
}

hdf5::TableReader SampleNeighbours::opened(std::int64_t block) const {
  return project_.foreign ? hdf5::TableReader(blocks_.file(block)) : open_tables(blocks_.file(block), settings_.hash());
}

std::vector<std::int64_t> SampleNeighbours::ids(std::int64_t chunk) {
  const std::int64_t block = chunk / settings_.block;
  if (block != open_block_) {
    open_block_ = -1;
    open_file_.emplace(opened(block));
    open_block_ = block;
  }
  const std::int64_t row = chunk - blocks_.first(block);
  std::vector<std::int64_t> ids = open_file_->read<std::int64_t>("neighbors", settings_.saved, row, 1);
  ids.resize(std::size_t(options_.neighbours));
  for (const std::int64_t id : ids)
    require(id >= -1 && id < database_.size(), Exit::data, "{}:neighbors: row {} names chunk {}, but the database has the chunks 0 to {}; {}",
            open_file_->name(), row, id, database_.size() - 1,
            project_.foreign ? "restore the file" : "remove the file and run `gyrfalcon retro query` again");
  return ids;
}

void SampleNeighbours::add_to(std::int64_t number, gyr::Sample& sample) {
  const std::lock_guard lock(mutex_);
  const std::int64_t chunks = settings_.chunks_per_sample(), all = blocks_.count() > 0 ? blocks_.last(blocks_.count() - 1) : 0;
  const std::size_t length = std::size_t(2 * settings_.chunk);
  sample.neighbours.clear(), sample.neighbour_lengths.clear();
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t chunk = number * chunks + c;
    for (const std::int64_t id : ids(options_.shuffle == 0 ? chunk : permuted(chunk, all, mixed(options_.shuffle)))) {
      const std::vector<std::int32_t> found =
          is_missing(id) ? std::vector<std::int32_t>() : neighbour_tokens(database_, id, options_.vocab_size, options_.rule);
      sample.neighbour_lengths.push_back(std::int32_t(found.size()));
      sample.neighbours.insert(sample.neighbours.end(), found.begin(), found.end());
      sample.neighbours.resize(sample.neighbour_lengths.size() * length, 0);
    }
  }
}

}  // namespace gyr::retro
