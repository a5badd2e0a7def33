// SPDX-License-Identifier: BSD-3-Clause
// Initial state of a run, at its start and after a rollback. The returned checkpoint header says how far the run is:
// with weights and optimizer state it determines all further steps.
#pragma once

#include <limits>
#include <optional>

#include "src/checkpoint/run_identity.hpp"
#include "src/config/deck_changes.hpp"
#include "src/train/run_parts.hpp"

namespace gyr {

class RunStart {
 public:
  // `identity`: complete on the first rank; empty on the others, and so is the run id in their headers.
  RunStart(const RunParts& parts, const RunIdentity& identity) : parts_(parts), identity_(identity) {}

  // Treatment of deck changes since the checkpoint. The first value refuses changes that make the model compute something
  // else, the second only reports changes, the last does not look for them.
  enum class Changes { weighed, reported, known };

  // Refuses a start that begin() or resume() would refuse, as far as that is known without reading a tensor. Changes
  // nothing in the output folder.
  void check_begin() const;
  // Returns the step that the run continues from; 0: it starts from the beginning.
  Index check_resume(Changes);

  // New run: random weights, or those of an existing model (train.init_from), with a reset optimizer; or a branch of
  // another run (train.branch), which goes on where that checkpoint was saved.
  CheckpointHeader begin();
  // Resumes from the newest checkpoint of this run below step `before` that is intact up to its last tensor. Damaged
  // ones are reported and skipped. Starts a new run if there are no checkpoints; Exit::data if there are some and none
  // is usable.
  CheckpointHeader resume(Changes, std::int64_t before = std::numeric_limits<std::int64_t>::max());

 private:
  struct Candidate {
    std::filesystem::path checkpoint;
    std::int64_t step;
  };
  std::optional<Candidate> candidate(Changes, std::int64_t before);
  CheckpointHeader header() const;
  CheckpointHeader loaded(const std::filesystem::path& checkpoint, const char* how);
  void check_branch(const std::filesystem::path& from) const;
  void require_loadable(const std::filesystem::path& checkpoint, const std::vector<DeckChange>& changed) const;
  void compare_inputs(const CheckpointHeader& saved, Changes, const std::string& checkpoint) const;
  void pass_over(const Error&) const;
  void print_line(const std::string& lines) const;

  RunParts parts_;
  RunIdentity identity_;
  std::optional<Candidate> checked_;  // result of check_resume(), for resume()
};

}  // namespace gyr
