// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "kernels/device/host_copies.hpp"
#include "modules/cost/flops.hpp"
#include "modules/layers/expert_capacity.hpp"
#include "modules/layers/expert_exchange.hpp"
#include "modules/objectives/objective.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/config/layout_rules.hpp"
#include "src/config/mixer_split.hpp"
#include "src/engine/config/activation_choice.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/parallel/simulator.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/feed.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr {

namespace {

std::string size_text(Index bytes) { return bytes_text(double(bytes)); }

std::string flop_text(double flops) { return metric_text(flops, "FLOP", 4); }

// FLOPs of the model in a step.
double step_flops(const RunConfig& run) {
  const TextLengths lengths = run.lengths();
  return training_flops(run.model, lengths, run.optimizer.trained()) * double(run.largest_batch() * lengths.text);
}

// FLOPs that layers R and the encoder of neighbours add to a step; empty without them.
std::string retrieval_text(const RunConfig& run) {
  const std::optional<RunConfig> without = without_retrieval(run);
  if (!without) return "";
  const double all = step_flops(run), left = step_flops(*without);
  return fmt::format("layers R add {} per step, {:.1f} % of a step without them", flop_text(all - left), 100 * (all / left - 1));
}

// FLOPs of the ranks that execute fewest and most.
std::string executed_text(double least, double most) {
  return (least == most ? flop_text(least) : flop_text(least) + " to " + flop_text(most)) + " per step, as executed";
}

// Bytes that a rank copies between device and host memory in a step, both directions together.
Index copied_bytes(const RankPlan& plan) {
  double bytes = 0;
  for (const Work& work : plan.work)
    if (is_copy(work.kernel)) bytes += work.bytes;
  return Index(bytes);
}

using TableRows = std::vector<std::vector<std::string>>;

// Pipeline stages, and tensor-parallel ranks of each, whose table rows are equal.
struct AlikeRanks {
  std::vector<int> stages;
  TableRows rows;
  std::vector<int> ranks = {};
};

// Rising numbers as text: "3", "0-3" or "0,2,3".
std::string numbers_text(const std::vector<int>& numbers) {
  if (numbers.size() == 1) return fmt::format("{}", numbers.front());
  if (numbers.back() - numbers.front() + 1 == int(numbers.size())) return fmt::format("{}-{}", numbers.front(), numbers.back());
  return fmt::format("{}", fmt::join(numbers, ","));
}

// Joins groups of different stages that have the same ranks and rows.
std::vector<AlikeRanks> joined_stages(const std::vector<AlikeRanks>& groups) {
  std::vector<AlikeRanks> joined;
  for (const AlikeRanks& group : groups) {
    const auto same = std::find_if(joined.begin(), joined.end(), [&](const AlikeRanks& g) { return g.rows == group.rows && g.ranks == group.ranks; });
    if (same == joined.end()) joined.push_back(group);
    else same->stages.push_back(group.stages.front());
  }
  return joined;
}

// Groups of ranks with equal rows, in order of their first rank. Context-parallel ranks are all alike.
std::vector<AlikeRanks> alike_ranks(const std::vector<RankPlan>& plans, const Layout& layout,
                                    const std::function<TableRows(const RankPlan&)>& rows_of) {
  std::vector<AlikeRanks> groups;
  std::map<std::pair<int, TableRows>, std::size_t> group_of;
  for (const RankPlan& p : plans) {
    if (layout.coordinate(p.position, Axis::context) != 0) continue;
    const int stage = layout.coordinate(p.position, Axis::pipeline);
    const TableRows rows = rows_of(p);
    const auto [entry, fresh] = group_of.try_emplace({stage, rows}, groups.size());
    if (fresh) groups.push_back({{stage}, rows});
    groups[entry->second].ranks.push_back(layout.coordinate(p.position, Axis::tensor));
  }
  return joined_stages(groups);
}

void add_rows(Table& table, const std::vector<AlikeRanks>& groups) {
  for (const AlikeRanks& group : groups)
    for (const auto& row : group.rows) {
      std::vector<std::string> cells{numbers_text(group.stages), numbers_text(group.ranks)};
      cells.insert(cells.end(), row.begin(), row.end());
      table.row(cells);
    }
}

void add_memory_rows(Table& table, const std::vector<RankPlan>& plans, const Layout& layout, const Unit& unit) {
  add_rows(table, alike_ranks(plans, layout, [&](const RankPlan& p) {
             const PipelineShape shape = pipeline_shape(layout, 1);
             Index layers = 0;
             for (int chunk = 0; chunk < shape.chunks; ++chunk)
               layers += layout.stages[shape.stage(layout.coordinate(p.position, Axis::pipeline), chunk)].size();
             std::vector<std::string> row{fmt::format("{}", layers), metric_text(double(p.parameters), "")};
             for (int i = 0; i < memory_categories; ++i) row.push_back(unit(double(p.capacity.bytes(Memory(i)))));
             for (const Index bytes : {p.capacity.total(), p.capacity.live, p.capacity.working()}) row.push_back(unit(double(bytes)));
             return TableRows{row};
           }));
}

// Memory of the ranks that train, and below it that of the ranks that only generate.
std::string memory_table(const RunPlan& plan, const Unit& unit) {
  std::vector<TableColumn> columns{{"stage", true}, {"tensor rank", true}, {"layers", true}, {"parameters", true}};
  for (int i = 0; i < memory_categories; ++i) columns.push_back({std::string(name_of(Memory(i))), true});
  for (const char* name : {"total", "live", "planned"}) columns.push_back({name, true});
  Table table(columns, 2);
  add_memory_rows(table, plan.ranks, plan.layout, unit);
  if (plan.generators.empty()) return table.str();
  table.heading(fmt::format("Only generate: ranks {}, {}", plan.generation->mesh.text(), plan.generation->layout.text()));
  add_memory_rows(table, plan.generators, plan.generation->layout, unit);
  return table.str();
}

// Breakdown of the memory of the rank that uses most.
std::string bytes_table(const RankPlan& plan) {
  const ByteColumn size{double(plan.capacity.total())};
  Table table({{"category"}, {size.unit(), true}, {"content", false, 100}});
  std::string category;
  for (const std::vector<std::string>& row : byte_rows(plan, size)) {
    table.row({row[0] == category ? "" : row[0], row[1], row[2]});
    category = row[0];
  }
  return table.str();
}

// TableRows of a rank's communication table, from the communicator column on.
TableRows traffic_rows(const RankPlan& p, const ByteColumn& size) {
  TableRows rows;
  for (const CommunicatorTraffic& c : p.traffic)
    for (const TrafficCount::Line& line : c.count.lines())
      if (const auto& [calls, bytes] = line.traffic; calls > 0)
        rows.push_back({c.name, fmt::format("{}", c.size), std::string(name_of(line.operation)), fmt::format("{}", calls),
                        size(double(bytes) / double(calls)), size(double(bytes)), line.purpose});
  return rows;
}

std::string traffic_table(const std::vector<RankPlan>& plans, const Layout& layout) {
  Index largest = 0;
  for (const RankPlan& p : plans)
    for (const CommunicatorTraffic& c : p.traffic)
      for (const TrafficCount::Line& line : c.count.lines()) largest = std::max(largest, Index(line.traffic.bytes));
  const ByteColumn size{double(largest)};
  Table table({{"stage", true},
               {"tensor rank"},
               {"communicator"},
               {"ranks", true},
               {"operation"},
               {"calls", true},
               {size.unit() + " per call", true},
               {size.unit() + " in total", true},
               {"data"}},
              2);
  add_rows(table, alike_ranks(plans, layout, [&](const RankPlan& p) { return traffic_rows(p, size); }));
  return table.str();
}

// Legend of the shapes in the communication table.
std::string symbols_text(const EngineConfig& config, const Layout& layout) {
  const Index rows = layout.sequences(0, config.micro_batch_size, config.seq_length).rows();
  std::string text =
      fmt::format("rows: {} tokens of a micro-batch on a rank = {} sequences x {} tokens", rows, config.micro_batch_size, config.seq_length);
  if (layout.size(Axis::context) > 1) text += fmt::format(" / {} context-parallel ranks", layout.size(Axis::context));
  if (layout.sequence)
    text += fmt::format("; {} rows of the residual stream where {} tensor-parallel ranks shard it",
                        StreamRows{rows, layout.stream_parts()}.rows_per_part(), layout.stream_parts());
  return prose(
      text + fmt::format("; hidden: {} channels; {} bytes per element\n", config.model.hidden_size, size_of(config.precision)) +
      "branches: each layer all-reduces one residual branch in forward and one in backward, a P layer two; recomputed layers repeat the forward\n");
}

// Layout, memory and work of a further model. Its scores are all-reduced over the run.
std::string further_text(const FurtherPlan& f) {
  const auto by_flops = [](const RankPlan& a, const RankPlan& b) { return a.flops < b.flops; };
  const auto by_weights = [](const RankPlan& a, const RankPlan& b) { return a.capacity.weights < b.capacity.weights; };
  const PlacedModel& placed = f.placed;
  return fmt::format(
      "{}, {} on rank{} {} = {}; up to {} of weights on a rank; {} the step with up to {} on a rank; its scores are {} on every rank; "
      "predicted step times do not include this model{}",
      metric_text(double(parameter_count(placed.run.model)), "parameters"), placed.run.train.precision, placed.mesh.size() > 1 ? "s" : "",
      placed.mesh.text(), placed.layout.text(), size_text(std::max_element(f.ranks.begin(), f.ranks.end(), by_weights)->capacity.weights),
      placed.use.trained ? "is trained with" : "scores", flop_text(std::max_element(f.ranks.begin(), f.ranks.end(), by_flops)->flops),
      bytes_text(double(placed.run.largest_batch() * scores_per_sample(placed)) * sizeof(double)),
      placed.run.policy ? ", those of an iteration do" : "");
}

// Answers, and the moves of the weights to ranks that generate with a copy of them.
std::string generation_text(const RunPlan& plan) {
  const PolicyConfig& c = *plan.run.policy;
  std::string text = fmt::format("{} x {} of up to {} per iteration of {}; predicted step times do not include it, those of an iteration do",
                                 counted(c.prompts, "prompt"), counted(c.group, "answer"), counted(c.max_new_tokens, "token"),
                                 counted(c.steps_of_iteration(), "step"));
  const GenerationPlace& place = *plan.generation;
  if (place.borrows) return text;
  if (!plan.generators.empty()) text += "; the ranks that generate do not train";
  double bytes = 0;
  for (const auto& [pair, moved] :
       generation_moves(plan.config.model, plan.config.precision, plan.config.optimizer.trained(), plan.layout, place, 1).bytes())
    if (pair.first != pair.second) bytes += double(moved);
  return fmt::format("{}; on rank{} {} = {} in {}; before each iteration, {} of weights move between ranks", text, place.mesh.size() > 1 ? "s" : "",
                     place.mesh.text(), place.layout.text(), name_of(place.precision), size_text(Index(bytes)));
}

std::string further_traffic(const std::vector<FurtherPlan>& further) {
  std::string text;
  for (const FurtherPlan& f : further)
    if (f.placed.layout.ranks() > 1)
      text += fmt::format("\nCommunication of a rank of models.{}, which {} the step\n", f.placed.use.name,
                          f.placed.use.trained ? "is trained with" : "scores") +
              traffic_table(f.ranks, f.placed.layout);
  return text;
}

std::string kernel_table(const RankPlan& p) {
  std::vector<Work> work = p.work;
  double flops = 0, bytes = 0;
  for (const Work& w : work) flops = std::max(flops, w.flops), bytes = std::max(bytes, w.bytes);
  const Unit rate = metric_unit(flops, "FLOP"), size = metric_unit(bytes, "B");
  Table table({{"kernel"}, {"calls", true}, {rate.name, true}, {size.name + " of memory traffic", true}});
  std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.flops + a.bytes > b.flops + b.bytes; });
  for (const Work& w : work) table.row({w.kernel, fmt::format("{}", w.calls), rate(w.flops), size(w.bytes)});
  return table.str();
}

