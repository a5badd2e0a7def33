// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/cluster_report.hpp"

#include "modules/flops.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"
#include "src/planner/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

// Whether the devices are there and large enough.
std::string room_text(const Layout& layout, const Cluster& cluster, Index fullest) {
  const Index devices = cluster.devices();
  require(cluster.nodes == 0 || layout.ranks() <= devices, Exit::config,
          "{} ranks on the {} x {} devices of '{}'; take fewer, or another cluster.nodes", layout.ranks(), cluster.nodes, cluster.per_node,
          cluster.name);
  const double part = double(fullest) / cluster.device.memory;
  return fmt::format("{:.1f} of {:.1f} GiB on the fullest rank{}", double(fullest) / double(1 << 30), cluster.device.memory / double(1 << 30),
                     part > 1 ? ": IT DOES NOT FIT" : "");
}

std::string part_text(double seconds, const Prediction& p) { return fmt::format("{:.4g} s, {:.1f} %", seconds, 100 * seconds / p.seconds); }

std::string training_text(double tokens, double rate, const Layout& layout, const Cluster& cluster) {
  const double seconds = tokens / rate;
  std::string text = fmt::format("{:.4g} days for {:.4g} tokens, at such a step from the first to the last", seconds / 86400, tokens);
  if (cluster.device.watts > 0)
    text +=
        fmt::format("; {:.4g} MWh in the devices at {:.0f} W each", seconds * cluster.device.watts * layout.ranks() / 3.6e9, cluster.device.watts);
  return text;
}

}  // namespace

std::string cluster_report(const RunConfig& run, const Layout& layout, const Machine& machine, double tokens, Index fullest) {
  const Cluster& cluster = machine.cluster;
  const EngineConfig config = engine_config(run, layout);
  const StagePlans plans(config, layout);
  const Prediction p = predict(plans, config, layout, cluster, machine.profile ? &*machine.profile : nullptr);
  const double of_step = double(run.largest_batch() * run.train.seq_length), rate = of_step / p.seconds;
  const double flops = training_flops(run.model, run.train.seq_length, run.optimizer.trained()) * of_step;
  const double peak = cluster.device.product_rate(config.precision);
  if (tokens <= 0) tokens = of_step * double(run.train.steps);

  Table table({{""}, {"", false, 90}});
  table.row({"memory", room_text(layout, cluster, fullest)});
  table.row({"a step", fmt::format("{:.4g} s; {:.6g} tokens/s, {:.4g} a device", p.seconds, rate, rate / layout.ranks())});
  table.row({"MFU", fmt::format("{:.1f} % of {:.4g} TFLOP/s (causal half of attention, SSM as a plain recurrence, nothing recomputed)",
                                100 * flops / (p.seconds * layout.ranks() * peak), 1e-12 * peak)});
  table.row({"computes", part_text(p.compute, p) + fmt::format(" (stage {}, which computes longest)", p.longest)});
  table.row({"layers' transfers", part_text(p.transfers, p) + " that it waits for, among ranks that share layers or sequences"});
  table.row({"replicas", part_text(p.buckets, p) + " that sums of gradients and gathers of weights are not hidden"});
  table.row({"bubble", part_text(p.rest + p.messages, p) + " that it waits for other stages and their messages"});
  table.row({"training", training_text(tokens, rate, layout, cluster)});
  return fmt::format("\nOn {} ({}), predicted: the programs of all stages, timed task by task\n", cluster.name,
                     machine.profile ? "kernels as they were measured, links by its file" : "kernels and links by the constants of its file") +
         table.str(false) + "Not in it: reading of data, saving, what other jobs do to the network, and experts that are chosen unevenly.\n";
}

}  // namespace gyr
