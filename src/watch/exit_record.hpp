// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/exit_record.ATTEMPT.json: which process of an attempt ended first without the run having said why, and how. Its keeper writes it, before
// the launcher can notice the death and end the others.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

struct ExitRecord {
  std::string host;  // as in heartbeats
  int pid = 0;
  int rank = -1;       // as the launcher has told the process, -1: not in a way that is known here
  std::string signal;  // "SIGSEGV"; empty: it left with `code`
  int code = 0;
  double time = 0;  // seconds since 1970

  bool operator==(const ExitRecord&) const = default;
};

std::filesystem::path exit_record_path(const std::filesystem::path& output, int attempt);
// The first of an attempt is the only one: false where there is one, or none can be written. Makes the folder where it is not there yet.
bool write_exit_record(const std::filesystem::path& file, const ExitRecord&) noexcept;
// Nothing where there is none, or not yet the whole of it.
std::optional<ExitRecord> read_exit_record(const std::filesystem::path& file);

// "was ended by SIGSEGV", "left with exit code 3 without a message"
std::string manner(const ExitRecord&);
std::string signal_name(int number);  // "SIGSEGV"

// This process' rank by the environment that Hydra, PMIx and Slurm make, -1: none of them has.
int rank_from_environment();

}  // namespace gyr
