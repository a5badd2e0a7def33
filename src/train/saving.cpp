// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/saving.hpp"

#include <chrono>
#include <thread>

#include "src/parallel/collective_check.hpp"

namespace gyr {

void Saving::save(const CheckpointHeader& at) {
  parts_.watch.progress_record().phase("save");
  require_folder();  // a save would create a deleted folder again
  if (step_actions_.checks_replicas_to_save(at.step)) parts_.engine.check_replicas(at.step);
  take([&] { return saver_.save(at); });
  last_ = at.step;
}

void Saving::poll() {
  take([&] { return saver_.poll(); });
}

void Saving::finish() {
  parts_.watch.progress_record().phase("save");
  take([&] { return saver_.finish(); });
}

void Saving::require_folder() const {
  collective_check(parts_.grid.world(), [&] { parts_.folder.require_held(); });
}

// A save also fails if the output folder is deleted meanwhile. Then the lost folder is reported, not the file that the
// save needed first. Deleting a folder takes a moment, and its lock may be deleted last.
void Saving::require_folder_after_failure() const {
  collective_check(parts_.grid.world(), [&] {
    for (int i = 0; parts_.lead() && i < 10; ++i) {
      parts_.folder.require_held();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}

// Runs a part of a save; once the save is committed, logs it.
template <class Save>
void Saving::take(Save&& save) {
  std::optional<Saved> saved;
  try {
    auto t = parts_.timers.scope("checkpoint");
    saved = save();
  } catch (const Error& error) {  // the error is the same on every rank
    if (error.code == Exit::io || error.code == Exit::missing) require_folder_after_failure();
    throw;
  }
  if (!saved) return;
  longest_ = std::max(longest_.value_or(0), saved->write_seconds + saved->blocked_seconds);
  if (log_) log_->saved(*saved);
}

}  // namespace gyr
