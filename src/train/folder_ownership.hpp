// SPDX-License-Identifier: BSD-3-Clause
// How a run takes possession of its output folder.
#pragma once

#include "src/checkpoint/run_identity.hpp"
#include "src/config/run_config.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// Locks the folder, and changes nothing else in it. Returns the identity of the run that will own the folder: that of the
// existing run if it is resumed, a new one if there are no checkpoints or they will be set aside. First rank only.
// Exit::usage if the folder has checkpoints, unless the run is resumed or started over; Exit::io.
RunIdentity take_folder(RunFolder&, const RunConfig&, const TrainOptions&);

// Begins a start that nothing refuses any more: removes unfinished saves and the heartbeat of an earlier attempt, sets
// another run aside (--anew), and writes the status. First rank only. Exit::io.
void begin_in_folder(RunFolder&, const RunConfig&, const TrainOptions&);

}  // namespace gyr