// Memory of a rank for each activation policy, and the FLOPs that recomputation adds to a step. A plan with 2
// micro-batches per stage is enough, because no more are in flight.
constexpr Index most_layers_replanned = 1000;  // models with more layers are skipped, because planning each policy would take too long
std::string activation_text(const EngineConfig& config, const Layout& layout, int position) {
  if (config.model.layers() > most_layers_replanned) return "";
  EngineConfig other = config;
  other.micros = std::min(config.micros, 2 * int(layout.stages.size()));  // enough for the memory; each copies the same bytes
  std::vector<std::pair<std::string, RankPlan>> rows;
  const auto row = [&](const std::string& name, const ActivationChoice& choice) {
    other.recompute = choice.recompute, other.offload = choice.offload;
    rows.emplace_back(name, plan_rank(other, layout, position));
  };
  bool listed = false;
  for (const ActivationChoice& choice : activation_choices(config.offload)) {
    const bool here = choice.recompute == config.recompute && choice.offload == config.offload;
    listed = listed || here;
    row(choice.name + (here ? " (this deck)" : ""), choice);
  }
  if (!listed) row("this deck", {"", config.recompute, config.offload});
  const RankPlan& kept = rows.front().second;
  const ByteColumn size{double(kept.capacity.total())};
  Table table({{"activation.*"}, {"memory", true}, {"saved", true}, {"host memory", true}, {"copied", true}, {"extra FLOPs, %", true}});
  for (const auto& [name, p] : rows)
    table.row({name, size(double(p.capacity.total())), size(double(kept.capacity.total() - p.capacity.total())), size(double(p.capacity.host())),
               size(double(copied_bytes(p)) * config.micros / other.micros), fmt::format("{:.1f}", 100 * (p.flops / kept.flops - 1))});
  return prose(fmt::format(
             "\nActivation checkpointing and offload (activation.*), in {}: memory of the rank that uses most, bytes copied between device and "
             "host in a step of {}, and extra FLOPs\n",
             size.unit(), counted(config.micros, "micro-batch", "micro-batches"))) +
         table.str();
}

