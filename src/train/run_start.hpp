// SPDX-License-Identifier: BSD-3-Clause
// How a run comes by its state, when it starts and where it goes back. The header of the checkpoint that would be saved then says how far the
// run has come: with weights and optimizer state it determines all further steps.
#pragma once

#include <limits>

#include "src/checkpoint/run_identity.hpp"
#include "src/config/deck_changes.hpp"
#include "src/train/run_parts.hpp"

namespace gyr {

class RunStart {
 public:
  // `identity`: complete on the first rank, empty on the others, also in the headers.
  RunStart(const RunParts& parts, const RunIdentity& identity) : parts_(parts), identity_(identity) {}

  // Weights drawn, or those of a model that exists; the optimizer has seen nothing.
  CheckpointHeader begin();

  // Changes of the deck since the checkpoint: refused where the model would compute something else, told, or not looked for.
  enum class Changes { weighed, reported, known };
  // From the newest checkpoint of this run, below step `before`, that is whole to its last tensor; damaged ones are named and passed over.
  // Begins where there are no checkpoints; Exit::data where there are, and none will do.
  CheckpointHeader resume(Changes, std::int64_t before = std::numeric_limits<std::int64_t>::max());

 private:
  CheckpointHeader header() const;
  CheckpointHeader loaded(const std::filesystem::path& checkpoint);
  void require_same_model(const std::vector<DeckChange>&, const std::filesystem::path& checkpoint);
  void say(const std::string& lines) const;

  RunParts parts_;
  RunIdentity identity_;
};

}  // namespace gyr
