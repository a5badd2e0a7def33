// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints are logical: one HDF5 file holds whole tensors under plain names, whatever grid wrote them, and any grid reads its own
// parts of them. The ranks' pieces come to the first rank by messages, and it writes; every rank reads for itself.
#pragma once

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/engine.hpp"

namespace gyr {

struct Saved {
  std::filesystem::path path;
  Index bytes = 0;                 // of tensors; known to the first rank
  std::vector<std::string> notes;  // older checkpoints that could not be removed; known to the first rank
};

// Writes FOLDER/step_N.h5 for N = header.step, then removes all but the last `keep` of them up to this step (0: none). Collective over
// the engine's grid; an error on the first rank (Exit::io, disk full) is thrown by all, and what was committed before stays as it was.
// The first rank needs memory for about 64 MiB of a tensor.
template <class T>
Saved save_checkpoint(const std::filesystem::path& folder, CheckpointHeader header, Engine<T>&, int keep = 0);

enum class LoadWhat { weights, everything };

// Fills the engine's weights, and with `everything` its moments, from a checkpoint of the same model in any precision. With `weights`
// the moments start at zero. Masters, and weights stored in another precision, come from the checkpoint's masters where it has them.
// Collective over the engine's grid; an error on one rank is thrown by all. Exit::config naming the first tensor where the file holds
// another model, Exit::data naming the tensor where its content is damaged.
template <class T>
CheckpointHeader load_checkpoint(const std::filesystem::path& file, Engine<T>&, LoadWhat);

// The weights alone, of a checkpoint or of a folder of Hugging Face's (see open_weights), with an optimizer that has seen nothing, or into a
// stage that has none. Collective over the grid; errors as above.
template <class T>
void load_weights(const std::filesystem::path&, Engine<T>&);
template <class T>
void load_weights(const std::filesystem::path&, Grid&, Stage<T>&);

}  // namespace gyr
