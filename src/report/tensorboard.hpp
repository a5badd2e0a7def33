// SPDX-License-Identifier: BSD-3-Clause
// TensorBoard event files, written without TensorFlow. The file is a row of records
//   u64 length | u32 masked CRC32C of the length | payload | u32 masked CRC32C of the payload      (little-endian)
// and each payload a protobuf message Event. Scalars bear the names Megatron-LM gives them.
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

std::uint32_t crc32c(std::string_view bytes);         // Castagnoli; crc32c("123456789") = 0xe3069283
std::uint32_t masked_crc32c(std::string_view bytes);  // rotated right by 15 bits, plus 0xa282ead8

// One event file: scalars by (step, tag).
class EventFile {
 public:
  // A new file in `folder` (made where missing). `resumed`: the last step an earlier run keeps; TensorBoard then drops
  // what earlier files of the folder hold beyond it. Error(io) when nothing can be written.
  EventFile(const std::filesystem::path& folder, double time, std::optional<Index> resumed);

  void scalar(double time, Index step, std::string_view tag, double value);
  void flush();
  const std::filesystem::path& name() const { return name_; }

 private:
  void record(const std::string& payload);

  std::filesystem::path name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// The series of a training run: against steps in `folder`, and against consumed samples in `folder`/vs_samples. They
// need a folder each, since the point of a restart counts for a whole folder.
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
