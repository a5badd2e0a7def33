// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/nccl/check.hpp"

#include "kernels/error.hpp"

namespace gyr {

void check_nccl(ncclResult_t result, const char* what, int rank, int size) {
  if (result != ncclSuccess && result != ncclInProgress)
    fail(Exit::device, "NCCL, {} on rank {} of {}: {} ({})", what, rank, size, ncclGetErrorString(result), ncclGetLastError(nullptr));
}

}  // namespace gyr
