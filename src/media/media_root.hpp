// SPDX-License-Identifier: BSD-3-Clause
// The folder that all media files of a build must lie in, and safe reading of files in it.
#pragma once

#include <filesystem>
#include <string>

namespace gyr::media {

inline constexpr std::size_t most_media_bytes = std::size_t(256) << 20;

class MediaRoot {
 public:
  // Paths in lines are relative to the folder of `lines`. `root`: empty: this folder. Exit::missing if it does not exist.
  MediaRoot(const std::filesystem::path& lines, const std::filesystem::path& root);

  const std::filesystem::path& root() const { return root_; }
  // Content of the file that a line names. BadItem for an address, a path outside the root (also by a symbolic link), a
  // missing file, a folder, a device, and more than `most_media_bytes`.
  std::string read(const std::string& path) const;

 private:
  std::filesystem::path base_, root_;
};

}  // namespace gyr::media
