// SPDX-License-Identifier: BSD-3-Clause
// Part of a dump that one rank writes. The rank numbers its tensors in the order of their first write.
#pragma once

#include <map>
#include <optional>

#include "src/checkpoint/shard_writer.hpp"

namespace gyr {

// A rank's file and its own list of tensors. The boxes of the file refer to tensors by their index in this list.
struct DumpPart {
  std::vector<StoredTensor> tensors;
  ManifestFile file;
};
std::string text_of(const DumpPart&);         // serialises a part, to send it to another rank
DumpPart dump_part(const std::string& text);  // inverse of text_of
void add(Manifest&, DumpPart);                // adds a part; tensors with the same path become one tensor of the manifest

class DumpFile {
 public:
  DumpFile(std::filesystem::path path, CheckpointHeader header) : path_(std::move(path)), header_(std::move(header)) {}

  // Writes the next rows of a box of a tensor, row-major in its dtype. A box must be complete before the next one begins. The first write creates the
  // file. Exit::io.
  void write(const StoredTensor&, const Box&, Index rows, const void* data);
  // Flushes the file to disk and returns its description; none if nothing was written. Exit::io.
  std::optional<DumpPart> finish();

 private:
  std::filesystem::path path_;
  CheckpointHeader header_;
  std::optional<ShardWriter> writer_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t> number_;  // index of each tensor in tensors_, by tensor path
};

}  // namespace gyr
