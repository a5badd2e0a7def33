// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/cluster_report.hpp"

#include <map>

#include "modules/cost/flops.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"

namespace gyr {

namespace {

constexpr int most_blocks = 48;  // maximum rows of the traffic matrix, so that it stays readable

// True if the offloaded activations of every rank fit in the memory of its host.
bool offload_fits_hosts(const RunPlan& plan, const Cluster& cluster) {
  for (int position = 0; position < plan.layout.ranks(); ++position) {
    const Capacity& capacity = plan.of(position).capacity;
    if (double(capacity.host()) > cluster.island_of(plan.layout.rank_at(position)).host_memory_left(double(capacity.total()))) return false;
  }
  return true;
}

// Memory of the rank that fills its device most, relative to the device's size, and a warning if some rank does not
// fit.
std::string memory_text(const RunPlan& plan, const Cluster& cluster) {
  double part = 0, bytes = 0, memory = 0;
  for (int position = 0; position < plan.layout.ranks(); ++position) {
    const double has = cluster.island_of(plan.layout.rank_at(position)).device.memory, takes = double(plan.of(position).capacity.total());
    if (takes / has > part) part = takes / has, bytes = takes, memory = has;
  }
  const double gibi = double(1 << 30);
  return fmt::format("{:.1f} of {:.1f} GiB on the rank that fills its device most{}", bytes / gibi, memory / gibi,
                     part > 1                             ? ": IT DOES NOT FIT"
                     : !offload_fits_hosts(plan, cluster) ? "; OFFLOADED ACTIVATIONS DO NOT FIT THE HOST"
                                                          : "");
}

std::string part_text(double seconds, const Prediction& p) { return fmt::format("{:.4g} s, {:.1f} %", seconds, 100 * seconds / p.seconds); }

std::string training_text(double tokens, double rate, int ranks, const Cluster& cluster) {
  const double seconds = tokens / rate, watts = cluster.watts(ranks);
  std::string text = fmt::format("{:.4g} days for {:.4g} tokens, if every step takes this time", seconds / 86400, tokens);
  if (watts > 0) text += fmt::format("; {:.4g} MWh for the devices at {:.0f} W each", seconds * watts / 3.6e9, watts / ranks);
  return text;
}

// Bytes that cross slow links between islands in a step, by communicator.
std::string island_traffic_text(const LinkTraffic& traffic) {
  const double all = traffic.of(LinkClass::islands);
  std::map<std::string, double> bytes;
  for (const LinkTraffic::Line& line : traffic.lines)
    if (line.link == LinkClass::islands) bytes[line.communicator] += line.bytes;
  std::string text = fmt::format("{:.1f} MiB per step, {:.2g} % of all traffic", all / (1 << 20), 100 * all / traffic.all());
  for (const auto& [communicator, part] : bytes) text += fmt::format("; {} {:.3g} MiB", communicator, part / (1 << 20));
  return text;
}

}  // namespace

PredictedRun::PredictedRun(const RunPlan& plan, const Machine& machine)
    : plans(plan.config, plan.layout),
      step(timeline_of(plans, plan.config, plan.layout, machine.cluster, machine.profile ? &*machine.profile : nullptr)),
      traffic(link_traffic(plan.ranks, plan.config, plan.layout, machine.cluster, most_blocks)) {}

double utilisation(const RunConfig& run, int ranks, const Cluster& cluster, double seconds) {
  const double flops = training_flops(run.model, run.lengths(), run.optimizer.trained()) * double(run.largest_batch() * run.lengths().text);
  return flops / (seconds * cluster.peak(ranks, precision_of(run.train.precision)));
}

Facts prediction_facts(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine, double tokens) {
  const Cluster& cluster = machine.cluster;
  const auto& [run, layout, config, ranks] = plan;
  const Prediction& p = predicted.longest();
  const double of_step = double(run.largest_batch() * run.train.seq_length), rate = of_step / p.seconds;
  const double peak = cluster.peak(layout.ranks(), config.precision);
  if (tokens <= 0) tokens = of_step * double(run.train.steps);
  Facts facts{
      {"memory", memory_text(plan, cluster)},
      {"step", fmt::format("{:.4g} s; {:.6g} tokens/s, {:.4g} tokens/s per device", p.seconds, rate, rate / layout.ranks())},
      {"MFU",
       fmt::format("{:.1f} % of {:.4g} TFLOP/s per device (counts the causal half of attention, the SSM as a plain recurrence, no recomputation)",
                   100 * utilisation(run, layout.ranks(), cluster, p.seconds), 1e-12 * peak / layout.ranks())},
      {"compute", part_text(p.compute, p) + fmt::format(" (stage {}, which computes longest)", p.longest)},
      {"model-parallel comm", part_text(p.transfers, p) + " of waiting for communication among tensor-, context- and expert-parallel ranks"},
      {"host copies", part_text(p.copies, p) + " of waiting for copies to and from host memory"},
      {"data-parallel comm", part_text(p.buckets, p) + " of gradient reductions and weight all-gathers that computation does not hide"},
      {"bubble", part_text(bubble(p), p) + " of waiting for other pipeline stages and their messages"},
      {"training", training_text(tokens, rate, layout.ranks(), cluster)}};
  if (predicted.traffic.of(LinkClass::islands) > 0) facts.emplace_back("between islands", island_traffic_text(predicted.traffic));
  return facts;
}

std::vector<std::vector<std::string>> link_rows(const LinkTraffic& traffic) {
  std::vector<std::vector<std::string>> rows;
  for (const LinkTraffic::Line& line : traffic.lines)
    rows.push_back({std::string(link_names[std::size_t(line.link)]), line.communicator, std::string(name_of(line.operation)),
                    fmt::format("{:.1f}", line.bytes / (1 << 20)), fmt::format("{:.2f}", 100 * line.bytes / traffic.all())});
  return rows;
}

std::string source_text(const Machine& machine) {
  return fmt::format(
      "Predicted on {} ({}): the schedules of all pipeline stages, timed task by task", machine.cluster.name,
      machine.profile ? "measured kernel times, links from the cluster file" : "kernels and links from the constants of the cluster file");
}

std::string cluster_report(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine, double tokens) {
  Table table({{""}, {"", false, 90}});
  for (const auto& [name, value] : prediction_facts(plan, predicted, machine, tokens)) table.row({name, value});
  std::string text = fmt::format("\n{}\n{}{}\n", source_text(machine), table.str(false), not_predicted);
  if (plan.layout.ranks() == 1) return text;
  Table links({{"link"}, {"communicator"}, {"operation"}, {"MiB", true}, {"% of all bytes", true}});
  for (const auto& row : link_rows(predicted.traffic)) links.row(row);
  return text + fmt::format("\nCommunication of a step by link ({})\n{}", links_explained, links.str());
}

}  // namespace gyr
