// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/cluster_report.hpp"

#include <cmath>
#include <map>

#include "kernels/base/printable.hpp"
#include "kernels/device/queue.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/policy_report.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/planner/predict/failures.hpp"

namespace gyr {

namespace {

constexpr Index longest_judged = 4096;  // tokens of the longest sequences that predictions were judged on
constexpr int most_blocks = 48;         // maximum rows of the traffic matrix, so that it stays readable

// True if the offloaded activations of every rank fit in the memory of its host.
bool offload_fits_hosts(const RunPlan& plan, const Cluster& cluster) {
  for (int position = 0; position < plan.layout.ranks(); ++position) {
    const Capacity& capacity = plan.of(position).capacity;
    if (double(capacity.host()) > cluster.island_of(plan.layout.rank_at(position)).host_memory_left(double(capacity.total()))) return false;
  }
  return true;
}

// The rank that fills its device most, relative to the memory besides the reserve. Ranks that only generate count too.
struct FullestRank {
  const RankPlan* plan;
  const Cluster::Device* device;
  double bytes = 0;
  bool fits() const { return bytes <= device->usable(); }
};

FullestRank fullest_rank(const RunPlan& plan, const Cluster& cluster) {
  FullestRank fullest{&plan.ranks.front(), &cluster.device};
  double part = 0;
  const auto add = [&](const RankPlan& plan_of_rank, int rank) {
    const Cluster::Device& device = cluster.island_of(rank).device;
    const double takes = double(plan_of_rank.capacity.total());
    if (takes > part * device.usable()) part = takes / device.usable(), fullest = {&plan_of_rank, &device, takes};
  };
  for (int position = 0; position < plan.layout.ranks(); ++position) add(plan.of(position), plan.layout.rank_at(position));
  if (plan.generators.empty()) return fullest;
  const GenerationPlace& place = *plan.generation;
  for (int position = 0; position < place.layout.ranks(); ++position)
    add(plan_at(plan.generators, place.layout, position), place.mesh.ranks[std::size_t(place.layout.rank_at(position))]);
  return fullest;
}

// Memory of the rank that fills its device most, and a warning if some rank does not fit.
std::string memory_text(const RunPlan& plan, const Cluster& cluster) {
  const FullestRank fullest = fullest_rank(plan, cluster);
  const double reserve = fullest.device->reserve;
  return fmt::format("{} of {} on the rank that fills its device most{}{}", bytes_text(fullest.bytes), bytes_text(fullest.device->usable()),
                     reserve > 0 ? fmt::format(" (besides a reserve of {} for CUDA context, NCCL and cuBLAS)", bytes_text(reserve)) : "",
                     !fullest.fits()                      ? ": IT DOES NOT FIT"
                     : !offload_fits_hosts(plan, cluster) ? "; OFFLOADED ACTIVATIONS DO NOT FIT THE HOST"
                                                          : "");
}

std::string part_text(double seconds, const Prediction& p) { return fmt::format("{}, {:.1f} %", time_text(seconds, 4), 100 * seconds / p.seconds); }

// Device hours of a training run and, if the cluster file sets device.price, their price.
std::string price_text(const TrainingCost& cost, int ranks, const Cluster& cluster) {
  const std::string hours = metric_text(cost.seconds / 3600 * ranks, "") + " device hours";
  if (cost.price == 0) return hours;
  return fmt::format("{}: {} at {:.4g} per device hour", hours, money_text(cost.price, cluster), cluster.price(ranks) / ranks);
}

// Device hours with their price, and energy.
std::string cost_text(const TrainingCost& cost, int ranks, const Cluster& cluster) {
  const std::string text = price_text(cost, ranks, cluster);
  if (cost.joules == 0) return text + "; energy unknown: the cluster file does not set device.watts";
  return text + fmt::format("; {} for the devices at {:.0f} W each", metric_text(cost.joules / 3600, "Wh"), cluster.watts(ranks) / ranks);
}

// Steps that read `tokens` with batches of `of_step` tokens, and their time, price and energy.
std::string training_text(const RunConfig& run, double tokens, double of_step, double rate, int ranks, const Cluster& cluster) {
  const TrainingCost cost = training_cost(tokens, rate, ranks, cluster);
  return fmt::format("{} days for {} ({:.3g} per parameter) in {} at this rate{}; {}", days_text(run, ranks, cluster, cost),
                     metric_text(tokens, " tokens"), tokens / double(parameter_count(run.model)), counted(Index(std::ceil(tokens / of_step)), "step"),
                     error_bar(run, ranks, cluster), cost_text(cost, ranks, cluster));
}

// Settings that make this part of the memory of a rank smaller. A ZeRO level counts if the run does not use it yet.
std::string smaller_with(Memory part, const Layout& layout, Index micro_batch) {
  const auto sharded = [&](Shard level, const char* setting) {
    const bool helps = layout.size(Axis::data) * layout.size(Axis::context) > 1 && int(layout.shard) < int(level);
    return fmt::format("{}a larger parallel.tensor or parallel.pipeline", helps ? std::string(setting) + ", or " : "");
  };
  switch (part) {
    case Memory::weights: return sharded(Shard::weights, "parallel.shard=weights (ZeRO-3)");
    case Memory::gradients: return sharded(Shard::gradients, "parallel.shard=gradients (ZeRO-2)");
    case Memory::optimizer: return sharded(Shard::optimizer, "parallel.shard=optimizer (ZeRO-1)");
    case Memory::activations:
      return micro_batch > 1 ? "activation.recompute=full, a smaller train.micro_batch_size, or a larger parallel.context"
                             : "activation.recompute=full, or a larger parallel.context or parallel.tensor";
    case Memory::scratch: break;
  }
  return micro_batch > 1 ? "a smaller train.micro_batch_size or train.seq_length" : "a smaller train.seq_length, or a larger parallel.context";
}

// Bytes that cross slow links between islands in a step, by communicator.
std::string island_traffic_text(const LinkTraffic& traffic) {
  const double all = traffic.of(LinkClass::islands);
  std::map<std::string, double> bytes;
  for (const LinkTraffic::Line& line : traffic.lines)
    if (line.link == LinkClass::islands) bytes[line.communicator] += line.bytes;
  std::string text = fmt::format("{} per step, {:.2g} % of all traffic", bytes_text(all), 100 * all / traffic.all());
  for (const auto& [communicator, part] : bytes) text += fmt::format("; {} {}", communicator, bytes_text(part));
  return text;
}

// Sentence for a model whose weights, master weights and moments exceed the memory of all ranks together, so that no layout
// fits; otherwise empty.
std::string text_if_none_fits(const RunPlan& plan, double usable) {
  const double states = checkpoint_bytes(plan.run, plan.layout);
  const int ranks = plan.layout.ranks();
  if (states / ranks <= usable) return "";
  return fmt::format(". No layout of {} fits: weights and optimizer states alone take {} on each. Take at least {}, or a smaller model",
                     counted(ranks, "rank"), bytes_text(states / ranks), counted(Index(std::ceil(states / usable)), "rank"));
}

// Memory of ranks that only generate; `usable`: that of a device, 0: no limit.
void require_generator_fits(const RunPlan& plan, double usable) {
  double bytes = 0;
  for (const RankPlan& alone : plan.generators) bytes = std::max(bytes, double(alone.capacity.total()));
  require(usable <= 0 || bytes <= usable, Exit::config,
          "the plan does not fit in memory: a rank that only generates ({}) takes {} of {}; decode fewer answers at once "
          "(rl.generate.sequences_together), or divide the weights by rl.generate.tensor or pipeline",
          plan.generation ? plan.generation->mesh.text() : "", bytes_text(bytes), bytes_text(usable));
}

}  // namespace

std::string iterations_text(const RunConfig& run, double tokens, const IterationTimes& times, int ranks, const Cluster& cluster) {
  const double of_iteration = double(times.answers.answers() * times.answers.tokens), rate = of_iteration / times.seconds();
  if (tokens <= 0) tokens = of_iteration * double(run.policy->iterations);
  const TrainingCost cost = training_cost(tokens, rate, ranks, cluster);
  return fmt::format("{:.4g} days for {} of answers in {} of all calls at this rate; {}", cost.seconds / 86400, metric_text(tokens, " tokens"),
                     counted(Index(std::ceil(tokens / of_iteration)), "iteration"), cost_text(cost, ranks, cluster));
}

PredictedRun::PredictedRun(const RunPlan& plan, const Machine& machine)
    : plans(plan.config, plan.layout),
      step(timeline_of(plans, plan.config, plan.layout, machine.cluster, machine.profile ? &*machine.profile : nullptr)),
      traffic(link_traffic(plan.ranks, plan.config, plan.layout, machine.cluster, most_blocks)) {
  if (plan.run.policy) iteration = iteration_times(plan.run, plan.layout, {machine.cluster, machine.profile ? &*machine.profile : nullptr});
}

std::optional<double> bytes_if_fits(const RunPlan& plan, const Cluster& cluster) {
  const FullestRank fullest = fullest_rank(plan, cluster);
  return fullest.fits() && offload_fits_hosts(plan, cluster) ? std::optional(fullest.bytes) : std::nullopt;
}

void require_fits(const RunPlan& plan, const Machine* machine) {
  require_generator_fits(plan, machine ? machine->cluster.device.usable() : double(plan.run.device_bytes));
  const RankPlan* rank = &plan.largest_rank();
  double usable = double(plan.run.device_bytes);
  if (machine) {
    const FullestRank fullest = fullest_rank(plan, machine->cluster);
    rank = fullest.plan, usable = fullest.device->usable();
    require(
        !fullest.fits() || offload_fits_hosts(plan, machine->cluster), Exit::config,
        "the plan does not fit in memory: the offloaded activations need more than host.memory of the cluster file; set activation.policy=recompute, "
        "or lower activation.alpha");
  }
  const Capacity& capacity = rank->capacity;
  if (usable <= 0 || double(capacity.total()) <= usable) return;
  Memory largest = Memory::weights;
  for (int i = 0; i < memory_categories; ++i)
    if (capacity.bytes(Memory(i)) > capacity.bytes(largest)) largest = Memory(i);
  fail(Exit::config, "the plan does not fit in memory: a rank takes {} of {}. The largest part is `{}` with {}; it becomes smaller with {}{}",
       bytes_text(double(capacity.total())), bytes_text(usable), name_of(largest), bytes_text(double(capacity.bytes(largest))),
       smaller_with(largest, plan.layout, plan.run.train.micro_batch_size), text_if_none_fits(plan, usable));
}

double utilisation(const RunConfig& run, int ranks, const Cluster& cluster, double seconds) {
  const double flops = training_flops(run.model, run.lengths(), run.optimizer.trained()) * double(run.largest_batch() * run.lengths().text);
  return flops / (seconds * cluster.peak(ranks, precision_of(run.train.precision)));
}

TrainingCost training_cost(double tokens, double rate, int ranks, const Cluster& cluster) {
  const double seconds = tokens / rate;
  return {seconds, seconds * cluster.watts(ranks), seconds / 3600 * cluster.price(ranks)};
}

std::string days_text(const RunConfig& run, int ranks, const Cluster& cluster, const TrainingCost& cost) {
  const double days = cost.seconds / 86400, error = error_of(run, ranks, cluster);
  if (error == 0) return fmt::format("{:.4g}", days);
  const int decimals = std::max(0, 1 - int(std::floor(std::log10(days * error))));  // two digits of the error
  return fmt::format("{:.{}f} ± {:.{}f}", days, decimals, days * error, decimals);
}

// Half width of an error bar where no step of this program was measured: the largest error seen when constants that were fitted to
// one program served for another (src/planner/README.md, Accuracy).
constexpr double proposed_error = 0.25;

double error_of(const RunConfig& run, int ranks, const Cluster& cluster) {
  const Cluster::Errors& e = cluster.errors;
  if (!is_judged_length(run) || e.largest() == 0) return 0;
  return e.measured > 0 && ranks == 1 ? e.largest() : std::max(e.largest(), proposed_error);
}

bool is_judged_length(const RunConfig& run) { return run.train.seq_length <= longest_judged; }

std::string error_bar(const RunConfig& run, int ranks, const Cluster& cluster) {
  const double error = error_of(run, ranks, cluster);
  return error > 0 ? fmt::format(" ± {:.3g} %", 100 * error) : "";
}

std::string error_text(const RunConfig& run, int ranks, const Cluster& cluster) {
  const Cluster::Errors& e = cluster.errors;
  if (e.largest() == 0) {
    const bool at_peak = cluster.fit.gemms == 1 && cluster.fit.fused == 1 && cluster.fit.memory == 1;
    return std::string("none: predictions from these values have not been compared with measured steps") +
           (at_peak ? ", and assume that every kernel reaches the peak of the device, because the constants under fit in the cluster file are 1 or "
                      "missing"
                    : "");
  }
  const auto judged = [](double error, const std::string& steps, const char* without) {
    return error > 0 ? fmt::format("{:.1f} % on {}", 100 * error, steps) : fmt::format("not judged on {}", without);
  };
  const std::string advice = fmt::format(" (an application should state ± {:.0f} %, see Accuracy in src/planner/README.md)", 100 * proposed_error);
  std::string text = e.measured > 0 ? fmt::format("{:.1f} %, the larger of two: {} (mean); {} (largest)", 100 * e.largest(),
                                                  judged(e.published, e.published_steps, "published steps"),
                                                  judged(e.measured, e.measured_steps, "steps of this program"))
                                    : fmt::format("{:.1f} % on published steps of other programs ({}); not judged on steps of this program{}",
                                                  100 * e.published, e.published_steps, is_judged_length(run) ? advice : "");
  if (ranks > 1) text += "; not judged on several GPUs with this program";
  if (run.train.seq_length > longest_judged)
    text = fmt::format("none: not judged on sequences of more than {} tokens. On shorter ones: {}", longest_judged, text);
  const auto no_transformer = [](const LayerTraits& t) { return t.ssm || t.experts || attends(AttentionKind::latent)(t); };
  if (has_encoder(run.model) || has_layer(all_layers(run.model), no_transformer))
    text += "; this model has layers that a dense transformer does not have";
  return text;
}

std::string money_text(double price, const Cluster& cluster) {
  const std::string& currency = cluster.island(0).device.currency;
  return metric_text(price, currency.empty() ? "" : " " + printable(currency));
}

std::string defaults_text(const Cluster& cluster) {
  if (cluster.defaults.empty()) return "";
  return fmt::format("{}: ideal values, not measured, because the cluster file does not set them", fmt::join(cluster.defaults, ", "));
}

constexpr double assumed_storage = 1e9;  // bytes per second and node, if the cluster file does not set storage.bandwidth

double save_seconds(const RunConfig& run, const Layout& layout, const Cluster& cluster) {
  const Index nodes = run.checkpoint.files == "single" ? 1 : cluster.place_of(layout.ranks() - 1).node + 1;
  return checkpoint_bytes(run, layout) / (double(nodes) * (cluster.storage > 0 ? cluster.storage : assumed_storage));
}

std::string save_text(const RunConfig& run, const Layout& layout, const Cluster& cluster) {
  return fmt::format("{:.3g} s for {} at {:g} GB/s per node that writes ({}){}", save_seconds(run, layout, cluster),
                     metric_text(checkpoint_bytes(run, layout), "B"), (cluster.storage > 0 ? cluster.storage : assumed_storage) / 1e9,
                     cluster.storage > 0 ? "storage.bandwidth of the cluster file" : "an assumption: the cluster file has no storage.bandwidth",
                     run.checkpoint.async ? ", while training continues" : "");
}

namespace {

// Step time if communication stops computation, for a cluster file that does not state that it overlaps; otherwise empty.
std::string without_overlap_text(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine) {
  const auto& assumed = machine.cluster.defaults;
  const bool stated = std::none_of(assumed.begin(), assumed.end(), [](const std::string& key) { return key.starts_with("links.beside"); });
  if (stated || plan.layout.ranks() == 1) return "";
  Cluster apart = machine.cluster;
  apart.links_overlap = false;
  const double seconds = predict(predicted.plans, plan.config, plan.layout, apart, machine.profile ? &*machine.profile : nullptr).seconds;
  return fmt::format(
      "{} per step, {:.0f} % more, if communication does not overlap with computation (links.beside: false), which the error bar does not cover",
      time_text(seconds, 4), 100 * (seconds / predicted.longest().seconds - 1));
}

// Time that layers R and the encoder of neighbours add to a step of `seconds`; empty without them.
std::string retrieval_text(const RunPlan& plan, double seconds, const Machine& machine) {
  const std::optional<RunConfig> without = without_retrieval(plan.run);
  if (!without) return "";
  const double left = PredictedRun(RunPlan(*without, plan.layout.ranks()), machine).longest().seconds;
  return fmt::format("layers R add {}, {:.1f} % of a step without them", time_text(seconds - left, 3), 100 * (seconds / left - 1));
}

// Saves of the run with a checkpoint every `steps` steps of `seconds`. An asynchronous save blocks for the copy to the host.
Saves saves_of(const RunPlan& plan, const Cluster& cluster, double steps, double seconds) {
  const double writes = save_seconds(plan.run, plan.layout, cluster);
  if (!plan.run.checkpoint.async) return {steps * seconds, writes, 0};
  const double copied = checkpoint_bytes(plan.run, plan.layout) / plan.layout.ranks();
  return {steps * seconds, cluster.host.bandwidth > 0 ? copied / cluster.host.bandwidth : 0, writes};
}

// Failures of a training of `days`, the useful part of its time, and the best interval of checkpoints; empty if failures.hours is 0.
std::string failures_text(const RunPlan& plan, const Cluster& cluster, double seconds, double days) {
  if (cluster.failures.hours == 0) return "";
  const double rate = plan.layout.ranks() / (cluster.failures.hours * 3600), restart = cluster.failures.restart;
  const double every = double(plan.run.checkpoint.every);
  const double best = std::max(1.0, std::round(best_interval(rate, restart, saves_of(plan, cluster, 1, seconds)) / seconds));
  const double useful = useful_part(rate, restart, saves_of(plan, cluster, every > 0 ? every : best, seconds));
  const double most = useful_part(rate, restart, saves_of(plan, cluster, best, seconds));
  return fmt::format(
      "{:.3g} per day (failures.hours = {:g} per device), each with {} until the restart; with checkpoint.every={:.0f}, {:.1f} % of the "
      "time is useful, so that the training takes {:.4g} days{}",
      rate * 86400, cluster.failures.hours, time_text(restart), every > 0 ? every : best, 100 * useful, days / useful,
      most > useful + 0.005 ? fmt::format("; checkpoint.every={:.0f} is best: {:.1f} %, {:.4g} days", best, 100 * most, days / most) : "");
}

// Error bar of a step, and whether it is an estimate because this program was not measured on such a machine.
std::string bar_of_step(const RunConfig& run, int ranks, const Cluster& cluster) {
  const std::string bar = error_bar(run, ranks, cluster);
  if (bar.empty()) return " error not known, see accuracy";
  return bar + (cluster.errors.measured == 0 || ranks > 1 ? ", an estimate, see accuracy" : "");
}

}  // namespace

Facts prediction_facts(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine, double tokens) {
  const Cluster& cluster = machine.cluster;
  const auto& [run, layout, config, further, ranks, generation, generators] = plan;
  const Prediction& p = predicted.longest();
  const double of_step = double(run.largest_batch() * run.train.seq_length), rate = of_step / p.seconds;
  const double peak = cluster.peak(layout.ranks(), config.precision);
  const std::string bar = bar_of_step(run, layout.ranks(), cluster);
  Facts facts{{"memory", memory_text(plan, cluster)},
              {"step", fmt::format("{}; {}, {} per device;{}", time_text(p.seconds, 4), metric_text(rate, " tokens/s", 4),
                                   metric_text(rate / layout.ranks(), " tokens/s"), bar)},
              {"accuracy", error_text(run, layout.ranks(), cluster)},
              {"MFU", fmt::format("{:.1f} % of {} per device (counts the causal half of attention, the SSM as a plain recurrence, no recomputation)",
                                  100 * utilisation(run, layout.ranks(), cluster, p.seconds), metric_text(peak / layout.ranks(), "FLOP/s", 4))},
              {"compute", part_text(p.compute, p) + fmt::format(" (stage {}, the slowest)", p.longest)}};
  if (predicted.iteration) facts.emplace_back("iteration", iteration_text(*predicted.iteration));
  const auto exposed = [&](const char* name, double seconds, const char* what) {
    if (seconds >= 0.0005 * p.seconds) facts.push_back({name, part_text(seconds, p) + ": " + what});  // others are hidden, or do not exist
  };
  exposed("model-parallel comm", p.transfers, "exposed tensor / context / expert communication");
  exposed("host copies", p.copies, "exposed copies to and from host memory");
  exposed("data-parallel comm", p.buckets, "exposed data-parallel communication");
  if (layout.size(Axis::pipeline) > 1) exposed("bubble", bubble(p), "pipeline bubble, exposed send / receive, fixed cost per step");
  else exposed("fixed cost", bubble(p), "cost per step of the cluster file (fit.step)");
  if (const std::string text = retrieval_text(plan, p.seconds, machine); !text.empty()) facts.emplace_back("retrieval", text);
  facts.emplace_back(tokens_title, tokens_text(run));
  facts.emplace_back("training", predicted.iteration ? iterations_text(run, tokens, *predicted.iteration, ranks_of_run(run, layout), cluster)
                                                     : training_text(run, tokens > 0 ? tokens : of_step * double(run.train.steps), of_step, rate,
                                                                     layout.ranks(), cluster));
  facts.emplace_back("save", save_text(run, layout, cluster));
  const double days = training_cost(tokens > 0 ? tokens : of_step * double(run.train.steps), rate, layout.ranks(), cluster).seconds / 86400;
  if (const std::string text = run.policy ? "" : failures_text(plan, cluster, p.seconds, days); !text.empty()) facts.emplace_back("failures", text);
  if (const std::string text = defaults_text(cluster); !text.empty()) facts.emplace_back("defaults", text);
  if (const std::string text = without_overlap_text(plan, predicted, machine); !text.empty()) facts.emplace_back("no overlap", text);
  for (const std::string& note : doubtful_links(cluster, layout.ranks())) facts.emplace_back("links", note);
  for (const std::string& note : doubtful_devices(cluster)) facts.emplace_back("device", note);
  if (cluster.device.gpu && !backend::on_gpu())
    facts.emplace_back(
        "build",
        "this program is built for CPUs, like the one whose errors are stated above. A program built for GPUs predicts about a quarter less time at "
        "0.5B, and is less accurate: use the time printed here");
  if (predicted.traffic.of(LinkClass::islands) > 0) facts.emplace_back("between islands", island_traffic_text(predicted.traffic));
  return facts;
}

std::vector<std::vector<std::string>> link_rows(const LinkTraffic& traffic, const std::function<std::string(double)>& text) {
  std::vector<std::vector<std::string>> rows;
  for (const LinkTraffic::Line& line : traffic.lines)
    rows.push_back({std::string(link_names[std::size_t(line.link)]), line.communicator, std::string(name_of(line.operation)), text(line.bytes),
                    fmt::format("{:.2f}", 100 * line.bytes / traffic.all())});
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
  std::string text = "\n" + prose(source_text(machine)) + "\n" + table.str(false) + prose(not_predicted) + "\n";
  if (predicted.iteration) text += calls_report(plan.run, *predicted.iteration);
  if (plan.layout.ranks() == 1) return text;
  double largest = 0;
  for (const LinkTraffic::Line& line : predicted.traffic.lines) largest = std::max(largest, line.bytes);
  const ByteColumn size(largest);
  Table links({{"link"}, {"communicator"}, {"operation"}, {size.unit(), true}, {"% of all bytes", true}});
  for (const auto& row : link_rows(predicted.traffic, size)) links.row(row);
  return text + prose(fmt::format("\nCommunication of a step by link ({})\n", links_explained)) + links.str();
}

}  // namespace gyr
