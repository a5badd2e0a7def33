// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

namespace gyr {

// Exit::device with NCCL's own words where a call has failed.
void check_nccl(ncclResult_t, const char* what, int rank, int size);

}  // namespace gyr
