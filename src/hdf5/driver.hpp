// SPDX-License-Identifier: BSD-3-Clause
// HDF5 file driver that records the first failed write or close and reports success to HDF5 from then on. HDF5 1.10
// crashes in MPI_Finalize if a close fails to write. The writer therefore queries the driver for failures.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gyr::hdf5 {

// Id of the driver, registered once per process.
hid_t driver();

// State of a file that was opened with this driver.
struct Condition {
  std::string failure;          // first write, close or read error; empty if there is none
  std::int64_t bytes_read = 0;  // bytes of dataset content read from disk so far
};
// State of an open file; it stays valid and up to date while the file is being closed.
std::shared_ptr<const Condition> condition_of(hid_t file);
inline std::string failure_of(hid_t file) { return condition_of(file)->failure; }

}  // namespace gyr::hdf5
