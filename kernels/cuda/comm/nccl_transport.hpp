// SPDX-License-Identifier: BSD-3-Clause
// NCCL transport for device memory. Operations run on streams of their own and are ordered with the device's work by events, so that the host does
// not wait. Host memory goes through the host transport, which also sets up the NCCL communicators.
//
// Collectives run in order on one stream. Point-to-point messages use a stream and a communicator for each ordered pair of ring neighbours. Within
// a pair, NCCL matches messages by order only, which is the order in which they are sent. A message does not wait for messages of another pair.
// Ranks that are not ring neighbours send through the host.
#pragma once

#include "kernels/device/transport.hpp"

namespace gyr {

// Makes an NCCL transport for the ranks of `hosts`, the transport between their hosts. Each rank must have a GPU of
// its own. Collective.
std::unique_ptr<Transport> nccl_transport(std::unique_ptr<Transport> hosts);
// True if the transport is an NCCL transport.
bool is_nccl(const Transport&);

}  // namespace gyr
