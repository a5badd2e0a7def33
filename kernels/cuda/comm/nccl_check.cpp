// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/comm/nccl_check.hpp"

#include "kernels/base/error.hpp"

namespace gyr {

void check_nccl(ncclResult_t result, const char* what, int rank, int size) {
  if (result != ncclSuccess && result != ncclInProgress)
    fail(Exit::device, "NCCL, {} on rank {} of {}: {} ({})", what, rank, size, ncclGetErrorString(result), ncclGetLastError(nullptr));
}

}  // namespace gyr