// Memory of activations that are offloaded to the host, and bytes copied in a step.
std::string host_text(const std::vector<RankPlan>& plans, const OffloadConfig& offload) {
  Index most = 0, copied = 0;
  for (const RankPlan& plan : plans) most = std::max(most, plan.capacity.host()), copied = std::max(copied, copied_bytes(plan));
  return fmt::format("{} on the rank that offloads most{}; {} copied to the host and back in a step", size_text(most),
                     offload.folder.empty() ? "" : ", in a file in " + offload.folder, size_text(copied));
}

// Table of FLOPs for each split of the tensor-parallel ranks between attention and SSM of hybrid blocks
// (parallel.mixer).
std::string mixer_text(const RunConfig& run, const Layout& layout) {
  if (layout.size(Axis::tensor) == 1 || !has_layer(all_layers(run.model), &LayerTraits::without_mixers)) return "";
  return prose(
             "\nMixers (parallel.mixer): forward FLOPs per token of attention and SSM in a P block, on a rank that computes them. KV heads and "
             "groups of B and C that cannot be split are replicated on every rank that computes a part. With mixers apart, fewer ranks "
             "replicate them, but the step waits for the slower team\n") +
         mixer_table(run.model, run.train.seq_length, layout.size(Axis::tensor), layout.attention_ranks);
}

