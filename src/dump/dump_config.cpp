// SPDX-License-Identifier: BSD-3-Clause
#include "src/dump/dump_config.hpp"

#include <algorithm>

#include "src/base/limits.hpp"

namespace gyr {

DumpConfig read_dump(Section& s) {
  DumpConfig c;
  c.steps = s.get("steps", std::vector<Index>{},
                  "steps whose tensors are written to OUTPUT/dumps/step_N, for gyrfalcon info and diff, h5py and similar tools")
                .positive()
                .at_most(most_steps)
                .value();
  const std::vector<std::string> roots{"/activations/", "/gradients/", "/model/"};
  c.what = s.get("what", std::vector<std::string>{"/activations/*", "/gradients/*", "/model/*"},
                 "patterns of tensor paths, as /gradients/layers/0/*; /model/ has the weights")
               .value();
  for (const std::string& pattern : c.what)
    require(std::any_of(roots.begin(), roots.end(), [&](const std::string& root) { return pattern.starts_with(root); }), Exit::config,
            "dump.what: '{}' must begin with /activations/, /gradients/ or /model/", pattern);
  require(c.steps.empty() || !c.what.empty(), Exit::config, "dump.what is empty: list the tensors that dump.steps writes, as [\"/gradients/*\"]");
  return c;
}

}  // namespace gyr
