// SPDX-License-Identifier: BSD-3-Clause
// The approximate index of the vectors of a project on disk, in index/faiss/: config.json names the index by the string of faiss's factory,
// trained.hdf5 holds the quantizer, and each block file the list and the code of every chunk. recall.json compares the index with exact search.
// Rank 0 trains, and the ranks encode the blocks independently of each other.
#pragma once

#include "src/retro/vectors/coded_shard.hpp"
#include "src/retro/vectors/vector_index.hpp"

namespace gyr::retro {

struct CodeSettings {
  std::string vectors;       // hash of the settings of the vectors
  std::string factory;       // such as IVF1024,Flat
  std::int64_t probes = 16;  // lists that a search reads
  std::int64_t sample = 0;   // vectors that the quantizer is trained with

  NamedValues values() const;
  std::string hash() const { return hash_of(values()); }
};

inline constexpr std::int64_t recall_most = 10;  // neighbours whose recall is measured

// Share of the recall_most exact neighbours that the index finds, by the mean over queries. The queries are vectors of chunks, which are no
// neighbours of themselves.
struct Recall {
  std::int64_t queries = 0;
  double share = 0;
};

std::filesystem::path codes_folder(const std::filesystem::path& project);
bool has_codes(const std::filesystem::path& project);
// Settings of a new index for `chunks` chunks. Exit::config if the build has no faiss, for a string that is no inverted file, and if the
// database has fewer chunks than the quantizer has centroids.
CodeSettings code_settings(const std::string& factory, std::int64_t probes, const VectorSettings&, std::int64_t chunks);
void write_code_settings(const std::filesystem::path& project, const CodeSettings&);
// Exit::missing if there is no config.json, Exit::data if it is damaged.
CodeSettings read_code_settings(const std::filesystem::path& project);

// Makes what does not exist. Collective. Exit::data for a damaged file, Exit::io, Exit::numeric.
struct CodeCounts {
  std::int64_t blocks = 0, kept = 0;  // block files; those of them that an earlier call has made
  Recall recall;
};
CodeCounts build_codes(const std::filesystem::path& project, const Database&, const VectorSettings&, const CodeSettings&, Communicator& world);

// `count` different numbers below `total`, ascending: one at random of each of `count` equal parts. A pure function of its arguments.
std::vector<std::int64_t> drawn_ids(std::int64_t count, std::int64_t total, std::uint64_t seed);

// A rank's part of the index. Exit::missing if a file is missing; Exit::data, with file, dataset and row.
std::unique_ptr<VectorShard> open_codes(const std::filesystem::path& project, const Database&, const VectorSettings&, const CodeSettings&,
                                        Communicator& world);
// The stored recall. Exit::missing, Exit::data.
Recall read_recall(const std::filesystem::path& project, const CodeSettings&);

}  // namespace gyr::retro
