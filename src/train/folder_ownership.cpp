// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/folder_ownership.hpp"

#include <cstdio>

#include "kernels/base/printable.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/train/run_paths.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

namespace {

void notify(const std::string& line) {
  std::printf("%s\n", printable_line(line).c_str());
  std::fflush(stdout);
}

void take(RunFolder& folder, const RunConfig& run, const TrainOptions& options) {
  folder.take(run.output, {options.take_over, run.watch.lock_patience, notify}, options.supervisor);
}

void clear(const RunConfig& run) {
  std::error_code error;
  remove_unfinished(checkpoints_of(run));
  remove_unfinished(dumps_of(run));
  const std::filesystem::path heartbeat = heartbeat_path(run.output);
  std::filesystem::remove(heartbeat, error);  // left by an earlier attempt, which may have had more ranks
  require(!error, Exit::io, "{}: cannot be removed: {}", heartbeat.string(), error.message());
}

RunIdentity identity(const RunConfig& run, const TrainOptions& options) {
  const auto steps = committed_steps(checkpoints_of(run));
  require(options.resume || options.start_over || steps.empty(), Exit::usage,
          "{}: already has checkpoints (latest: step {}); continue with --resume, start over with --anew (moves them to {}/set_aside), or choose "
          "another output.folder",
          checkpoints_of(run).string(), steps.empty() ? 0 : steps.back(), run.output);
  const auto known = options.resume ? identity_in(run.output) : std::nullopt;
  return known ? *known : RunIdentity::drawn();
}

}  // namespace

RunIdentity take_folder(RunFolder& folder, const RunConfig& run, const TrainOptions& options) {
  take(folder, run, options);
  return identity(run, options);
}

void begin_in_folder(RunFolder& folder, const RunConfig& run, const TrainOptions& options) {
  if (!folder.note().empty()) notify(folder.note());  // a start that is refused takes nothing over
  clear(run);
  if (options.start_over)
    if (const auto aside = set_aside(run.output))
      notify(fmt::format("moved the files of the earlier run from {} to {}", run.output, aside->string()));
  folder.begin();
}

}  // namespace gyr
