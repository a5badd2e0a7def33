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

class TensorBoard {
 public:
  // Starts a new event file in `folder` (made where missing). A run that goes on after `resumed` steps says so, and
  // TensorBoard then drops what an earlier file holds beyond that step. Error(io) when nothing can be written.
  TensorBoard(const std::filesystem::path& folder, double time, std::optional<Index> resumed);

  void write(const StepReport&);
  void write(const ValidationReport&);
  void scalar(double time, Index step, std::string_view tag, double value);
  const std::filesystem::path& file() const { return name_; }

 private:
  void both(const StepReport&, const std::string& tag, double value);
  void record(const std::string& payload);
  void flush();

  std::filesystem::path name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace gyr
