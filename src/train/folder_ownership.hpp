// SPDX-License-Identifier: BSD-3-Clause
// How a run comes by its output folder.
#pragma once

#include "src/checkpoint/run_identity.hpp"
#include "src/config/run_config.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// Takes the folder, removes what killed saves and an earlier attempt's heartbeat have left in it, and says which run it belongs to from now on:
// the one that is there where it is resumed, a new one where it holds no checkpoints or they are set aside. For the first rank alone.
// Exit::usage where another run's checkpoints are there, Exit::io.
RunIdentity take_folder(RunFolder&, const RunConfig&, const TrainOptions&);

}  // namespace gyr
