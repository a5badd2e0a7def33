// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

namespace gyr {

// Fails with Exit::device and NCCL's own message if a call has failed; `what` names the call.
void check_nccl(ncclResult_t, const char* what, int rank, int size);

}  // namespace gyr
