// SPDX-License-Identifier: BSD-3-Clause
// What one rank writes of a dump, tensors being numbered as they come.
#pragma once

#include <map>
#include <optional>

#include "src/checkpoint/shard_writer.hpp"

namespace gyr {

// A rank's file, and its own list of tensors, which the boxes' numbers refer to.
struct DumpPart {
  std::vector<StoredTensor> tensors;
  ManifestFile file;
};
std::string text_of(const DumpPart&);         // to travel between ranks
DumpPart dump_part(const std::string& text);  // and back
void add(Manifest&, DumpPart);                // its tensors become the manifest's, each once

class DumpFile {
 public:
  DumpFile(std::filesystem::path path, CheckpointHeader header) : path_(std::move(path)), header_(std::move(header)) {}

  // The next rows of a box of a tensor, row-major in its dtype; a box comes whole before the next one begins. The file is made with the
  // first. Exit::io.
  void write(const StoredTensor&, const Box&, Index rows, const void* data);
  // Brings it to disk; nothing where nothing was written. Exit::io.
  std::optional<DumpPart> finish();

 private:
  std::filesystem::path path_;
  CheckpointHeader header_;
  std::optional<ShardWriter> writer_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t> number_;  // by path
};

}  // namespace gyr
