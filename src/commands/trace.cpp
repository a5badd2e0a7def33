// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon trace show: what the ranks of a run did in the steps that trace.on has written.
#include <cstdio>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/trace/trace_summary.hpp"

namespace gyr {

void add_trace(Command& app, Action& action) {
  auto from = std::make_shared<std::string>();
  Command* trace = app.add_command("trace", "Look at what ranks did when (trace.on of train writes it)");
  trace->require_command();
  Command* show =
      trace->add_command("show", "Busy, waiting and hidden time of every rank, and which rank is slow; the files themselves open in ui.perfetto.dev");
  show->add_option("file", *from, "A file OUTPUT/trace/step_N.json, the folder of such files, or OUTPUT itself")->required();
  show->callback([from, &action] { action = [from] { return guarded([&] { std::printf("%s", trace_report(read_traces(*from)).c_str()); }); }; });
}

}  // namespace gyr
