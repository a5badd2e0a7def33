// SPDX-License-Identifier: BSD-3-Clause
// One function per command of the program: adds its options to the command line and runs when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace gyr {

// Returns the process' exit code. Every command stores the one it wants to run here while options are parsed.
using Action = std::function<int()>;

void add_train(CLI::App&, Action&);
void add_run(CLI::App&, Action&);
void add_ps(CLI::App&, Action&);
void add_plan(CLI::App&, Action&);
void add_eval(CLI::App&, Action&);
void add_generate(CLI::App&, Action&);
void add_tokenizer(CLI::App&, Action&);
void add_data(CLI::App&, Action&);
void add_info(CLI::App&, Action&);
void add_diff(CLI::App&, Action&);
void add_import_hf(CLI::App&, Action&);
void add_export_hf(CLI::App&, Action&);
void add_reshard(CLI::App&, Action&);

}  // namespace gyr
