// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan_report.hpp"

#include <algorithm>
#include <optional>

#include "modules/flops.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/engine/plan.hpp"
#include "src/parallel/simulator.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

std::string mebi(Index bytes) { return fmt::format("{:.1f}", double(bytes) / (1 << 20)); }

// One rank of every pipeline, context and tensor coordinate stands for all its data replicas: they take the same.
std::vector<RankPlan> plans(const RunConfig& run, const Layout& layout) {
  const EngineConfig config = engine_config(run, layout);
  std::vector<RankPlan> list;
  for (int position = 0; position < layout.ranks(); ++position) {
    if (layout.coordinate(position, Axis::data) != 0) continue;
    list.push_back(plan_rank(config, layout, position));
  }
  return list;
}

std::string memory_table(const std::vector<RankPlan>& plans, const Layout& layout) {
  std::vector<TableColumn> columns{{"stage", true}, {"tensor", true}, {"layers", true}, {"parameters", true}};
  for (int i = 0; i < memory_categories; ++i) columns.push_back({std::string(name_of(Memory(i))), true});
  for (const char* name : {"total MiB", "live", "planned", "ratio"}) columns.push_back({name, true});
  Table table(columns);
  for (const RankPlan& p : plans) {
    if (layout.coordinate(p.position, Axis::context) != 0) continue;  // takes what the first one does
    const int stage = layout.coordinate(p.position, Axis::pipeline);
    const PipelineShape shape = pipeline_shape(layout, 1);
    Index layers = 0;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) layers += layout.stages[shape.stage(stage, chunk)].size();
    std::vector<std::string> row{fmt::format("{}", stage), fmt::format("{}", layout.coordinate(p.position, Axis::tensor)), fmt::format("{}", layers),
                                 fmt::format("{}", p.parameters)};
    for (int i = 0; i < memory_categories; ++i) row.push_back(mebi(p.capacity.bytes(Memory(i))));
    row.push_back(mebi(p.capacity.total()));
    row.push_back(mebi(p.capacity.live));
    row.push_back(mebi(p.capacity.working()));
    row.push_back(fmt::format("{:.2f}", double(p.capacity.working()) / double(p.capacity.live)));
    table.row(row);
  }
  return table.str();
}

std::string traffic_table(const std::vector<RankPlan>& plans, const Layout& layout) {
  Table table({{"stage", true}, {"tensor", true}, {"communicator"}, {"ranks", true}, {"operation"}, {"calls", true}, {"MiB", true}});
  for (const RankPlan& p : plans)
    for (const CommunicatorTraffic& c : p.traffic)
      for (int op = 0; op < operations; ++op) {
        const Traffic& t = c.by_operation[op];
        if (t.calls == 0 || layout.coordinate(p.position, Axis::context) != 0) continue;
        table.row({fmt::format("{}", layout.coordinate(p.position, Axis::pipeline)), fmt::format("{}", layout.coordinate(p.position, Axis::tensor)),
                   c.name, fmt::format("{}", c.size), std::string(name_of(Operation(op))), fmt::format("{}", t.calls), mebi(t.bytes)});
      }
  return table.str();
}

std::string kernel_table(const RankPlan& p) {
  Table table({{"kernel"}, {"calls", true}, {"GFLOP", true}, {"GB", true}});
  std::vector<Work> work = p.work;
  std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.flops + a.bytes > b.flops + b.bytes; });
  for (const Work& w : work)
    table.row({w.kernel, fmt::format("{}", w.calls), fmt::format("{:.3f}", w.flops / 1e9), fmt::format("{:.3f}", w.bytes / 1e9)});
  return table.str();
}

// Memory of a rank under each policy, and what of its forward a step computes again. As many micro-batches as can be under way do.
constexpr Index most_layers_replanned = 1000;  // of more, four plans take longer than anybody waits
std::string recompute_text(const EngineConfig& config, const Layout& layout, int position) {
  if (config.model.layers() > most_layers_replanned) return "";
  Table table({{"policy"}, {"memory MiB", true}, {"saved MiB", true}, {"flops more", true}});
  EngineConfig other = config;
  other.micros = std::min(config.micros, 2 * int(layout.stages.size()));
  std::optional<RankPlan> kept;
  const auto row = [&](const std::string& name, const RecomputeConfig& policy) {
    other.recompute = policy;
    const RankPlan p = plan_rank(other, layout, position);
    if (!kept) kept = p;
    table.row({name, mebi(p.capacity.total()), mebi(kept->capacity.total() - p.capacity.total()),
               fmt::format("{:.1f} %", 100 * (p.flops / kept->flops - 1))});
  };
  bool listed = false;
  for (const char* name : recompute_names) {
    const RecomputeConfig policy{recompute_of(name)};
    listed = listed || policy == config.recompute;
    row(policy == config.recompute ? std::string(name) + " (this deck)" : name, policy);
  }
  if (!listed) row("this deck", config.recompute);
  return "\nRecomputation (activation.recompute): the fullest rank's memory, and what its step takes\n" + table.str();
}

