// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/exit_record.ATTEMPT.json: the first process of an attempt that ended without the run reporting a reason, and
// how it ended. The rank's watcher process writes it, before the launcher can notice the death and kill the other
// ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

struct ExitRecord {
  std::string host;  // host name of the process, as in heartbeats
  int pid = 0;
  int rank = -1;       // rank according to the launcher's environment variables; -1: unknown
  std::string signal;  // such as "SIGSEGV"; empty: the process exited with `code`
  int code = 0;
  double time = 0;  // time of the end, seconds since 1970

  bool operator==(const ExitRecord&) const = default;
};

std::filesystem::path exit_record_path(const std::filesystem::path& output, int attempt);
// File that ranks write. The supervisor gives it the name above when it has read it, so that a start that is refused leaves the
// record of an earlier run.
std::filesystem::path new_exit_record_path(const std::filesystem::path& output, int attempt);
// Writes the record unless the attempt has one already, and creates the folder if needed. Returns false if there is a
// record or it cannot be written.
bool write_exit_record(const std::filesystem::path& file, const ExitRecord&) noexcept;
// nullopt if there is none or it is incomplete.
std::optional<ExitRecord> read_exit_record(const std::filesystem::path& file);

// "was killed by SIGSEGV", "exited with code 3 without an error message"
std::string manner(const ExitRecord&);
std::string signal_name(int number);  // name of a signal, such as "SIGSEGV"

}  // namespace gyr
