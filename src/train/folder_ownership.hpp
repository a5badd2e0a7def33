// SPDX-License-Identifier: BSD-3-Clause
// How a run takes possession of its output folder.
#pragma once

#include "src/checkpoint/run_identity.hpp"
#include "src/config/run_config.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// Locks the folder, and removes unfinished saves and the heartbeat of an earlier attempt. Returns the identity of the
// run that owns the folder from now on: that of the existing run if it is resumed, a new one if there are no
// checkpoints or they are set aside. First rank only. Exit::usage if the folder holds checkpoints of another run;
// Exit::io.
RunIdentity take_folder(RunFolder&, const RunConfig&, const TrainOptions&);

}  // namespace gyr
