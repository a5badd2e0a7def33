// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous copies of host data to the device.
#pragma once

#include "kernels/device/queue.hpp"

namespace gyr::backend {

// Copies host bytes to the device, in the order of the queue. The host bytes may be changed on return. The host does
// not wait for earlier work of the device.
void upload(const Queue&, const void* from, void* to, Index bytes);

}  // namespace gyr::backend
