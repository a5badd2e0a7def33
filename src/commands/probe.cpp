// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon probe: describes the machine that it runs on, for plan --cluster.
#include <cstdio>
#include <memory>

#include "src/base/output_file.hpp"
#include "src/commands/command.hpp"
#include "src/commands/runtime.hpp"
#include "src/planner/machine/probe.hpp"
#include "src/report/summary.hpp"

namespace gyr {

namespace {

int probe(const std::string& file) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const Probe measured = probe_machine(runtime.world());
        if (runtime.rank() != 0) return;
        const std::string text = to_yaml(measured.cluster, measured.comment);
        std::printf("%s", text.c_str());
        if (file.empty()) return;
        OutputFile out(file);
        out.append(text);
        out.commit();
      },
      false);
}

}  // namespace

void add_probe(Command& app, Action& action) {
  auto file = std::make_shared<std::string>();
  Command* c = app.add_command("probe", "Measure this machine and write the description of a cluster that plan --cluster reads (under mpiexec)");
  c->add_option("--out", *file, "File to write; without it the description is only printed");
  c->footer([] {
    return "\nEvery rank is a device of the description, and all measure at once, as they do in a step: start as many on a node as a run has there.\n"
           "The constants under `fit` are for machines of which more is known than this: 1 and 0 leave what was measured as it is.\n\nKeys of such a "
           "file:\n\n" +
           cluster_keys() + "\n" + exit_codes();
  });
  c->callback([file, &action] { action = [file] { return probe(*file); }; });
}

}  // namespace gyr
