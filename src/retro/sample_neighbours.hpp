// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the samples of a training run, read from the files of `gyrfalcon retro query`.
#pragma once

#include <mutex>

#include "src/retro/neighbours.hpp"

namespace gyr::retro {

class SampleNeighbours {
 public:
  struct Options {
    std::int64_t neighbours = 2;  // k: neighbours of each chunk
    std::uint64_t shuffle = 0;    // seed by which every chunk gets the neighbours of another one; 0: its own
    std::int64_t vocab_size = 0;  // larger token ids are an error
    PassageRule rule = {};
    std::filesystem::path folder = {};  // of the neighbours in a project of Megatron-LM; empty: the folder of the project that has those of the run
  };
  // `wanted`: settings of the run; those of the search (--candidates, --saved, --overlap) are taken from the files. Exit::missing if
  // there are no neighbours, or not all of them. Exit::config naming the setting if those that exist were found for
  // another run. Exit::data for a damaged file.
  SampleNeighbours(const std::filesystem::path& project, const ProjectSettings&, const QuerySettings& wanted, std::int64_t samples, const Options&);

  // Sets Sample::neighbours and neighbour_lengths of the sample with this number among the queries. Thread-safe.
  void add_to(std::int64_t number, gyr::Sample&);

 private:
  struct Files {
    QuerySettings settings;
    Blocks blocks;
  };
  SampleNeighbours(const std::filesystem::path& project, const ProjectSettings&, Files, const Options&);
  static Files files_of(const std::filesystem::path& project, const QuerySettings& wanted, std::int64_t samples, const Options&);
  hdf5::TableReader opened(std::int64_t block) const;
  bool is_missing(std::int64_t id) const { return id < 0 && (!options_.rule.any_document || database_.size() == 0); }
  std::vector<std::int64_t> ids(std::int64_t chunk);

  ProjectSettings project_;
  Corpora corpora_;
  Database database_;
  QuerySettings settings_;
  Options options_;
  Blocks blocks_;
  std::mutex mutex_;
  std::int64_t open_block_ = -1;
  std::optional<hdf5::TableReader> open_file_;  // the block that was read last
};

}  // namespace gyr::retro
