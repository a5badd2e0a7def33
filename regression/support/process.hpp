// SPDX-License-Identifier: BSD-3-Clause
// Runs the program as users do, as a separate process, directly or under mpiexec, with a time limit. This code never
// initializes MPI, because an MPI rank cannot launch other ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/sanitizer.hpp"

namespace gyr::testing {

// Factor by which programs with sanitizers may be slower.
inline constexpr int slowness = address_sanitizer ? 6 : 1;

using Words = std::vector<std::string>;

struct Options {
  int ranks = 0;                             // number of ranks; 0: without a launcher
  std::map<std::string, std::string> env{};  // added to the test's own environment, from which variables of an MPI launcher are removed
  std::string input{};                       // standard input
  double limit = 120 * slowness;             // seconds until the process is killed and the test fails
  long file_limit = -1;                      // maximum file size in bytes (RLIMIT_FSIZE); writes beyond it fail as on a full disk
  std::function<bool()> kill_when{};         // called every millisecond; true: send SIGKILL to all its processes
  std::function<void(int pid, const std::filesystem::path& out)> meanwhile{};  // called every millisecond; out: file with its standard output so far
};

struct Result {
  int code = -1;  // exit code; 128 + signal number if a signal ended the process
  std::string out, err;
  double seconds = 0;      // wall time
  double cpu_seconds = 0;  // processor time of the process and of the children that it has waited for
  long peak_kib = 0;       // largest resident set of one process
  bool killed = false;     // by kill_when
};

// Exit code and output of a process, for failure messages.
inline std::string output_of(const Result& r) { return "exit code " + std::to_string(r.code) + "\n" + r.out + r.err; }

// Runs any program; the first word is its path. Returns when the process and all its descendants have ended.
Result execute(const Words& command, const Options& options = {});
// Path of the program under test: the one built with the tests, or GYRFALCON_BINARY of the environment.
std::string program();
// Command that launches ranks, to be followed by -n RANKS PROGRAM.
Words launcher();
// Runs the program with these arguments.
Result run(const Words& arguments, const Options& options = {});

std::vector<std::string> lines_of(const std::string& text);
std::string last_line_of(const std::string& text);

}  // namespace gyr::testing
