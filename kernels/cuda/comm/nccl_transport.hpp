// SPDX-License-Identifier: BSD-3-Clause
// Transport of the device's memory by NCCL, on streams beside the device's own and ordered with it by events: the host waits for nothing. Memory of
// the host goes by the transport of the host, which also brings the ranks together.
//
// Operations of all ranks follow each other on one stream. What one rank sends to another has a stream and a communicator for each ordered pair of
// neighbours, round the ring: within one, NCCL matches by order alone, as messages between two ranks are received in the order in which they are
// sent; and no message waits behind one of another pair. Ranks that are no neighbours send through the host.
#pragma once

#include "kernels/device/transport.hpp"

namespace gyr {

// Collective over the ranks of `hosts`, each of which has a GPU of its own.
std::unique_ptr<Transport> nccl_transport(std::unique_ptr<Transport> hosts);
// Whether it is such a one.
bool is_nccl(const Transport&);

}  // namespace gyr
