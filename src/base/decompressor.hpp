// SPDX-License-Identifier: BSD-3-Clause
// Decompresses a file from front to back. Formats: gzip (RFC 1952; also several members, as pigz and bgzip write) and
// Zstandard (RFC 8878; several frames, windows up to 2 GiB).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace gyr {

class Decompressor {
 public:
  // Returns the decompressor for `compressed`, chosen by its first bytes; null if it has neither format. `path` is for
  // messages. The bytes must outlive the decompressor.
  static std::unique_ptr<Decompressor> of(std::string_view compressed, const std::filesystem::path& path);
  virtual ~Decompressor() = default;

  // Appends at least one byte and about 256 KiB; false at the end of the file. Exit::data naming file and byte if the
  // data are damaged or truncated.
  virtual bool append_to(std::string& text) = 0;
  std::int64_t consumed() const { return consumed_; }  // compressed bytes read so far

 protected:
  std::int64_t consumed_ = 0;
};

}  // namespace gyr