// Sizes of expert-parallel buffers. They depend on the routing, so the text names the bound.
std::string experts_text(const EngineConfig& config, const Layout& layout) {
  const Routing& routing = config.model.moe.routing;
  const SequenceLayout sequences = layout.sequences(0, config.micro_batch_size, config.seq_length);
  const Index rows = sequences.rows();
  Communicator ranks("expert", dry_transport(0, layout.expert));
  const Index row_capacity =
      std::min(ExpertExchange::capacity({&ranks, layout.expert_receive_capacity}, rows, routing.top_k, config.model.moe.experts),
               config.model.moe.experts * max_rows_of_expert(config.model.moe, sequences));
  return fmt::format(
      "a rank has {} of {} per layer and memory for {} rows of a micro-batch{}; balanced routing, which this plan assumes, sends it {}",
      config.model.moe.experts / layout.expert, config.model.moe.experts, row_capacity,
      layout.expert_receive_capacity > 0 ? " (parallel.expert_room; the run fails if it receives more)" : ", the maximum that any routing sends",
      rows * routing.top_k);
}

std::vector<PlacedTensor> tensors_of(const RunConfig& run, const Layout& layout) {
  return model_tensors(run.model, precision_of(run.train.precision), layout, run.optimizer);
}

// Bytes and files of a checkpoint, and bytes of the copy in memory that an asynchronous save writes from.
std::string checkpoint_text(const RunConfig& run, const Layout& layout) {
  const Index all = Index(checkpoint_bytes(run, layout));
  const std::string& files = run.checkpoint.files;
  std::string text = metric_text(double(all), "B");
  text += files == "rank" ? " in " + counted(layout.ranks(), "file") : files == "node" ? " in one file per node" : " in one file";
  if (!run.checkpoint.async) return text;
  Index most = 0;
  const auto tensors = tensors_of(run, layout);
  for (int position = 0; position < layout.ranks(); ++position)
    if (layout.coordinate(position, Axis::data) == 0) most = std::max(most, bytes_of(contributed_boxes(tensors, layout, position, true), tensors));
  const Index copy = files == "single" ? all : most;
  text += fmt::format(", and a copy of {} in memory ", size_text(copy));
  return text + (files == "rank"   ? "on the rank that saves most"
                 : files == "node" ? "on the first rank of a node for each of its ranks"
                                   : "on the first rank");
}

