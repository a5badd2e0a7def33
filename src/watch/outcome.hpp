// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/status.json: how a run ended, in its own words. Launchers change exit codes on their way; this file does not.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

struct Outcome {
  std::string state;      // running | done | stopped | hung | failed
  int code = 0;           // exit code (kernels/base/error.hpp)
  std::int64_t step = 0;  // where it was
  int rank = -1;          // that is to blame, -1: none
  std::string message;    // one line
};

std::filesystem::path status_path(const std::filesystem::path& output);
// Written whole or not at all, and at the end of a run also added to its metrics. Failures are ignored: the exit code says the same.
void write_outcome(const std::filesystem::path& output, const Outcome&) noexcept;
// Nothing where there is none or it cannot be understood.
std::optional<Outcome> read_outcome(const std::filesystem::path& output);

}  // namespace gyr
