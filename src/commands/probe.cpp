// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon probe: measures this machine and writes a cluster description for plan --cluster.
#include <cstdio>
#include <memory>

#include "src/base/output_file.hpp"
#include "src/commands/command.hpp"
#include "src/commands/runtime.hpp"
#include "src/planner/machine/probe.hpp"

namespace gyr {

namespace {

struct ProbeArguments {
  std::string out;
  bool overwrite = false;
};

int probe(const ProbeArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        if (runtime.rank() == 0 && !a.overwrite) check_new(a.out);
        const Probe measured = probe_machine(runtime.world());
        if (runtime.rank() != 0) return;
        const std::string text = to_yaml(measured.cluster, measured.comment);
        std::printf("%s", text.c_str());
        if (a.out.empty()) return;
        OutputFile out(a.out);
        out.append(text);
        out.commit();
      },
      LastLine::never);
}

}  // namespace

void add_probe(Command& app, Action& action) {
  auto a = std::make_shared<ProbeArguments>();
  Command* c = app.add_command("probe", "Measure this machine under mpiexec and write a cluster description for plan --cluster");
  c->add_option("--out", a->out, "File to write; default: only print the description");
  c->add_flag("--overwrite", a->overwrite, "Replace an existing file");
  c->footer([] {
    return "\nEvery rank is one device of the description. All ranks measure at the same time: start as many on a node as a run has there. The "
           "constants under `fit` correct the measurements for effects that probe does not measure; 1 and 0 leave them unchanged.\n\nKeys of a "
           "cluster description:\n\n" +
           cluster_keys();
  });
  c->callback([a, &action] { action = [a] { return probe(*a); }; });
}

}  // namespace gyr
