// SPDX-License-Identifier: BSD-3-Clause
// Runs the program as its users do: as a process of its own, alone or under mpiexec, with a time limit. Nothing here starts MPI, because
// a process that is itself a rank cannot launch others.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/sanitizer.hpp"

namespace gyr::testing {

// By how much programs with sanitizers may take longer.
inline constexpr int slowness = address_sanitizer ? 6 : 1;

using Words = std::vector<std::string>;

struct Options {
  int ranks = 0;                             // 0: without a launcher
  std::map<std::string, std::string> env{};  // on top of the test's own, without what a launcher left there
  std::string input{};                       // standard input
  double limit = 120 * slowness;             // seconds until everything is killed and the test fails
  long file_limit = -1;                      // bytes a file may have (RLIMIT_FSIZE), writes beyond fail as on a full disk
  std::function<bool()> kill_when{};         // asked every millisecond; true: SIGKILL to all its processes
  std::function<void(int pid, const std::filesystem::path& out)> meanwhile{};  // called every millisecond; out: what it has printed
};

struct Result {
  int code = -1;  // exit code; 128 + signal where one ended it
  std::string out, err;
  double seconds = 0;      // on the clock
  double cpu_seconds = 0;  // of the process and those it has waited for
  long peak_kib = 0;       // largest resident set of one process
  bool killed = false;     // by kill_when
};

// What a message about a failure shows of it.
inline std::string told(const Result& r) { return "exit code " + std::to_string(r.code) + "\n" + r.out + r.err; }

// Runs any program, its first word. Returns when it and all its descendants are gone.
Result execute(const Words& command, const Options& options = {});
// The program under test: the one built beside the tests, or what GYRFALCON_BINARY names.
std::string program();
// What starts ranks, to be followed by -n RANKS PROGRAM.
Words launcher();
// Runs the program with these arguments.
Result run(const Words& arguments, const Options& options = {});

std::vector<std::string> lines_of(const std::string& text);
std::string last_line_of(const std::string& text);

}  // namespace gyr::testing
