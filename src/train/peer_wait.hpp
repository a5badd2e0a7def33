// SPDX-License-Identifier: BSD-3-Clause
// Waits for a message of ranks that may work for a long time before they send it.
#pragma once

#include "kernels/comm/event.hpp"
#include "src/watch/peer_progress.hpp"

namespace gyr {

// Returns when the event is done. The watchdog of this rank ends the job if the peers make no progress.
void wait_for(Event&, PeerProgress& peers, ProgressRecord&);

}  // namespace gyr