// Learning rates of the weights with width transfer, from the highest, each with the number of weights.
std::string rates_text(const RunConfig& run) {
  std::map<double, Index, std::greater<>> weights;
  for (const Weight& w : declared_weights(run.model))
    if (run.optimizer.trained()(w)) ++weights[run.lr.lr * run.optimizer.group_of(w).lr_factor];
  std::string text;
  for (const auto& [rate, count] : weights) text += fmt::format("{}{:.3g} for {}", text.empty() ? "" : ", ", rate, counted(count, "weight"));
  return text + fmt::format("; logits * {:.3g} (optimizer.width_base)", run.model.lm_head_multiplier);
}

}  // namespace

std::string tokens_text(const RunConfig& run) {
  if (const auto& c = run.policy)
    return fmt::format("up to {} of answers in {} of {}", metric_text(double(c->iterations * c->rollouts() * c->max_new_tokens), ""),
                       counted(c->iterations, "iteration"), counted(c->steps_of_iteration(), "step"));
  const double tokens = double(samples_of(run)) * double(run.train.seq_length);
  const std::string text = fmt::format("{} in {}, {:.3g} per parameter", metric_text(tokens, ""), counted(run.train.steps, "step"),
                                       tokens / double(parameter_count(run.model)));
  if (run.data.prefixes.empty()) return text;
  const auto epochs = epochs_of(run);
  if (!epochs) return text + "; data.prefixes cannot be read yet";
  return text + fmt::format(", {:.3g} epochs of {} training tokens", *epochs, metric_text(*epochs > 0 ? tokens / *epochs : 0, ""));
}

