// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon COMMAND ...: reads the command line and runs one command.
#include <cstdio>

#include "kernels/heap.hpp"
#include "src/commands/command.hpp"
#include "src/deck/nearest.hpp"
#include "src/report/summary.hpp"
#include "src/runtime.hpp"

namespace {

// What was wrong with the command line, as one sentence.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> left = app.remaining();  // CLI11 misses a command before it minds a word that is none
  if (!app.get_subcommands().empty() || left.empty()) return error.what();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string near = gyr::nearest(left.front(), names);
  return fmt::format("there is no command `{}`{}", left.front(), near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gyr;
  keep_freed_blocks();
  CLI::App app("Gyrfalcon trains hybrid attention + state-space language models on an MPI grid.", "gyrfalcon");
  Action action;
  app.set_version_flag("--version", [] { return banner(version(), build_facts()); }, "Version, compiler and libraries");
  app.require_subcommand(1);
  app.footer(exit_codes());
  add_train(app, action);
  add_run(app, action);
  add_ps(app, action);
  add_plan(app, action);
  add_eval(app, action);
  add_generate(app, action);
  add_tokenizer(app, action);
  add_data(app, action);
  add_info(app, action);
  add_diff(app, action);
  add_import_hf(app, action);
  add_export_hf(app, action);
  add_reshard(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    // Every rank has the same command line: one of them says what is wrong with it.
    return run_on_all_ranks([&](Runtime&) { fail(Exit::usage, "{} (see gyrfalcon --help)", complaint(app, error)); }, false);
  }
  return action();
}
