// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/reshard.hpp"

#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/checkpoint/writer.hpp"

namespace gyr {

Resharded reshard(const std::filesystem::path& from, const std::filesystem::path& to, int files, const ShardOptions& options) {
  const StoredCheckpoint stored(from);
  stored.check_files();
  require(!std::filesystem::exists(to), Exit::usage, "{}: exists; choose another folder, or move it away", to.string());
  CheckpointWriter writer(to, stored.header(), stored.tensors(), files, options);
  std::vector<std::byte> rows;
  for (const StoredTensor& t : stored.tensors()) {
    const Index all = t.shape[0], slab = slab_rows(t.dtype, t.shape), row = elements(t.shape) / all * size_of(t.dtype);
    for (Index first = 0; first < all; first += slab) {
      const Index count = std::min(slab, all - first);
      rows.resize(std::size_t(count * row));
      stored.read_rows(t, first, count, rows.data());
      writer.write(first, count, rows.data());
    }
  }
  writer.commit();
  return {writer.bytes(), writer.files()};
}

}  // namespace gyr
