// SPDX-License-Identifier: BSD-3-Clause
// Transport of the device's memory by way of the host: copied there, moved by a transport of the host, and copied back when the host finds it done.
// For ranks that share a GPU, which NCCL refuses, and where there is no NCCL.
#pragma once

#include "kernels/device/transport.hpp"

namespace gyr::cuda {

// Memory of the host passes through.
std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> hosts);

bool on_device(const void*);

}  // namespace gyr::cuda
