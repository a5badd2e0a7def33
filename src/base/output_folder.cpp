// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/output_folder.hpp"

#include "kernels/base/error.hpp"
#include "src/base/output_file.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }
fs::path with(const fs::path& path, const char* ending) { return fs::path(path) += ending; }
fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

void check_replaceable(const fs::path& folder, const std::function<bool(const std::string&)>& replaceable) {
  for (const auto& entry : fs::directory_iterator(folder))
    require(entry.is_regular_file() && replaceable(entry.path().filename().string()), Exit::usage,
            "{}: holds {}, which does not belong to such a folder, so the folder is not replaced; move it away or choose another folder",
            folder.string(), entry.path().filename().string());
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& final_path, Existing existing, const std::function<bool(const std::string&)>& replaceable)
    : final_(without_slash(final_path)), temporary_(with(final_, ".tmp")) {
  std::error_code error;
  const fs::file_status status = fs::status(final_, error);
  if (fs::exists(status)) {
    require(fs::is_directory(status), Exit::usage, "{}: exists and is not a folder", final_.string());
    if (!fs::is_empty(final_, error)) {
      require(existing == Existing::replace, Exit::usage, "{}: exists and is not empty; give --overwrite to replace it", final_.string());
      check_replaceable(final_, replaceable);
    }
  }
  if (existing == Existing::replace) fs::remove_all(temporary_, error);
  require(!fs::exists(temporary_, error), Exit::usage, "{}: exists: another process is writing it, or was killed; remove it, or give --overwrite",
          temporary_.string());
  fs::create_directories(parent_of(final_), error);
  const bool made = fs::create_directory(temporary_, error);
  require(made, Exit::io, "{}: cannot be made: {}", temporary_.string(), error.message());
  owner_ = true;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (owner_) fs::remove_all(temporary_, ignored);
}

void OutputFolder::commit() {
  std::error_code error;
  sync_folder(temporary_);
  const fs::path old = with(final_, ".old");
  const bool replaced = fs::exists(final_, error) && !fs::is_empty(final_, error);
  if (replaced) {
    fs::remove_all(old, error);
    fs::rename(final_, old, error);
    require(!error, Exit::io, "{}: cannot be moved to {}: {}", final_.string(), old.string(), error.message());
  }
  fs::rename(temporary_, final_, error);
  if (error) {
    std::error_code ignored;
    if (replaced) fs::rename(old, final_, ignored);
    fail(Exit::io, "{}: cannot be renamed to {}: {}", temporary_.string(), final_.string(), error.message());
  }
  owner_ = false;
  sync_folder(parent_of(final_));
  if (replaced) fs::remove_all(old, error);
}

}  // namespace gyr
