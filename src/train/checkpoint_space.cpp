// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/checkpoint_space.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "kernels/base/printable.hpp"
#include "src/base/file_system.hpp"
#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/transaction.hpp"
#include "src/config/placed_models.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

Index saves_after(const RunConfig& run, Index done) {
  const Index steps = run.train.steps, every = run.checkpoint.every;
  if (done >= steps) return 0;
  const Index regular = every > 0 ? steps / every - done / every : 0;
  const bool last_is_regular = every > 0 && steps % every == 0;
  const Index improved = run.checkpoint.keep_best ? steps / run.train.eval_every - done / run.train.eval_every : 0;
  return regular + improved + (run.checkpoint.at_end && !last_is_regular ? 1 : 0);
}

Index most_new_checkpoints(const RunConfig& run, Index done, const std::vector<std::int64_t>& present) {
  const CheckpointConfig& c = run.checkpoint;
  Index kept_forever = 0;
  if (c.every > 0 && c.keep_every > 0) {
    const Index both = std::lcm(c.every, c.keep_every);
    kept_forever = std::max<Index>(0, run.train.steps / both - done / both);
  }
  const auto removable =
      std::count_if(present.begin(), present.end(), [&](std::int64_t step) { return c.keep_every == 0 || step % c.keep_every != 0; });
  return std::min(saves_after(run, done), std::max<Index>(1, c.keep + 1 - removable) + kept_forever + c.keep_best);
}

std::string check_checkpoint_space(const RunConfig& run, Index bytes, Index done, const std::vector<std::int64_t>& present) {
  const Index count = most_new_checkpoints(run, done, present);
  std::error_code error;
  const std::filesystem::path checkpoints = checkpoints_of(run);
  const std::filesystem::path folder = std::filesystem::exists(checkpoints, error) ? checkpoints : std::filesystem::path(run.output);
  const auto free = free_bytes(folder);
  if (count == 0 || !free) return "";
  require(*free >= double(bytes), Exit::io,
          "{}: a checkpoint of this run needs {}, but only {} is free; free space or choose another output.folder. Nothing has been trained{}",
          folder.string(), metric_text(double(bytes), "B"), metric_text(*free, "B"), done > 0 ? fmt::format(" since step {}", done) : "");
  if (*free >= double(count) * double(bytes)) return "";
  return fmt::format(
      "warning: {}: {} checkpoints of {} each will exist at once (checkpoint.keep = {}), but only {} is free, enough for {}; free space, lower "
      "checkpoint.keep or checkpoint.keep_every, or choose another output.folder",
      folder.string(), count, metric_text(double(bytes), "B"), run.checkpoint.keep, metric_text(*free, "B"), Index(*free / double(bytes)));
}

void report_checkpoint_space(const RunConfig& run, const std::string& deck, const Layout& layout, bool start_over, Index done) {
  Index bytes = checkpoint_bytes(run.model, precision_of(run.train.precision), layout, run.optimizer);
  for (const PlacedModel& m : placed_models(run, layout.ranks()))
    if (m.use.trained) bytes += checkpoint_bytes(m.run.model, precision_of(m.run.train.precision), m.layout, m.run.optimizer);
  const auto present = start_over ? std::vector<std::int64_t>() : committed_steps(checkpoints_of(run));
  const std::string warning = check_checkpoint_space(run, disk_bytes(bytes, Index(deck.size())), done, present);
  if (!warning.empty()) std::printf("%s\n", printable_line(warning).c_str());
}

}  // namespace gyr
