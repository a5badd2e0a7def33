// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/saving.hpp"

#include <chrono>
#include <limits>
#include <thread>

#include "src/parallel/collective_check.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

// The checkpoint that an earlier attempt recorded as the best one. Collective.
std::optional<BestCheckpoint> recorded_best(const RunParts& parts) {
  double known[] = {-1, 0};
  collective_check(parts.grid.world(), [&] {
    if (!parts.lead()) return;
    if (const auto best = best_checkpoint(checkpoints_of(parts.run))) known[0] = double(best->step), known[1] = best->loss;
  });
  const std::vector<double> all = parts.grid.world().gather(known);
  if (all[0] < 0) return {};
  return BestCheckpoint{Index(all[0]), all[1]};
}

}  // namespace

Saving::Saving(const RunParts& parts, StateSaver& saver, RunLog* log, Index last)
    : parts_(parts), step_actions_(parts.run), saver_(saver), log_(log), last_(last) {
  if (parts.run.checkpoint.keep_best) best_ = recorded_best(parts);
  lowest_ = best_ ? best_->loss : std::numeric_limits<double>::infinity();
}

bool Saving::validated(Index step, double loss) {
  if (!parts_.run.checkpoint.keep_best || loss >= lowest_) return false;
  if (step != last_) {
    lowest_ = improvements_[step] = loss;
    return true;
  }
  // A resumed run repeats a validation that was stopped. The checkpoint of a branch's first step is in another folder.
  const bool saved = parts_.grid.world().max(parts_.lead() && std::filesystem::exists(checkpoint_path(checkpoints_of(parts_.run), step))) > 0;
  if (saved) lowest_ = loss, record({step, loss});
  return false;
}

// Records the best checkpoint, and removes the one that was the best before unless another rule keeps it.
void Saving::record(const BestCheckpoint& best) {
  best_ = best;
  collective_check(parts_.grid.world(), [&] {
    if (!parts_.lead()) return;
    const CheckpointConfig& c = parts_.run.checkpoint;
    const std::filesystem::path folder = checkpoints_of(parts_.run);
    write_best(folder, best);
    if (run_.empty()) return;  // the next save removes it
    for (const std::string& note : prune(folder, best.step, {int(c.keep), c.keep_every}, run_))
      if (log_) log_->print_line(note);
  });
}

void Saving::save(const CheckpointHeader& at) {
  parts_.watch.progress_record().phase("save");
  require_folder();  // a save would create a deleted folder again
  if (step_actions_.checks_replicas_to_save(at.step)) parts_.engine.check_replicas(at.step);
  run_ = at.run;
  take([&] {
    auto t = parts_.timers.scope("checkpoint");  // counts the saves: polls are no calls of their own
    return saver_.save(at);
  });
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
    saved = save();
  } catch (const Error& error) {  // the error is the same on every rank
    if (error.code == Exit::io || error.code == Exit::missing) require_folder_after_failure();
    throw;
  }
  if (!saved) return;
  longest_ = std::max(longest_.value_or(0), saved->write_seconds + saved->blocked_seconds);
  if (log_) log_->saved(*saved);
  const auto improvement = improvements_.find(saved->step);
  if (improvement == improvements_.end()) return;
  record({improvement->first, improvement->second});
  improvements_.erase(improvement);
}

}  // namespace gyr
