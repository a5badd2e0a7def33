// SPDX-License-Identifier: BSD-3-Clause
// Builds a media store from the images that a JSONL file names, on any number of ranks. The bytes do not depend on the
// number of ranks. A build that was killed continues from the blocks in PREFIX.media.parts.
#pragma once

#include <functional>

#include "kernels/comm/communicator.hpp"
#include "src/base/note.hpp"
#include "src/media/codecs/codecs.hpp"
#include "src/media/store.hpp"

namespace gyr::media {

struct BuildSettings {
  std::filesystem::path lines, prefix, root;  // JSONL file; PREFIX of the store; folder of all images, empty: that of the JSONL file
  Processor processor;
  DecodeLimits limits;
  bool skip_bad = false;    // false: a bad file or line ends the build
  bool overwrite = false;   // replace an existing store
  std::int64_t block = 32;  // lines of a block, which a rank prepares in memory
};

struct BuildResult {
  StoreCounts counts;
  std::int64_t blocks = 0, kept = 0;  // blocks; those of an earlier, interrupted build
  std::string reasons;                // on rank 0: a line of text for each skipped line of the input
};

std::filesystem::path store_path(const std::filesystem::path& prefix);
std::filesystem::path parts_path(const std::filesystem::path& prefix);

// Collective. Exit::usage if the store exists. Exit::data with file, line and reason for the first bad item, unless bad
// items are skipped, and if no sample is left. `progress` receives the lines done and the total lines of this rank.
BuildResult build_store(const BuildSettings&, Communicator& world, const Note& note,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace gyr::media
