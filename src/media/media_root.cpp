// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/media_root.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/media/image/bad_item.hpp"

namespace gyr::media {

namespace fs = std::filesystem;

MediaRoot::MediaRoot(const fs::path& lines, const fs::path& root) {
  const fs::path folder = lines.has_parent_path() ? lines.parent_path() : fs::path(".");
  std::error_code error;
  base_ = fs::canonical(folder, error);
  require(!error, Exit::missing, "{}: the folder cannot be opened: {}", folder.string(), error.message());
  root_ = root.empty() ? base_ : fs::canonical(root, error);
  require(!error && fs::is_directory(root_, error), Exit::missing, "--root {}: is not a folder; give the folder that holds all images",
          root.string());
}

std::string MediaRoot::read(const std::string& path) const {
  if (path.find("://") != path.npos) refuse_item("is an address; download the file and give its path");
  std::error_code error;
  const fs::path file = fs::canonical(base_ / path, error);
  if (error) refuse_item("cannot be opened: {}", error.message());
  const auto [at, end] = std::mismatch(root_.begin(), root_.end(), file.begin(), file.end());
  if (at != root_.end()) refuse_item("lies outside {}; move it there, or give --root", root_.string());
  if (!fs::is_regular_file(file, error)) refuse_item("is not a file");
  try {
    return text_of_file(file, most_media_bytes);
  } catch (const Error& problem) {
    refuse_item("cannot be read: {}", problem.what());
  }
}

}  // namespace gyr::media
