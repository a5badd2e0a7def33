// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/device_limit.hpp"

#include "src/engine/config/activation_choice.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr {

namespace {

double mebi(Index bytes) { return double(bytes) / (1 << 20); }

}  // namespace

void check_device_limit(const RunConfig& run, const EngineConfig& config, const Layout& layout, int position, const Capacity& trained,
                        const Capacity& all) {
  if (run.device_bytes == 0 || all.total() <= run.device_bytes) return;
  const Index further = all.total() - trained.total();
  std::string fitting;
  EngineConfig other = config;
  for (const ActivationChoice& choice : activation_choices(run.offload)) {
    other.recompute = choice.recompute, other.offload = choice.offload;
    const Index bytes = predicted_capacity(other, layout, position).total() + further;
    if (bytes <= run.device_bytes) fitting += fmt::format("{}{} {:.1f}", fitting.empty() ? "" : ", ", choice.name, mebi(bytes));
  }
  fail(Exit::config,
       "rank {} needs {:.1f} MiB of device memory, but memory.device_bytes = {} allows {:.1f} MiB. {}; use a smaller micro-batch, "
       "shorter sequences or more ranks",
       position, mebi(all.total()), run.device_bytes, mebi(run.device_bytes),
       fitting.empty() ? "No setting of activation.* is enough" : "These settings of activation.* fit (MiB): " + fitting);
}

}  // namespace gyr