std::vector<std::vector<std::string>> byte_rows(const RankPlan& plan, const std::function<std::string(double)>& text) {
  std::vector<std::vector<std::string>> rows;
  for (int i = 0; i < memory_categories; ++i) {
    const std::string category(name_of(Memory(i)));
    Index small = 0;
    for (const MemoryLine& line : plan.memory)
      if (line.category != Memory(i)) continue;
      else if (200 * line.bytes < plan.capacity.bytes(Memory(i))) small += line.bytes;
      else rows.push_back({category, text(double(line.bytes)), line.what});
    if (small > 0) rows.push_back({category, text(double(small)), "everything below 0.5 % of the category"});
  }
  return rows;
}

double checkpoint_bytes(const RunConfig& run, const Layout& layout) {
  return double(checkpoint_bytes(run.model, precision_of(run.train.precision), layout, run.optimizer));
}

std::optional<RunConfig> without_retrieval(const RunConfig& run) {
  if (!reads_neighbours(run.model)) return {};
  RunConfig without = run;
  std::erase(without.model.pattern, layer_type("retrieval").symbol);
  without.parallel.layers.clear();
  return without.model.pattern.empty() ? std::nullopt : std::optional(without);
}

namespace {

// All parameters and, of models with experts, those that a token uses.
std::string parameters_text(const ModelConfig& model) {
  const Index all = parameter_count(model), active = active_parameter_count(model);
  return fmt::format("{} ({}){}", metric_text(double(all), ""), all,
                     active < all ? fmt::format("; active: {}", metric_text(double(active), "")) : "");
}

}  // namespace

Facts plan_facts(const RunPlan& plan, bool with_tokens) {
  const auto& [run, layout, config, further, list, generation, generators] = plan;
  const TextLengths lengths = run.lengths();
  const TokenFlops flops = forward_flops(run.model, lengths);
  const auto least = std::min_element(list.begin(), list.end(), [](const RankPlan& a, const RankPlan& b) { return a.flops < b.flops; });
  const PipelineShape shape = pipeline_shape(layout, config.micros);
  Facts facts{
      {"parameters", parameters_text(run.model)},
      {"grid", fmt::format("{} = {}, {}", layout.text(), counted(layout.ranks(), "rank"), run.train.precision)},
      {"step", fmt::format("{} of {}, {} of {} on each data-parallel rank", counted(run.largest_batch(), "sequence"),
                           counted(run.train.seq_length, "token"), counted(config.micros, "micro-batch", "micro-batches"), config.micro_batch_size)},
      {"model FLOPs", fmt::format("{} per step ({} per token forward; executed {}; by Megatron-LM r0.8's formula {})", flop_text(step_flops(run)),
                                  flop_text(flops.minimal), flop_text(flops.executed), flop_text(flops.megatron))},
      {"rank FLOPs", executed_text(least->flops, plan.slowest().flops)}};
  if (const std::string text = retrieval_text(run); !text.empty()) facts.emplace_back("retrieval", text);
  if (with_tokens) facts.insert(facts.begin() + 3, {tokens_title, tokens_text(run)});  // after the line `step`
  if (run.optimizer.width) facts.emplace_back("learning rates", rates_text(run));
  for (const std::string& text : {batch_limit_text(run, layout.ranks()), divisible_batch_text(run, layout.ranks())})
    if (!text.empty()) facts.emplace_back("batch", text);
  if (layout.size(Axis::pipeline) > 1)
    facts.emplace_back("ideal bubble", fmt::format("{:.1f} % of a step, by formula: equal stages that only compute, and messages without cost{}",
                                                   100 * bubble_fraction(config.schedule, shape),
                                                   shape.chunks > 1 ? fmt::format("; {} interleaved stages on each rank", shape.chunks) : ""));
  for (const FurtherPlan& f : further) facts.emplace_back("models." + f.placed.use.name, further_text(f));
  if (run.policy) facts.emplace_back("generation", generation_text(plan));
  if (layout.expert > 1) facts.emplace_back("experts", experts_text(config, layout));
  if (const Islands& islands = run.parallel.islands; islands.size() > 1)
    facts.emplace_back("islands", fmt::format("{}. In the deck: cluster.emulate: \"{}\"", text_of(layout, islands), to_text(islands)));
  const Index most = plan.largest_rank().capacity.total();
  facts.emplace_back("memory", size_text(most) + " on the rank that uses most");
  if (run.device_bytes > 0)
    facts.back().second +=
        fmt::format("; memory.device_bytes allows {}{}", size_text(run.device_bytes), most > run.device_bytes ? ": IT DOES NOT FIT" : "");
  if (run.offload.on) facts.emplace_back("host memory", host_text(list, run.offload));
  facts.emplace_back("checkpoint", checkpoint_text(run, layout));
  return facts;
}

