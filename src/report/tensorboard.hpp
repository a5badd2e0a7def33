// SPDX-License-Identifier: BSD-3-Clause
// TensorBoard event files, written without TensorFlow. A file is a sequence of records
//   u64 length | u32 masked CRC32C of the length | payload | u32 masked CRC32C of the payload      (little-endian)
// and each payload is a protobuf message Event. Scalars have the names that Megatron-LM uses.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/report/step_report.hpp"

namespace gyr {

std::uint32_t crc32c(std::string_view bytes);         // CRC-32C (Castagnoli); crc32c("123456789") = 0xe3069283
std::uint32_t masked_crc32c(std::string_view bytes);  // TensorBoard's masked CRC: rotated right by 15 bits, plus 0xa282ead8

// One event file: scalars by (step, tag).
class EventFile {
 public:
  // Creates a file in `folder`, which is created if needed. `resumed`: last step of the earlier run that stays valid;
  // TensorBoard then discards later events in the folder's earlier files. Exit::io if the file cannot be written.
  EventFile(const std::filesystem::path& folder, double time, std::optional<Index> resumed);

  void scalar(double time, Index step, std::string_view tag, double value);
  void flush();
  const std::filesystem::path& name() const { return name_; }

 private:
  void record(const std::string& payload);

  std::filesystem::path name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Scalars of a training run: over steps in `folder`, over consumed samples in `folder`/vs_samples. They need separate
// folders, because a restart at a step applies to all files of a folder.
class TensorBoard {
 public:
  struct Resumed {
    Index step, samples;
  };
  TensorBoard(const std::filesystem::path& folder, double time, std::optional<Resumed> resumed);

  void write(const StepReport&);
  void write(const ValidationReport&);

 private:
  EventFile steps_, samples_;
};

}  // namespace gyr