// Bytes and files of a checkpoint, and of the copy that an asynchronous save writes from.
std::string checkpoint_text(const RunConfig& run, const Layout& layout) {
  Index all = 0, most = 0;
  const auto tensors = model_tensors(run.model, precision_of(run.train.precision), layout, run.optimizer.trained());
  for (const PlacedTensor& t : tensors) all += t.weight.size() * size_of(t.dtype);
  for (int position = 0; position < layout.ranks(); ++position)
    if (layout.coordinate(position, Axis::data) == 0) most = std::max(most, bytes_of(given_boxes(tensors, layout, position, true), tensors));
  const std::string& files = run.checkpoint.files;
  std::string text = fmt::format("{:.3g} GB", double(all) / 1e9);
  text += files == "rank" ? fmt::format(" in {} files", layout.ranks()) : files == "node" ? " in a file of each node" : " in one file";
  if (!run.checkpoint.async) return text;
  const Index copy = files == "single" ? all : most;
  text += fmt::format(", and a copy of {} MiB in memory ", mebi(copy));
  return text + (files == "rank" ? "on the fullest rank" : files == "node" ? "for each rank of a node on its first" : "on the first rank");
}

}  // namespace

std::string plan_report(const RunConfig& run, int ranks) {
  const Layout layout = layout_of(run, ranks);
  const EngineConfig config = engine_config(run, layout);
  const auto list = plans(run, layout);
  const TokenFlops flops = forward_flops(run.model, run.train.seq_length);
  const double tokens = double(run.largest_batch() * run.train.seq_length);
  const RankPlan* fullest = &list.front();
  double least_flops = list[0].flops, most_flops = 0;
  for (const RankPlan& p : list) {
    if (p.capacity.total() > fullest->capacity.total()) fullest = &p;
    least_flops = std::min(least_flops, p.flops), most_flops = std::max(most_flops, p.flops);
  }
  const Index parameters = parameter_count(run.model);

  Table summary({{""}, {"", false, 90}});
  summary.row({"parameters", fmt::format("{}", parameters)});
  summary.row({"grid", fmt::format("{} = {} ranks, {}", layout.text(), layout.ranks(), run.train.precision)});
  summary.row({"a step", fmt::format("{} sequences of {} tokens, {} micro-batches of {} on each data rank", run.largest_batch(), run.train.seq_length,
                                     config.micros, config.micro_batch_size)});
  summary.row({"model flops", fmt::format("{:.6g} a step ({:.6g} a token forward; executed {:.6g}; Megatron-LM r0.8's count {:.6g})",
                                          training_flops(run.model, run.train.seq_length, run.optimizer.trained()) * tokens, flops.minimal,
                                          flops.executed, flops.megatron)});
  summary.row({"rank flops", fmt::format("{:.6g} to {:.6g} a step, as executed", least_flops, most_flops)});
  const PipelineShape shape = pipeline_shape(layout, config.micros);
  summary.row({"pipeline idle", fmt::format("{:.1f} % of a step, were all stages equal{}", 100 * idle_part(shape),
                                            shape.chunks > 1 ? fmt::format("; {} of them interleaved on each rank", shape.chunks) : "")});
  summary.row({"memory", fmt::format("{} MiB on the fullest rank", mebi(fullest->capacity.total()))});
  summary.row({"checkpoint", checkpoint_text(run, layout)});
  return summary.str(false) + "\nMemory of a rank in MiB (live: most of activations and scratch that is needed at once; planned: what they take)\n" +
         memory_table(list, layout) + recompute_text(config, layout, fullest->position) +
         (layout.ranks() > 1 ? "\nTraffic of a rank in a step (payload handed to the communicator)\n" + traffic_table(list, layout) : "") +
         "\nWork of the first rank in a step\n" + kernel_table(list.front());
}

}  // namespace gyr
