// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint written anew in other files, its numbers and what it says of the run unchanged.
#pragma once

#include "src/checkpoint/shard_writer.hpp"

namespace gyr {

struct Resharded {
  Index bytes;  // of tensors
  int files;
};

// Needs memory for some 32 MiB of a tensor. Exit::usage where `to` exists; Exit::missing, Exit::data, Exit::io.
Resharded reshard(const std::filesystem::path& from, const std::filesystem::path& to, int files, const ShardOptions&);

}  // namespace gyr
