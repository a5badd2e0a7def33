// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon COMMAND ...: reads the command line and runs one command.
#include "kernels/base/heap.hpp"
#include "kernels/base/threads.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/runtime.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/summary.hpp"
#include "src/watch/stop.hpp"

int main(int argc, char** argv) {
  using namespace gyr;
  restore_hangup();
  ignore_file_size_signal();
  prepare_threads(argv);
  keep_freed_blocks();
  Command program("gyrfalcon", "Gyrfalcon trains hybrid attention + state-space language models on an MPI grid.");
  Action action;
  program.add_version([] { return banner(version(), build_facts()); });
  program.require_command();
  program.footer(exit_codes());
  for (const auto add : all_commands) add(program, action);
  try {
    if (!program.parse(argc, argv, option_advice)) return 0;
  } catch (const Error& error) {
    // Every rank has the same command line, so only one of them reports the error.
    return run_on_all_ranks([&](Runtime&) { fail(error.code, "{} (see {} --help)", error.what(), program.chosen()); }, LastLine::never);
  }
  return action();
}