std::string longest_report(const RunConfig& run, int ranks, const MemoryLimits& row_capacity,
                           const std::function<void(const std::string&)>& progress) {
  Table table({{"activation.*"}, {"tokens", true}, {"ratio to the first", true}});
  const Layout layout = layout_of(run, ranks);  // throws for errors of the deck that do not depend on the length
  Index first = 0, tried = 0;
  bool more = false;
  const std::vector<ActivationChoice> choices = activation_choices(run.offload);
  for (const ActivationChoice& choice : choices) {
    progress(fmt::format("longest sequences of {}, policy {} of {}", choice.name, ++tried, choices.size()));
    const auto [tokens, is_longest] = longest_sequence(run, ranks, choice, row_capacity);
    if (first == 0) first = tokens;
    more = more || is_longest;
    table.row({choice.name, tokens > 0 ? fmt::format("{}{}", is_longest ? "at least " : "", tokens) : "none",
               first > 0 ? fmt::format("{:.2f}", double(tokens) / double(first)) : ""});
  }
  std::string title = "Longest sequence that fits in " + bytes_text(row_capacity.device), notes;
  if (std::isfinite(row_capacity.host)) title += fmt::format(" and {} of host memory", bytes_text(row_capacity.host));
  title += fmt::format(" ({} = {}, micro-batches of {}; lengths in steps of {})\n", layout.text(), counted(ranks, "rank"), run.train.micro_batch_size,
                       counted(unit_of_length(run), "token"));
  if (more) notes += fmt::format("At least: sequences longer than {} tokens are not tried.\n", longest_tried);
  if (first == 0)
    notes += fmt::format("With the last of these policies, the rank that uses most memory needs {} for {}.\n",
                         bytes_text(taken(run, ranks, unit_of_length(run), choices.back()).device), counted(unit_of_length(run), "token"));
  return prose(title) + table.str() + prose(notes);
}

std::string plan_report(const RunPlan& plan, const std::string& predicted) {
  const auto& [run, layout, config, further, list, generation, generators] = plan;
  Table summary({{""}, {"", false, 90}});
  for (const auto& [name, value] : plan_facts(plan, predicted.empty())) summary.row({name, value});
  const RankPlan &largest_rank = plan.largest_rank(), &slowest = plan.slowest();
  const Unit unit = byte_unit(double(largest_rank.capacity.total()));
  std::string data = predicted.empty() ? planned_reading(run) : "";
  if (!data.empty()) data = "\nData that the run reads\n" + data;
  return summary.str(false) + predicted + data +
         prose(fmt::format("\nMemory of each rank in {} (live: peak of activations and scratch in use at once; planned: memory reserved for them)\n",
                           unit.name)) +
         memory_table(plan, unit) + "\nMemory of the rank that uses most, by content\n" + bytes_table(largest_rank) +
         activation_text(config, layout, largest_rank.position) + mixer_text(run, layout) +
         (layout.ranks() > 1 ? "\nCommunication of a rank in a step (payload passed to the communicator)\n" + symbols_text(config, layout) +
                                   traffic_table(list, layout)
                             : "") +
         further_traffic(plan.further) +
         fmt::format("\nKernels of a step on rank {} (stage {}, tensor rank {}), which executes most FLOPs\n", layout.rank_at(slowest.position),
                     layout.coordinate(slowest.position, Axis::pipeline), layout.coordinate(slowest.position, Axis::tensor)) +
         kernel_table(slowest);
}

}  // namespace gyr
