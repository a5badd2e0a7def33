// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/status.json: how a run ended, as reported by the run itself. Launchers may change exit codes; this file keeps
// the original one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

struct Outcome {
  std::string state;      // running | done | stopped | hung | failed
  int code = 0;           // exit code of the run (kernels/base/error.hpp)
  std::int64_t step = 0;  // step at which the run ended
  int rank = -1;          // rank at fault, -1: none
  std::string message;    // reason of the end, in one line
};

std::filesystem::path status_path(const std::filesystem::path& output);
// Writes the file atomically, and at the end of a run also appends the outcome to its metrics. Failures are ignored,
// because the exit code carries the same information.
void write_outcome(const std::filesystem::path& output, const Outcome&) noexcept;
// nullopt if there is no file or it cannot be parsed.
std::optional<Outcome> read_outcome(const std::filesystem::path& output);
// Text of the file, "" if there is none. Each write changes it, because it contains the time.
std::string outcome_text(const std::filesystem::path& output);

}  // namespace gyr
