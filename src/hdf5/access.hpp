// SPDX-License-Identifier: BSD-3-Clause
// Helpers that all wrappers of HDF5 files share: access properties, handles with errors, and reasons of failures. The
// caller must hold a LibraryLock (file.hpp).
#pragma once

#include "src/hdf5/file.hpp"

namespace gyr::hdf5 {

// Access properties of every file: our driver, and a format in which all metadata has checksums.
Handle file_access();
// Innermost message of HDF5's last error.
std::string reason();
// Reason of a failed write to `object`: the disk error if there is one, otherwise `otherwise`. HDF5 does not learn of
// disk errors and fails later for other reasons.
std::string cause(Handle::Id object, const std::string& otherwise);
[[noreturn]] void fail_write(const std::string& name, const std::string& why);  // Exit::io
// A handle that must be valid; Exit::data with HDF5's reason.
Handle owned(Handle::Id id, Handle::Close close, const std::string& name);
// Creates the file, or truncates an existing one. A symbolic link is refused. Exit::io. `creation`: HDF5's file creation
// properties.
Handle create_for_writing(const std::filesystem::path& path, Handle::Id creation);
// Opens the file for reading. Errors of InputFile; Exit::data unless it is a complete HDF5 file.
Handle open_for_reading(const std::filesystem::path& path);
// Flushes and closes the file. Exit::io if any write has failed.
void close_written(Handle& file, const std::string& name);

}  // namespace gyr::hdf5
