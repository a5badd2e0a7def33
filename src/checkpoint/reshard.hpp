// SPDX-License-Identifier: BSD-3-Clause
// Rewrites a checkpoint into another number of shard files. Tensor values and run metadata stay the same.
#pragma once

#include "src/checkpoint/shard_writer.hpp"

namespace gyr {

struct Resharded {
  Index bytes;  // bytes of all copied tensors
  int files;
};

// Copies slabs of about 32 MiB, so little host memory is needed. Exit::usage if `to` exists; Exit::missing, Exit::data,
// Exit::io.
Resharded reshard(const std::filesystem::path& from, const std::filesystem::path& to, int files, const ShardOptions&);

}  // namespace gyr
