// SPDX-License-Identifier: BSD-3-Clause
// The vectors of the chunks of a project on disk, in index/flat/: config.json names the encoder, and each block file has the dataset `vectors`
// (chunks, width). The ranks make the blocks independently of each other.
#pragma once

#include <functional>

#include "kernels/comm/communicator.hpp"
#include "src/retro/database.hpp"

namespace gyr::retro {

inline constexpr std::int64_t most_width = std::int64_t(1) << 20;
inline constexpr std::int64_t most_encoder_tokens = 256;  // further tokens of a text are not encoded

struct VectorSettings {
  std::string project;            // hash of the database
  std::filesystem::path encoder;  // absolute path of the model
  std::string encoder_sum;        // checksum of its weights
  std::int64_t width = 0;         // elements of a vector

  NamedValues values() const;  // all settings, except the path
  std::string hash() const { return hash_of(values()); }
};

// Computes the vector of a text from its token ids, without communication. Empty if the text has no token to encode.
using EncodeText = std::function<std::vector<float>(std::span<const std::int32_t>)>;

bool has_vectors(const std::filesystem::path& project);
std::filesystem::path vectors_folder(const std::filesystem::path& project);
void write_vector_settings(const std::filesystem::path& project, const VectorSettings&);
// Exit::missing if there is no config.json, Exit::data if it is damaged.
VectorSettings read_vector_settings(const std::filesystem::path& project);

struct VectorCounts {
  std::int64_t blocks = 0, kept = 0;  // block files; those of them that an earlier call has made
};
Blocks vector_blocks(const std::filesystem::path& project, const ProjectSettings&, std::int64_t chunks);
// Makes the blocks that do not exist. `progress`: called on rank 0 with the chunks that it has encoded, and its number of chunks to encode.
// Collective. Exit::data for a damaged block, Exit::io, Exit::numeric for a vector that is not finite.
VectorCounts build_vectors(const std::filesystem::path& project, const Database&, const VectorSettings&, const EncodeText&, Communicator& world,
                           const std::function<void(std::int64_t, std::int64_t)>& progress);
// Reads a block (chunks, width). Exit::missing; Exit::data, with file, dataset and row, for a value that is not finite.
std::vector<float> read_vectors(const Blocks&, std::int64_t block, const VectorSettings&);

}  // namespace gyr::retro
