// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon trace show: summary of the timeline traces that trace.on records.
#include <cstdio>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/trace/trace_summary.hpp"

namespace gyr {

void add_trace(Command& app, Action& action) {
  auto from = std::make_shared<std::string>();
  Command* trace = app.add_command("trace", "Inspect timeline traces of a run (recorded by train with trace.on)");
  trace->require_command();
  Command* show =
      trace->add_command("show", "Print busy, waiting and overlapped time of every rank, and stragglers; the trace files open in ui.perfetto.dev");
  show->add_option("file", *from, "Trace file OUTPUT/trace/step_N.json, the folder of such files, or OUTPUT")->required();
  show->callback([from, &action] { action = [from] { return guarded([&] { std::printf("%s", trace_report(read_traces(*from)).c_str()); }); }; });
}

}  // namespace gyr
