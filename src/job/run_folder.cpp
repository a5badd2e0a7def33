// SPDX-License-Identifier: BSD-3-Clause
#include "src/job/run_folder.hpp"

#include "kernels/base/error.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

void RunFolder::take(const std::filesystem::path& output, const LockSettings& settings, const std::string& supervisor) {
  std::error_code error;
  std::filesystem::create_directories(output, error);
  require(!error, Exit::io, "{}: cannot be created: {}; choose another output.folder", output.string(), error.message());
  lock_.emplace(output, settings);
  const std::filesystem::path other = output / RunLock::of_supervisor;
  if (std::filesystem::exists(other, error) && (supervisor.empty() || RunLock::token_in(other) != supervisor)) try {
      const RunLock other_supervisor(output, settings, RunLock::of_supervisor);
    } catch (...) {
      lock_.reset();
      throw;
    }
  output_ = output;
}

void RunFolder::begin() {
  require_held();
  begun_ = true;
  write_status("running", int(Exit::ok), "");
  const auto written = read_outcome(output_);
  require(written && written->state == "running", Exit::io, "{}: cannot be written; remove what is in its place, or choose another output.folder",
          status_path(output_).string());
}

void RunFolder::require_held() {
  if (lock_) lock_->require_held();
}

void RunFolder::write_status(const std::string& state, int code, const std::string& message) {
  try {
    require_held();
  } catch (const Error&) {
    return;
  }
  if (!lock_ || !begun_) return;
  const auto beats = state == "running" ? std::vector<Heartbeat>() : read_heartbeats(heartbeat_path(output_));
  write_outcome(output_, {state, code, beats.empty() ? 0 : beats.front().step, -1, message});
}

}  // namespace gyr
