// SPDX-License-Identifier: BSD-3-Clause
// Transport of device memory through host memory: data is copied to the host, transferred by a host transport (MPI),
// and copied back when done() finds the transfer complete. It serves ranks that share a GPU, which NCCL refuses, and
// communicators of a single rank. The NCCL transport uses it for host memory and for messages between ranks that are
// not ring neighbours.
#pragma once

#include "kernels/device/transport.hpp"

namespace gyr::cuda {

// Host memory is passed to `hosts` without a copy.
std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> hosts);

// True if the pointer refers to device memory.
bool on_device(const void*);

}  // namespace gyr::cuda
