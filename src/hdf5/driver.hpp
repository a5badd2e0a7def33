// SPDX-License-Identifier: BSD-3-Clause
// How HDF5 reaches the disk: a file driver that remembers the first failed write or close and reports success to HDF5 from then on. HDF5 1.10 crashes
// in MPI_Finalize after a close that could not write; so it is not told, and the writer asks the driver.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gyr::hdf5 {

// The driver's id, the process's.
hid_t driver();

// What became of a file of this driver.
struct Condition {
  std::string failure;          // empty while all is well
  std::int64_t bytes_read = 0;  // of datasets, from the disk
};
// Of an open file; it goes on to tell while that is being closed.
std::shared_ptr<const Condition> condition_of(hid_t file);
inline std::string failure_of(hid_t file) { return condition_of(file)->failure; }

}  // namespace gyr::hdf5
