// SPDX-License-Identifier: BSD-3-Clause
// A compressed file from front to back: gzip (RFC 1952, also of several members, as pigz and bgzip write) or Zstandard (RFC 8878, several frames,
// windows up to 2 GiB).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace gyr {

class Decompressor {
 public:
  // What to read `compressed` with, told by its first bytes; null where it is neither. `path` is for messages; the bytes must stay.
  static std::unique_ptr<Decompressor> of(std::string_view compressed, const std::filesystem::path& path);
  virtual ~Decompressor() = default;

  // Appends at least one byte and about 256 KiB; false where there is nothing left. Exit::data for what is damaged, or ends too early, naming file
  // and byte.
  virtual bool append_to(std::string& text) = 0;
  std::int64_t consumed() const { return consumed_; }  // compressed bytes

 protected:
  std::int64_t consumed_ = 0;
};

}  // namespace gyr
