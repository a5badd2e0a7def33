// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/access.hpp"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/file_system.hpp"
#include "src/base/input_file.hpp"
#include "src/hdf5/driver.hpp"

namespace gyr::hdf5 {

// Our messages contain HDF5's reasons; HDF5 must not print them itself.
Handle file_access() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_driver(access, driver(), nullptr);
  // H5F_LIBVER_V110: from this format on, all of HDF5's metadata has checksums. HDF5 1.10 (2016) and later read it.
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  return access;
}

std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* to) {
        if (depth == 0 && error->desc) *static_cast<std::string*>(to) = error->desc;
        return herr_t(0);
      },
      &text);
  return text.empty() ? "HDF5 gives no reason (gyrfalcon info --check compares files with their checksums)" : text;
}

std::string cause(Handle::Id object, const std::string& otherwise) {
  const Handle file(H5Iget_file_id(object), H5Fclose);
  const std::string disk = file < 0 ? "" : failure_of(file);
  return disk.empty() ? otherwise : disk;
}

void fail_write(const std::string& name, const std::string& why) { fail(Exit::io, "{}: cannot be written: {}", name, why); }

Handle owned(Handle::Id id, Handle::Close close, const std::string& name) {
  require(id >= 0, Exit::data, "{}: {}", name, reason());
  return Handle(id, close);
}

Handle create_for_writing(const std::filesystem::path& path, Handle::Id creation) {
  const int descriptor = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0666);
  require(descriptor >= 0, Exit::io, "{}: cannot be created: {}", path.string(), why_not_opened(errno));
  if (::close(descriptor) != 0) fail_write(path.string(), std::strerror(errno));
  const Handle access = file_access();
  Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  if (file < 0) fail_write(path.string(), reason());
  return file;
}

namespace {

// Description of a file that is no HDF5 file; empty if it may be a damaged one.
std::string seems_to_be(const std::filesystem::path& path, const InputFile& file) {
  std::string begin(64, ' ');
  begin.resize(file.read(0, begin.data(), begin.size()));
  if (begin.empty()) return "is empty, not a checkpoint (HDF5)";
  if (begin.starts_with("\x89HDF")) return "";
  if (path.extension() == ".yaml" || path.extension() == ".yml")
    return "is a deck (YAML), not a checkpoint (HDF5); give a checkpoint, or the folder of its run (output.folder of the deck)";
  const bool text =
      std::none_of(begin.begin(), begin.end(), [](char c) { return (c >= 0 && c < ' ' && c != '\n' && c != '\t' && c != '\r') || c == 127; });
  return text ? "seems to be text, not a checkpoint (HDF5); give a checkpoint or the folder of a run" : "";
}

}  // namespace

Handle open_for_reading(const std::filesystem::path& path) {
  const InputFile readable(path);  // HDF5 does not report why it cannot open a file
  const Handle access = file_access();
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (file >= 0) return file;
  const std::string other = seems_to_be(path, readable);
  require(other.empty(), Exit::data, "{}: {}", path.string(), other);
  fail(Exit::data, "{}: is not a complete HDF5 file: {}", path.string(), reason());
}

void close_written(Handle& file, const std::string& name) {
  const std::shared_ptr<const Condition> disk = condition_of(file);
  const bool flushed = H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
  const std::string why = flushed ? "" : reason();
  file = Handle();  // closing still clears a flag in the file's superblock
  if (!disk->failure.empty() || !flushed) fail_write(name, disk->failure.empty() ? why : disk->failure);
}

}  // namespace gyr::hdf5
