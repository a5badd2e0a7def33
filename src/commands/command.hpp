// SPDX-License-Identifier: BSD-3-Clause
// One add_* function per command. It adds the command with its options to the command line, and stores the action to
// run if the user chose it.
#pragma once

#include <array>
#include <functional>

#include "src/commands/command_line.hpp"

namespace gyr {

// Returns the exit code of the process. The chosen command stores its action here while the command line is parsed.
using Action = std::function<int()>;

void add_train(Command&, Action&);
void add_run(Command&, Action&);
void add_ps(Command&, Action&);
void add_plan(Command&, Action&);
void add_probe(Command&, Action&);
void add_profile(Command&, Action&);
void add_selftest(Command&, Action&);
void add_verify(Command&, Action&);
void add_eval(Command&, Action&);
void add_generate(Command&, Action&);
void add_rollout(Command&, Action&);
void add_tokenizer(Command&, Action&);
void add_data(Command&, Action&);
void add_retro(Command&, Action&);
void add_info(Command&, Action&);
void add_diff(Command&, Action&);
void add_import_hf(Command&, Action&);
void add_export_hf(Command&, Action&);
void add_export_gguf(Command&, Action&);
void add_reshard(Command&, Action&);
void add_trace(Command&, Action&);
void add_report(Command&, Action&);
void add_help(Command&, Action&);
void add_keys(Command&, Action&);
void add_version(Command&, Action&);
void add_manual(Command&, Action&);

// Commands in the order in which --help lists them.
inline constexpr std::array all_commands{add_train,  add_run,  add_ps,        add_plan,      add_probe,       add_profile, add_selftest,
                                         add_verify, add_eval, add_generate,  add_rollout,   add_tokenizer,   add_data,    add_retro,
                                         add_info,   add_diff, add_import_hf, add_export_hf, add_export_gguf, add_reshard, add_trace,
                                         add_report, add_help, add_keys,      add_version,   add_manual};

}  // namespace gyr
