// SPDX-License-Identifier: BSD-3-Clause
// Numbers of the host on their way to the device.
#pragma once

#include "kernels/device/queue.hpp"

namespace gyr::backend {

// Bytes of the host to the device, in the order of the queue; those of the host may change on return, and the host waits for nothing that the device
// is to do before.
void upload(const Queue&, const void* from, void* to, Index bytes);

}  // namespace gyr::backend
