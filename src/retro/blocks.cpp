// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/blocks.hpp"

#include <system_error>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/fault_point.hpp"
#include "src/base/output_file.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* hash_attribute = "depends_on";

// Removes a temporary file unless it has been renamed.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;
    if (!kept_) fs::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;

  void rename_to(const fs::path& final_path) {
    std::error_code error;
    fs::rename(path_, final_path, error);
    require(!error, Exit::io, "{}: cannot be renamed to {}: {}", path_.string(), final_path.string(), error.message());
    kept_ = true;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool kept_ = false;
};

}  // namespace

fs::path Blocks::file(std::int64_t block) const { return folder_ / fmt::format("{:0{}}-{:0{}}.hdf5", first(block), digits_, last(block), digits_); }

bool Blocks::exists(std::int64_t block) const {
  std::error_code error;
  return fs::exists(file(block), error);
}

void write_tables(const fs::path& path, const std::string& hash, int rank, const std::function<void(hdf5::TableWriter&)>& fill) {
  static std::int64_t written = 0;
  const std::int64_t number = written++;
  Temporary temporary(OutputFile::temporary(path));
  fault_point("retro-begun", rank, number);
  hdf5::TableWriter file(temporary.path());
  file.set(hash_attribute, hash);
  fill(file);
  fault_point("retro-filled", rank, number);
  file.close();
  sync_file(temporary.path());
  fault_point("retro-written", rank, number);
  temporary.rename_to(path);
  sync_folder(path.parent_path());
  fault_point("retro-renamed", rank, number);
}

namespace {

hdf5::TableReader opened(const fs::path& path) {
  try {
    return hdf5::TableReader(path);
  } catch (const Error& error) {
    if (error.code != Exit::data) throw;
    fail(Exit::data, "{}; remove the file, and the command that wrote it (gyrfalcon retro build-db, index or query) makes it again", error.what());
  }
}

}  // namespace

hdf5::TableReader open_tables(const fs::path& path, const std::string& hash) {
  hdf5::TableReader file = opened(path);
  const std::string found = file.text(hash_attribute);
  require(found == hash, Exit::data, "{}: was made with settings of hash {}, but those of this project have {}; remove it and make it again",
          path.string(), printable_line(found), hash);
  return file;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, Exit::io, "{}: the folder cannot be created: {}; choose another PROJECT", folder.string(), error.message());
}

}  // namespace gyr::retro
