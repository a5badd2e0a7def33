// SPDX-License-Identifier: BSD-3-Clause
// The checkpoint that a path given by a user stands for.
#pragma once

#include <filesystem>

#include "src/base/note.hpp"

namespace gyr {

// The folder of a run and its folder `checkpoints` stand for their newest complete checkpoint, and the files
// checkpoints/latest and checkpoints/best stand for the checkpoint that they name. A file in a checkpoint or in a Hugging Face folder stands
// for that folder. Any other path is returned unchanged. `note` receives the chosen checkpoint, and each newer one that
// was skipped with the reason. Exit::missing if the folder holds no complete checkpoint, or the file names one that does
// not exist; Exit::data for a GGUF file. Checkpoints may be saved and removed meanwhile, so only one rank may call this.
// Damaged::refused: Exit::data with the reason if the newest checkpoint of a folder would be skipped.
enum class Damaged { skipped, refused };
std::filesystem::path chosen_checkpoint(const std::filesystem::path& path, const Note& note = {}, Damaged = Damaged::skipped);

}  // namespace gyr
