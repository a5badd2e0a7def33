// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layout_floor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "modules/cargo.hpp"
#include "modules/flops.hpp"
#include "src/base/precision.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/collective.hpp"
#include "src/planner/prediction.hpp"
#include "src/planner/space.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

constexpr double rounding = 1 - 1e-9;   // sums here are in another order than those of a prediction
constexpr double continued = 1 - 1e-2;  // what is not walked to its end is continued from other walks than the prediction's

// Shares of whose least and most the dry run of a floor is made, which need not be those of the run.
Shares ends_of(const SwapConfig& swap) { return swap.find_alpha || swap.alpha < 1 ? Shares{0, 1} : Shares{1, 1}; }

double between(double none, double all, double share) { return none + share * (all - none); }

// Bytes that a part swaps.
double copied_of(const PartsOfRank& rank, std::size_t part, double share) {
  const double all = rank.parts[part].copied;
  return rank.least.empty() ? all : between(rank.least[part].copied, all, share);
}

// The first position of a stage.
int first_of(const Layout& layout, int stage) {
  return layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? stage : 0; });
}

// The same on ranks that share no sequence, of which each has one.
LayoutChoice with_one_sequence(LayoutChoice c) {
  c.context = c.expert = 1, c.context_mode = ContextMode::ring, c.micro_batch_size = 1;
  return c;
}

// The largest memory that a device has, and that its host has.
Cluster largest_of(const Cluster& cluster) {
  Cluster largest = cluster;
  for (const Cluster& part : cluster.parts) {
    largest.device.memory = std::max(largest.device.memory, part.device.memory);
    if (part.room_on_host(0) > largest.room_on_host(0)) largest.host.memory = part.room_on_host(0);
  }
  return largest;
}

double passes_of(const Cluster& cluster) {
  double most = 0;
  for (int island = 0; island < cluster.islands_that_differ(); ++island)
    most = std::max(most, cluster.island(island).fit.memory * cluster.island(island).device.memory_bandwidth);
  return most;
}

Schedule schedule_of(const LayoutChoice& c) { return c.virtual_stages > 1 ? interleaved : schedules[std::size_t(c.schedule)].schedule; }

// Not sure where weights stay as they are, but where the first layer trains something, and with it one stream.
bool all_go_back(const RunConfig& run) {
  const bool adapters = bool(run.optimizer.lora), frozen = !run.optimizer.frozen.empty();
  if (!adapters && !frozen) return true;
  const std::vector<Weight> weights = declared_weights(run.model);
  const Trained trained = run.optimizer.trained();
  return layers_of_encoder(run.model) == 0 && adapters != frozen &&
         std::any_of(weights.begin(), weights.end(), [&](const Weight& w) { return trained(w) && w.name.starts_with("model.layers.0."); });
}

}  // namespace

LayoutFloor::LayoutFloor(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile)
    : run_(run), ranks_(ranks), cluster_(cluster), largest_(largest_of(cluster)), passes_(passes_of(cluster)), measured_(profile != nullptr),
      backwards_(all_go_back(run)), types_(run.model), runs_(run, cluster, profile), elements_(std::size_t(types_.count()) + 2) {
  ModelConfig model = run.model;
  model.pattern = types_.pattern();
  backwards_ = backwards_ && runs_.train_alike();
  const bool all_trained = backwards_ && !run.optimizer.lora && run.optimizer.frozen.empty();  // patterns are of the whole model's layers
  const std::string layers = "model.layers.";
  std::size_t part = 0;
  for (const Weight& w : declared_weights(model)) {
    if (w.name.starts_with(layers)) part = std::size_t(std::stoi(w.name.substr(layers.size()))) + 1;
    else if (part > 0) part = elements_.size() - 1;
    PartElements& e = elements_[part];
    const bool sharded = w.sharding(Axis::tensor) != nullptr;
    const double size = double(w.size());
    (w.expert ? e.experts : sharded ? e.sharded : e.whole) += size;
    if (w.storage == Storage::wide) e.wide += size;
    ++e.weights;
    if (all_trained) (w.expert ? e.trained_experts : sharded ? e.trained_sharded : e.trained_whole) += size;
  }
}

// On islands stages stand one behind the other, however large their axes are, but for a permutation of the deck's.
LayoutFloor::Staged LayoutFloor::staged(const LayoutChoice& c) const {
  if (run_.parallel.permutation.empty()) return {c.pipeline, c.virtual_stages};
  return {c.pipeline, c.virtual_stages, c.data, c.context, c.tensor, c.expert};
}

const std::vector<Span>& LayoutFloor::stages_of(const LayoutChoice& c) {
  const auto [known, fresh] = stages_.try_emplace(staged(c));
  if (!fresh) return known->second;
  const RunConfig run = with(run_, c);
  Layout layout = layout_of_settled(run.parallel, c.data, c.attention_ranks, {});
  order_by_islands(layout, run.parallel);
  return known->second = gyr::stages_of(run, speeds_of_stages(layout, run.parallel));
}

const std::vector<std::vector<int>>& LayoutFloor::islands_of(const LayoutChoice& c) {
  const auto [known, fresh] = islands_.try_emplace(staged(c));
  if (!fresh) return known->second;
  if (cluster_.parts.empty()) return known->second = std::vector(std::size_t(c.pipeline), std::vector{0});
  const Layout layout = layout_of(c);
  for (int rank = 0; rank < c.pipeline; ++rank) {
    std::vector<int>& islands = known->second.emplace_back();
    for (const auto& [island, there] : on_islands(layout, first_of(layout, rank), cluster_)) islands.push_back(island);
  }
  return known->second;
}

const std::vector<StageContent>& LayoutFloor::contents_of(const LayoutChoice& c) {
  const auto [known, fresh] = contents_.try_emplace(staged(c));
  if (!fresh) return known->second;
  for (const Span& span : stages_of(c)) {
    StageContent& stage = known->second.emplace_back();
    stage.layers.resize(std::size_t(types_.count())), stage.staying = stage.layers;
    for (Index layer = span.first; layer < span.last; ++layer) {
      ++stage.layers[std::size_t(types_.of_layer(layer))];
      if (run_.swap.on && !swaps(span, layer)) ++stage.staying[std::size_t(types_.of_layer(layer))];
    }
    stage.first = span.first == 0, stage.last = span.last == run_.model.layers();
  }
  return known->second;
}

Layout LayoutFloor::layout_of(const LayoutChoice& c) {
  Layout layout = layout_of_settled(with(run_.parallel, c), c.data, c.attention_ranks, stages_of(c));
  order_by_islands(layout, run_.parallel);
  return layout;
}

const std::vector<LayoutFloor::PartElements>& LayoutFloor::elements_of(const LayoutChoice& c) {
  const auto [known, fresh] = elements_of_stages_.try_emplace(staged(c));
  if (fresh)
    for (const StageContent& stage : contents_of(c)) known->second.push_back(elements_of(stage));
  return known->second;
}

LayoutFloor::PartElements LayoutFloor::elements_of(const StageContent& stage) const {
  PartElements sum;
  const auto add = [&](const PartElements& part, double times) {
    for (double PartElements::*of : {&PartElements::sharded, &PartElements::whole, &PartElements::experts, &PartElements::trained_sharded,
                                     &PartElements::trained_whole, &PartElements::trained_experts, &PartElements::wide, &PartElements::weights})
      sum.*of += times * part.*of;
  };
  if (stage.first) add(elements_.front(), 1);
  for (std::size_t type = 0; type < stage.layers.size(); ++type) add(elements_[type + 1], stage.layers[type]);
  if (stage.last) add(elements_.back(), 1);
  return sum;
}

// Of mixers that are apart each rank has one: what is whole on it counts as an even part.
LayoutFloor::Elements LayoutFloor::elements_on(const PartElements& e, const LayoutChoice& c) const {
  const double whole = c.attention_ranks > 0 ? e.whole / c.tensor : e.whole;
  return {e.sharded / c.tensor + whole, e.experts / c.tensor / c.expert};
}

LayoutFloor::Elements LayoutFloor::trained_on(const PartElements& e, const LayoutChoice& c) const {
  const double whole = c.attention_ranks > 0 ? e.trained_whole / c.tensor : e.trained_whole;
  return {e.trained_sharded / c.tensor + whole, e.trained_experts / c.tensor / c.expert};
}

LayoutFloor::Elements LayoutFloor::sharded_on(const PartElements& e, const LayoutChoice& c) const {
  return {e.sharded / c.tensor, e.experts / c.tensor / c.expert};
}

double LayoutFloor::part_of(const Elements& e, const LayoutChoice& c, Shard level) {
  if (c.shard < level) return e.sum();
  return e.others / c.token_ranks() + e.experts / (double(c.token_ranks()) / c.expert);
}

double LayoutFloor::bytes_of_state(const LayoutChoice& c, int rank) {
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  const std::vector<PartElements>& elements = elements_of(c);
  Elements all, trained;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements& e = elements[std::size_t(chunk * c.pipeline + rank)];
    all += elements_on(e, c), trained += trained_on(e, c);
  }
  const double of_wide = double(size_of(wide));
  return rounding * (part_of(all, c, Shard::weights) * double(size_of(narrow)) + part_of(trained, c, Shard::gradients) * of_wide +
                     part_of(trained, c, Shard::optimizer) * of_wide * (narrow != wide ? 3 : 2));
}

MemoryTaken LayoutFloor::states_of(const LayoutChoice& c) {
  MemoryTaken taken;
  for (int rank = 0; rank < c.pipeline; ++rank) add(taken, c, rank, bytes_of_state(c, rank));
  return taken;
}

// An even part may be less than the first rank has of it where mixers are apart: then it is looked for on the largest of the islands.
void LayoutFloor::add(MemoryTaken& taken, const LayoutChoice& c, int rank, double bytes, double host) {
  const std::vector<int>& islands = islands_of(c)[std::size_t(rank)];
  if (c.attention_ranks == 0)
    for (const int island : islands) taken.add(bytes, host, cluster_.island(island));
  else taken.add(bytes, host, largest_);
}

LayoutFloor::Seconds LayoutFloor::seconds_of(const PartCount& count, const Place& place, const Scale& scale) const {
  Seconds sum;
  if (count.compute.empty()) return sum;
  if (scale.exact) sum.compute = count.compute[std::size_t(place.island)];
  else {
    const KernelFloor& floor = count.floor[std::size_t(place.island)];
    sum.compute = scale.rows * floor.products + scale.passes * floor.passes + (scale.attention ? scale.rows * floor.fused : 0);
  }
  for (const auto& [c, line] : count.transfers) {
    const double bytes = scale.exact ? double(line.traffic.bytes) : 0.999 * scale.rows * double(line.traffic.bytes);
    const Index calls = scale.calls ? line.traffic.calls : 1;
    sum.transfers += gyr::seconds_of(line.operation, {calls, Index(bytes)}, place.groups[std::size_t(c)], cluster_);
  }
  for (const HiddenCount& h : count.hidden[std::size_t(place.island)]) {
    const double bytes = scale.exact ? double(h.bytes) : 0.999 * scale.rows * double(h.bytes);
    const double one = gyr::seconds_of(h.operation, {1, Index(bytes)}, place.groups[std::size_t(h.communicator)], cluster_);
    sum.transfers -= seconds_hidden(h, one, scale.exact ? h.beside : measured_ ? one : scale.most * h.beside, cluster_);
  }
  return sum;
}

double LayoutFloor::with_copies(const Seconds& s, double copying, const Cluster& island) {
  return s.transfers + (island.host.beside ? std::max(s.compute, copying) : s.compute + copying);
}

// As Chunk has it: the last two layers of the model stay.
bool LayoutFloor::swaps(const Span& stage, Index layer) const {
  const Index last = stage.last == run_.model.layers() ? stage.last - 2 : stage.last;
  return run_.swap.on && layer >= stage.first && layer < last && run_.model.pattern[std::size_t(layer)] != encoder_end;
}

const LayoutFloor::Places& LayoutFloor::places_of(const LayoutChoice& c, const PartRun& run, bool exact) {
  const auto [known, fresh] = places_.try_emplace({c.data, c.pipeline, c.context, c.tensor, c.attention_ranks, c.expert, exact});
  Places& places = known->second;
  if (!fresh) return places;
  const Layout layout = layout_of(c);
  const auto position_of = [&](int rank, int tensor, int context) {
    return layout.position_at([&](Axis axis) {
      return axis == Axis::pipeline ? rank : axis == Axis::tensor ? tensor : axis == Axis::context ? context : 0;
    });
  };
  for (int rank = 0; rank < c.pipeline; ++rank) {
    // As a prediction has it, the first replica on the first island stands for messages.
    const int here = on_islands(layout, position_of(rank, 0, 0), cluster_).begin()->second;
    const std::vector<int> pipeline = ranks_of(layout, here, name_of(Axis::pipeline).data());
    places.replicas.push_back(placement_of(ranks_of(layout, here, token_axes.text()), cluster_));
    places.expert_replicas.push_back(c.expert > 1 ? placement_of(ranks_of(layout, here, "expert-replicas"), cluster_) : places.replicas.back());
    places.neighbours.push_back(placement_of({layout.rank_at(here), pipeline[std::size_t((rank + 1) % c.pipeline)]}, cluster_));
  }
  places.sharing = placement_of(ranks_of(layout, 0, name_of(Axis::context).data()), cluster_);
  for (const PartsOfRank& parts : run.ranks) {
    std::vector<bool> used(parts.communicators.size());
    for (const Part& part : parts.parts)
      for (const PartCount* count : {&part.forward, &part.backward_input, &part.backward_weights})
        for (const auto& [communicator, line] : count->transfers) used[std::size_t(communicator)] = true;
    std::vector<Place>& kinds = places.kinds.emplace_back();
    std::vector<std::vector<int>>& kinds_of = places.kinds_of.emplace_back();
    for (int rank = 0; rank < c.pipeline; ++rank) {
      std::vector<int>& kinds_here = kinds_of.emplace_back();
      for (const auto& [island, there] : on_islands(layout, position_of(rank, parts.tensor, exact ? parts.context : 0), cluster_)) {
        Place place{island, std::vector<GroupPlacement>(used.size())};
        for (std::size_t i = 0; i < used.size(); ++i)
          if (used[i]) place.groups[i] = placement_of(ranks_of(layout, there, parts.communicators[i]), cluster_);
        const auto same = std::find(kinds.begin(), kinds.end(), place);
        kinds_here.push_back(int(same - kinds.begin()));
        if (same == kinds.end()) kinds.push_back(std::move(place));
      }
    }
  }
  return places;
}

// Where mixers are apart the first ranks attend, and the others scan meanwhile.
bool LayoutFloor::attends(char symbol, const PartsOfRank& rank, const Scale& scale) {
  if (symbol == 'P') return scale.attention_ranks == 0 || rank.tensor < scale.attention_ranks;
  return symbol == '*' || symbol == 'B';
}

// What is made again is linear in the share but for a kernel that is bound by products with some rows and by memory with others: that is told by kind
// of kernel.
LayoutFloor::TimesThere LayoutFloor::times_there(const PartsOfRank& rank, const Place& place, const Scale& scale, const Shares& shares) const {
  TimesThere there{{}, cluster_.island(place.island)};
  Scale by_kind = scale;
  by_kind.exact = false;
  for (const std::vector<Part>* parts : {&rank.parts, &rank.staying})
    for (std::size_t i = 0; i < parts->size(); ++i) {
      const Part& part = (*parts)[i];
      Scale here = scale;
      here.calls = scale.calls || parts != &rank.parts || i + 1 < parts->size();
      PartTimes& t = there.parts.emplace_back(PartTimes{seconds_of(part.forward, place, here)});
      const std::size_t type = parts == &rank.parts ? i - 1 : i;  // none of the embedding and of the head
      const double waits = type < types_.pattern().size() && attends(types_.pattern()[type], rank, scale) ? scale.waits : 0;
      t.forward.transfers += waits;
      if (!backwards_) continue;  // some may end early, and what is behind them does not swap
      t.backward_input = seconds_of(part.backward_input, place, here), t.backward_weights = seconds_of(part.backward_weights, place, here);
      t.backward_input.transfers += waits;
      if (parts != &rank.parts) continue;
      if (!rank.least.empty())
        t.backward_input.compute = std::max(t.backward_input.compute, between(seconds_of(rank.least[i].backward_input, place, by_kind).compute,
                                                                              seconds_of(part.backward_input, place, by_kind).compute, shares.most));
      if (const double bytes = copied_of(rank, i, shares.least); bytes > 0) t.copying = seconds_of_copies(scale.passes * bytes, there.island);
    }
  return there;
}

// A stage takes what the slowest of its ranks do.
void LayoutFloor::add_stage(StageTimes& t, const StageContent& content, const TimesThere& there) const {
  PartTimes sum;
  const auto add = [&](std::size_t place, int count) {
    const PartTimes& part = there.parts[place];
    sum.forward += count * part.forward, sum.backward_input += count * part.backward_input;
    sum.backward_weights += count * part.backward_weights, sum.copying += count * part.copying;
  };
  const std::size_t types = content.layers.size();
  if (content.first) add(0, 1);
  const bool swaps = there.parts.size() > types + 2;
  for (std::size_t type = 0; type < types; ++type) {
    add(type + 1, content.layers[type] - (swaps ? content.staying[type] : 0));
    if (swaps && content.staying[type] > 0) add(types + 2 + type, content.staying[type]);
  }
  if (content.last) add(types + 1, 1);
  t.forward = std::max(t.forward, with_copies(sum.forward, sum.copying, there.island));
  const double backward_input = with_copies(sum.backward_input, sum.copying, there.island), backward_weights = sum.backward_weights.sum();
  if (backward_input + backward_weights > t.backward()) t.backward_input = backward_input, t.backward_weights = backward_weights;
}

// Of each stage, on the slowest of the ranks that stand for it.
std::vector<LayoutFloor::StageTimes> LayoutFloor::times_of(const LayoutChoice& c, const PartRun& run, const Places& places, const Scale& scale,
                                                           const Shares& shares) {
  const std::vector<StageContent>& contents = contents_of(c);
  std::vector<StageTimes> times(contents.size());
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    std::vector<std::shared_ptr<const TimesThere>> seconds;  // of each kind
    for (const Place& kind : places.kinds[i]) seconds.push_back(std::make_shared<const TimesThere>(times_there(run.ranks[i], kind, scale, shares)));
    for (std::size_t stage = 0; stage < contents.size(); ++stage)
      for (const int kind : places.kinds_of[i][stage % std::size_t(c.pipeline)]) {
        const std::shared_ptr<const TimesThere>& there = seconds[std::size_t(kind)];
        add_stage(times[stage], contents[stage], *there);
        if (scale.exact) times[stage].parts.push_back(there);
      }
  }
  for (std::size_t stage = 0; stage < contents.size() && c.pipeline > 1; ++stage)
    times[stage].message = gyr::seconds_of(Operation::send, {1, message_bytes(c)}, places.neighbours[stage % std::size_t(c.pipeline)], cluster_);
  return times;
}

// In one transfer each.
double LayoutFloor::seconds_of(Operation op, const Elements& e, double bytes_of_one, const Places& places, int rank) const {
  double sum = 0;
  for (const bool of_experts : {false, true})
    if (const double bytes = (of_experts ? e.experts : e.others) * bytes_of_one; bytes > 0)
      sum += gyr::seconds_of(op, {1, Index(bytes)}, places.replicas_of(of_experts, rank), cluster_);
  return sum;
}

double LayoutFloor::seconds_of(const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& times) {
  const std::vector<PartElements>& elements = elements_of(c);
  const double m = micros_of(run_, c), n = c.token_ranks();
  const bool splits = schedule_of(c) == zero_bubble;
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  double fill = 0, drain = 0, most = 0, step = 0;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    double forward = 0, backward = 0, least = 0;
    Elements trained, all;
    for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
      const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
      const double of_chunk = m * times[stage].forward + (m - 1) * times[stage].backward();
      forward += times[stage].forward, backward += times[stage].backward();
      least = chunk == 0 ? of_chunk : std::min(least, of_chunk);
      const PartElements& e = elements[stage];
      trained += trained_on(e, c), all += sharded_on(e, c);
    }
    double reduce = 0, gather = 0, clear = 0;
    if (n > 1) {
      const Operation summing = c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter;
      const double travel = double(size_of(run_.parallel.reduce_dtype.value_or(wide)));
      const auto gathering = [&](const Elements& e) {
        return seconds_of(Operation::all_gather, {e.others / n, e.experts / (n / c.expert)}, double(size_of(narrow)), places, rank);
      };
      reduce = seconds_of(summing, trained, travel, places, rank);
      if (c.shard != Shard::none && trained.sum() > 0) gather = gathering(all);
      if (const Turning turning = turning_of(c, rank); turning.trained.sum() > 0) {
        clear = measured_ ? 0 : turning.trained.sum() * double(size_of(wide)) / passes_;
        most = std::max(most, m * (seconds_of(summing, turning.trained, travel, places, rank) +
                                   (c.shard == Shard::weights ? 2 * gathering(turning.gathered) : 0)));
      }
    }
    step = std::max(step, step_of(c, rank));
    const double before = fill, behind = splits ? 0 : drain;
    most = std::max(most, before + m * (forward + backward + clear) + behind);
    most = std::max(most, before + least + reduce);
    most = std::max(most, gather + m * backward + behind);
    if (c.shard == Shard::weights) most = std::max(most, gather + reduce);
    fill += times[std::size_t(rank)].forward + times[std::size_t(rank)].message;
    drain += times[std::size_t(rank)].backward() + times[std::size_t(rank)].message;
  }
  double there = 0, back = 0;  // of a micro-batch through all stages before
  for (const StageTimes& stage : times) {
    most = std::max(most, there + m * (stage.forward + stage.backward()) + (splits ? 0 : back));
    there += stage.forward + stage.message, back += stage.backward() + stage.message;
  }
  return (most + step + cluster_.fit.step) * rounding;
}

// Buckets no larger than a layer take turns where a chunk has several layers. One may be of two chunks, which take it one after the other; of those
// that are gathered two are there from the pass before.
LayoutFloor::Turning LayoutFloor::turning_of(const LayoutChoice& c, int rank) {
  Turning turning;
  if (c.shard < Shard::gradients || c.attention_ranks > 0) return turning;
  const double wide = double(size_of(accumulator_of(precision_of(run_.train.precision))));
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::vector<int>& layers = contents_of(c)[std::size_t(chunk * c.pipeline + rank)].layers;
    Turning of_chunk, largest;
    int count = 0;
    for (std::size_t type = 0; type < layers.size(); ++type) {
      if (layers[type] == 0) continue;
      const Elements trained = trained_on(elements_[type + 1], c), gathered = sharded_on(elements_[type + 1], c);
      if (trained.sum() * wide < double(run_.parallel.bucket_bytes)) return {};
      of_chunk.trained += layers[type] * trained, of_chunk.gathered += layers[type] * gathered, count += layers[type];
      largest = {most_of(largest.trained, trained), most_of(largest.gathered, gathered)};
    }
    if (count < 2) continue;
    turning.trained += of_chunk.trained.less((c.virtual_stages > 1 ? 1 : 0) * largest.trained);
    turning.gathered += of_chunk.gathered.less(4 * largest.gathered);
  }
  return turning;
}

// Gradients begin at zero, a sum of squares, and AdamW over masters, moments and weights. What is cut has gaps between weights, and the first part,
// which stands for all, may have all of them.
double LayoutFloor::step_of(const LayoutChoice& c, int rank) {
  if (measured_) return 0;
  constexpr double gap = 64;
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  const std::vector<PartElements>& elements = elements_of(c);
  Elements trained, masters;
  double gaps = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements& e = elements[std::size_t(chunk * c.pipeline + rank)];
    const Elements here = trained_on(e, c);
    trained += here, masters += here.less({e.wide}), gaps += gap * e.weights;
  }
  const auto part = [&](const Elements& e, Shard level) {
    return c.shard >= level && c.token_ranks() > 1 ? std::max(0.0, part_of(e, c, level) - gaps) : e.sum();
  };
  const double bytes = 8 * part(trained, Shard::optimizer) * double(size_of(wide)) +
                       (narrow != wide ? part(masters, Shard::optimizer) * double(size_of(narrow)) : 0) +
                       part(trained, Shard::gradients) * double(size_of(wide));
  return bytes / passes_;
}

// Nothing is run: an engine knows where its weights lie as soon as there is one.
const LayoutFloor::Held& LayoutFloor::held_by(const RunConfig& run, const Layout& layout, int stage) {
  const int replicas = layout.size(token_axes);
  const bool cut = layout.cut() != Shard::none || layout.expert > 1;
  const std::string key =
      fmt::format("{} t{} a{} e{} c{} n{} z{}", content_of(run.model, layout, stage), layout.size(Axis::tensor), layout.attention_ranks,
                  layout.expert, layout.expert > 1 ? layout.size(Axis::context) : 1, cut ? replicas : std::min(replicas, 2), int(layout.cut()));
  const auto [known, fresh] = held_.try_emplace(key);
  if (!fresh) return known->second;
  EngineConfig config = engine_config(run, layout);
  config.micros = 1;
  Grid grid = Grid::dry_run(layout, positions_of(layout, stage).front());
  Timers timers(engine_timer_names());
  Engine engine(config, grid, nullptr, timers);
  Held& held = known->second;
  held.plan = engine.buckets();
  const Parameters& parameters = engine.stage().parameters();
  const double travels = double(size_of(config.reduce_dtype.value_or(accumulator_of(config.precision))));
  for (const Bucket& bucket : parameters.buckets()) {
    std::vector<Travelling>&reduced = held.reduced.emplace_back(), &gathered = held.gathered.emplace_back();
    double& cleared = held.cleared.emplace_back();
    for (const WeightSection& s : bucket.sections) {
      if (s.trained) cleared += double(size_of(accumulator_of(config.precision))) * double(s.gradient_size);
      const double bytes = s.trained ? travels * double(s.gradient_size) : 0;
      if (layout.cut() == Shard::none && !reduced.empty() && reduced.back().of_experts == s.of_experts) reduced.back().bytes += bytes;  // in one
      else reduced.push_back({bytes, s.of_experts});
      if (s.trained || layout.cut() == Shard::weights)
        gathered.push_back({double(size_of(s.wide ? accumulator_of(config.precision) : config.precision)) * double(s.kept_size()), s.of_experts});
    }
  }
  const Capacity capacity = engine.measured();
  held.state = double(capacity.weights + capacity.gradients + capacity.optimizer);
  return held;
}

// What a layer has swapped comes back while the one behind it goes back, that of the last while it does itself.
double LayoutFloor::seconds_of(const Task& t, const Span& stage, const TimesThere& there) const {
  const std::vector<PartTimes>& of_types = there.parts;
  const Index before = stage.first == 0 ? 1 : 0;  // parts before the first layer
  const std::size_t types = std::size_t(types_.count());
  Seconds sum;
  double copying = 0;
  Index calls = 0;
  const auto copies = [&](Index layer) {
    if (swaps(stage, layer)) copying += of_types[std::size_t(types_.of_layer(layer)) + 1].copying, ++calls;
  };
  for (Index part = t.parts.first; part < t.parts.last; ++part) {
    const Index layer = stage.first + part - before;
    const std::size_t type = part >= before && layer < stage.last ? std::size_t(types_.of_layer(layer)) : 0;
    const PartTimes& p = part < before                          ? of_types.front()
                         : layer >= stage.last                  ? of_types[types + 1]
                         : !run_.swap.on || swaps(stage, layer) ? of_types[type + 1]
                                                                : of_types[types + 2 + type];
    if (t.op == Op::forward) sum += p.forward;
    if (t.op == Op::backward || t.op == Op::backward_input) sum += p.backward_input;
    if (t.op == Op::backward || t.op == Op::backward_weights) sum += p.backward_weights;
    if (part < before || layer >= stage.last || t.op == Op::backward_weights) continue;
    if (t.op == Op::forward || layer + 1 == stage.last) copies(layer);
    if (t.op != Op::forward) copies(layer - 1);
  }
  return sum.sum() + std::max(0.0, copying - beside_copies(sum.compute, calls, t.parts.size(), there.island));
}

TaskTimes LayoutFloor::times_of(const Program& program, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages,
                                const Held& held, int rank) {
  const std::vector<Span>& spans = stages_of(c);
  TaskTimes times{{}, held.plan, cluster_.links_beside};
  times.seconds.reserve(program.tasks.size());
  std::map<std::tuple<Op, int, Index, Index>, double> known;
  const auto computes = [&](const Task& t) {
    const auto [entry, fresh] = known.try_emplace({t.op, t.chunk, t.parts.first, t.parts.last});
    if (!fresh) return entry->second;
    const std::size_t stage = std::size_t(t.chunk * c.pipeline + rank);
    for (const auto& kind : stages[stage].parts) entry->second = std::max(entry->second, seconds_of(t, spans[stage], *kind));
    return entry->second;
  };
  const auto transfers = [&](Operation op, const std::vector<Travelling>& all) {
    double sum = 0;
    for (const Travelling& t : all)
      if (t.bytes > 0) sum += gyr::seconds_of(op, {1, Index(t.bytes)}, places.replicas_of(t.of_experts, rank), cluster_);
    return sum;
  };
  const auto seconds = [&](const Task& t) -> double {
    switch (t.op) {
      case Op::forward:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weights: return computes(t);
      case Op::send: return stages[std::size_t(t.payload == Payload::activations ? rank : t.peer)].message;
      case Op::reduce:
        return transfers(c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter, held.reduced[std::size_t(t.bucket)]);
      case Op::gather: return transfers(Operation::all_gather, held.gathered[std::size_t(t.bucket)]);
      case Op::step: return step_of(c, rank);
      case Op::clear: return measured_ ? 0 : held.cleared[std::size_t(t.bucket)] / passes_;
      case Op::receive: return 0;
    }
    return 0;
  };
  for (const Task& task : program.tasks) times.seconds.push_back(seconds(task));
  // As a prediction has it, those behind the step are alike.
  double gathered = 0;
  std::vector<std::size_t> behind;
  for (std::size_t i = 0; i < program.tasks.size() && c.shard != Shard::weights; ++i)
    if (program.tasks[i].op == Op::gather) behind.push_back(i), gathered += times.seconds[i];
  for (const std::size_t i : behind) times.seconds[i] = gathered / double(behind.size());
  return times;
}

Simulation LayoutFloor::walk(const EngineConfig& config, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& times,
                             const std::vector<const Held*>& held, int micros) {
  std::vector<Program> programs;
  std::vector<TaskTimes> of_tasks;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    const Held& of_rank = *held[std::size_t(rank)];
    programs.push_back(compile(config.schedule, {c.pipeline, c.virtual_stages, micros}, rank, of_rank.plan));
    of_tasks.push_back(times_of(programs.back(), c, places, times, of_rank, rank));
  }
  return timeline(programs, of_tasks);
}

LayoutFloor::Floor LayoutFloor::of_programs(const LayoutChoice& c, const Shares& shares) {
  RunConfig run = with(run_, c);
  if (run.swap.find_alpha) run.swap = {run.swap.on, shares.most};  // programs and weights are alike
  const Layout layout = layout_of(c);
  const EngineConfig config = engine_config(run, layout);
  const PartRun& parts = runs_.of(c, config.schedule == zero_bubble, run_.swap.find_alpha ? Shares{0, 1} : shares);
  const Places& places = places_of(c, parts, true);
  const std::vector<StageTimes> times = times_of(c, parts, places, {}, within(shares, c));
  std::vector<const Held*> held;
  Floor floor;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    held.push_back(&held_by(run, layout, rank));
    add(floor.taken, c, rank, held.back()->state + bytes_of_kept(c, parts, parts.ranks.front(), rank, within(shares, c)),
        bytes_on_host(c, parts.ranks.front(), rank, within(shares, c)));
  }
  floor.seconds =
      walked_seconds(config.micros, c.pipeline, [&](int micros) { return walk(config, c, places, times, held, micros); }) + cluster_.fit.step;
  floor.seconds *= is_walked(config.micros, c.pipeline) ? rounding : continued;
  return floor;
}

// Each chunk of a rank keeps the micro-batches between its forward and its backward. One of them also has what its head computes with, or its last
// layer while it goes back: where that is split, the parts have to be of a run that splits it.
double LayoutFloor::bytes_of_kept(const LayoutChoice& c, const PartRun& run, const PartsOfRank& parts, int rank, const Shares& shares) {
  if (run_.swap.on) return bytes_of_swapping(c, parts, rank, shares);
  const std::vector<StageContent>& contents = contents_of(c);
  const bool as_it_goes_back = backwards_ && run.split == (schedule_of(c) == zero_bubble);
  double sum = 0, more = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
    const std::vector<int>& layers = contents[stage].layers;
    double kept = 0;
    for (std::size_t type = 0; type < layers.size(); ++type) kept += double(layers[type]) * double(parts.parts[type + 1].kept);
    sum += kept * in_flight(c, rank, chunk);
    if (!as_it_goes_back) continue;
    if (contents[stage].last) more = std::max(more, double(parts.parts.back().most));
    if (const Span& span = stages_of(c)[stage]; span.size() > 0)
      more = std::max(more, double(parts.parts[std::size_t(types_.of_layer(span.last - 1)) + 1].back));
  }
  return sum + more;
}

// Of each micro-batch between its forward and its backward what layers keep that stay, or what goes to the next stage. Of one of them also what a
// layer has while it goes back and the one before comes back, or what the head computes with. Where backwards are split, a layer has what it keeps.
double LayoutFloor::bytes_of_swapping(const LayoutChoice& c, const PartsOfRank& parts, int rank, const Shares& shares) {
  if (!backwards_) return 0;
  const std::size_t types = std::size_t(types_.count());
  const bool splits = schedule_of(c) == zero_bubble;
  double sum = 0, more = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
    const StageContent& content = contents_of(c)[stage];
    const Span& span = stages_of(c)[stage];
    double kept = content.last ? 0 : double(message_bytes(c));
    for (std::size_t type = 0; type < types; ++type) kept += double(content.staying[type]) * double(parts.staying[type].kept);
    sum += kept * in_flight(c, rank, chunk);
    if (content.last) more = std::max(more, double(parts.parts[types + 1].most));
    for (Index layer = span.first; layer < span.last; ++layer) {
      if (!swaps(span, layer)) continue;
      const double before = swaps(span, layer - 1) ? copied_of(parts, std::size_t(types_.of_layer(layer - 1)) + 1, shares.least) : 0;
      const std::size_t type = std::size_t(types_.of_layer(layer));
      const double back = double(splits ? parts.staying[type].kept : parts.parts[type + 1].most);
      more = std::max(more, back + before - kept);
    }
  }
  return sum + more;
}

double LayoutFloor::bytes_on_host(const LayoutChoice& c, const PartsOfRank& parts, int rank, const Shares& shares) {
  if (!run_.swap.on || !backwards_) return 0;
  double sum = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const StageContent& content = contents_of(c)[std::size_t(chunk * c.pipeline + rank)];
    double swapped = 0;
    for (std::size_t type = 0; type < content.layers.size(); ++type)
      swapped += (content.layers[type] - content.staying[type]) * copied_of(parts, type + 1, shares.least);
    sum += swapped * in_flight(c, rank, chunk);
  }
  return sum;
}

// Beside an even part of the weights: where each rank has one of the mixers, of the one that keeps less.
double LayoutFloor::least_kept(const LayoutChoice& c, const PartRun& run, int rank, const Shares& shares) {
  double least = bytes_of_kept(c, run, run.ranks.front(), rank, shares);
  for (const PartsOfRank& parts : run.ranks)
    if (c.attention_ranks > 0) least = std::min(least, bytes_of_kept(c, run, parts, rank, shares));
  return least;
}

double LayoutFloor::least_on_host(const LayoutChoice& c, const PartRun& run, int rank, const Shares& shares) {
  double least = bytes_on_host(c, run.ranks.front(), rank, shares);
  for (const PartsOfRank& parts : run.ranks)
    if (c.attention_ranks > 0) least = std::min(least, bytes_on_host(c, parts, rank, shares));
  return least;
}

Index LayoutFloor::message_bytes(const LayoutChoice& c) const {
  const Index tokens = c.micro_batch_size * run_.lengths().text / c.context / (c.sequence ? c.tensor : 1);
  return tokens * run_.model.hidden_size * size_of(precision_of(run_.train.precision));
}

int LayoutFloor::in_flight(const LayoutChoice& c, int rank, int chunk) {
  const int micros = micros_of(run_, c);
  const Schedule schedule = schedule_of(c);
  if (schedule == all_forward_all_backward) return micros;
  const int enough = std::min(micros, micros % c.pipeline + 4 * c.pipeline);
  auto& known = in_flight_[{c.pipeline, c.virtual_stages * 8 + c.schedule, enough, rank}];
  if (known.empty()) {
    const std::vector<Turn> turns = schedule({c.pipeline, c.virtual_stages, std::max(1, enough)}, rank);
    for (int each = 0; each < c.virtual_stages; ++each) known.push_back(gyr::in_flight(turns, each));
  }
  return known[std::size_t(chunk)];
}

// A pass over rows reads the rows, of which there are as many times more or fewer, and little besides that stays as it is: less than as much as
// `others` rows are. Tables of distances may be large.
LayoutFloor::Scale LayoutFloor::scale_of(const LayoutChoice& c, Index context) const {
  constexpr double others = 16;
  const double counted = double(run_.lengths().text) / double(context);
  // Where tensor ranks have shares of the rows, the last may be padded, and of more rows less of it.
  const double padded = c.sequence ? counted / (c.tensor * std::ceil(counted / c.tensor)) : 1;
  const double whole = double(c.micro_batch_size) * double(context) / double(c.context), rows = padded * whole;
  const double passed = run_.model.attention.relative_bias.buckets > 0 ? 0 : std::max(0.0, 1 - others / counted);
  return {rows, rows <= 1 ? rows : 1 + (rows - 1) * passed, false, context == c.context, std::max(1.0, whole), whole >= 1};
}

LayoutFloor::Floor LayoutFloor::of_best(const LayoutChoice& shape, const Places& places, const std::vector<StageTimes>& times) {
  LayoutChoice best = shape;
  for (const int schedule : schedules_of(run_, shape, micros_of(run_, shape)))
    if (schedules[std::size_t(schedule)].schedule == zero_bubble) best.schedule = schedule;
  // Where more is cut, more has room and more is moved.
  Floor least{std::numeric_limits<double>::infinity()};
  for (const Shard shard : shards_of(run_, shape)) {
    best.shard = shard;
    const MemoryTaken taken = states_of(best);
    if (!taken.of_device.lacks()) least.seconds = std::min(least.seconds, seconds_of(best, places, times));
    least.taken = taken;
  }
  return least;
}

double LayoutFloor::meeting(const LayoutChoice& c, const Places& places) const {
  double one = places.sharing.nodes > 1 ? std::min(cluster_.network.latency, cluster_.islands.latency) : cluster_.node.latency;
  for (const Cluster& part : cluster_.parts) one = std::min({one, part.network.latency, part.node.latency, cluster_.islands.latency});
  switch (c.context_mode) {
    case ContextMode::ring: return (c.context - 1) * one;
    case ContextMode::heads: return 2 * one;
    case ContextMode::balanced: return std::max(0, c.context / 2 - 1) * one;
  }
  return 0;
}

// Rows are swapped in blocks.
Shares LayoutFloor::within(const Shares& shares, const LayoutChoice& c) const {
  if (!run_.swap.on || (!run_.swap.find_alpha && shares.least == 1)) return shares;
  const TextLengths lengths = run_.lengths();
  const Index tokens = lengths.source > 0 ? std::min(lengths.text, lengths.source) : lengths.text;
  const double rows = std::floor(double(c.micro_batch_size * tokens) / c.context / (c.sequence ? c.tensor : 1));
  return {std::max(0.0, shares.least - double(Cargo::row_block) / rows), shares.most};
}

// Of a share that is to be found ranges are halved, that of the least first, until that is no longer than `finest`. Where the host has no room for
// the least of a range it is not there.
LayoutFloor::Floor LayoutFloor::least_of(FloorOf of_shares, const LayoutChoice& c, double finest) {
  if (!run_.swap.find_alpha) return (this->*of_shares)(c, {run_.swap.alpha, run_.swap.alpha});
  using Range = std::pair<double, std::pair<double, double>>;  // seconds, of shares
  std::priority_queue<Range, std::vector<Range>, std::greater<>> ranges;
  const Floor all = (this->*of_shares)(c, {0, 1});
  ranges.push({all.seconds, {0, 1}});
  while (true) {
    const auto [seconds, shares] = ranges.top();
    const auto [least, most] = shares;
    if (most - least <= finest || all.taken.of_device.lacks() || all.taken.of_host.lacks()) return {seconds, all.taken};
    ranges.pop();
    const double middle = (least + most) / 2;
    for (const Shares& half : {Shares{least, middle}, Shares{middle, most}})
      if (const Floor floor = (this->*of_shares)(c, half); half.least == 0 || !floor.taken.of_host.lacks())
        ranges.push({std::max(seconds, floor.seconds), {half.least, half.most}});
  }
}

LayoutFloor::Floor LayoutFloor::of_swapping(const LayoutChoice& c) { return least_of(&LayoutFloor::of_swapping, c); }
LayoutFloor::Floor LayoutFloor::of_shared(const LayoutChoice& c) { return least_of(&LayoutFloor::of_shared, c); }
LayoutFloor::Floor LayoutFloor::of(const LayoutChoice& c) { return least_of(&LayoutFloor::of, c); }
LayoutFloor::Floor LayoutFloor::of_programs(const LayoutChoice& c) { return least_of(&LayoutFloor::of_programs, c, 1.0 / 128); }

LayoutFloor::Floor LayoutFloor::of_shape(const LayoutChoice& shape) {
  LayoutChoice best = shape;
  best.shard = shards_of(run_, shape).back();
  if (const MemoryTaken taken = states_of(best); taken.of_device.lacks()) return {0, taken};
  return of_one_sequence(shape, runs_.of_kept(with_one_sequence(shape)), {});
}

LayoutFloor::Floor LayoutFloor::of_swapping(const LayoutChoice& shape, const Shares& shares) {
  return of_one_sequence(shape, runs_.of(with_one_sequence(shape), false, ends_of(run_.swap)), within(shares, shape));
}

LayoutFloor::Floor LayoutFloor::of_one_sequence(const LayoutChoice& shape, const PartRun& run, const Shares& shares) {
  const Places& places = places_of(shape, run, false);
  Scale scale = scale_of(shape, 1);
  if (shape.context > 1) scale.waits = meeting(shape, places), scale.attention_ranks = shape.attention_ranks;
  return of_best(shape, places, times_of(shape, run, places, scale, shares));
}

LayoutFloor::Floor LayoutFloor::of_shared(const LayoutChoice& shape, const Shares& shares) {
  LayoutChoice base = shape;
  base.micro_batch_size = 1;
  const PartRun& run = runs_.of(base, false, ends_of(run_.swap));
  const Places& places = places_of(shape, run, true);
  return of_best(shape, places, times_of(shape, run, places, scale_of(shape, shape.context), within(shares, shape)));
}

LayoutFloor::Floor LayoutFloor::of(const LayoutChoice& c, const Shares& shares) {
  const Shares rows = run_.swap.find_alpha ? within(shares, c) : shares;
  const PartRun& run = runs_.of(c, false, run_.swap.find_alpha ? Shares{0, 1} : shares);
  const Places& places = places_of(c, run, true);
  Floor floor{seconds_of(c, places, times_of(c, run, places, {}, rows))};
  for (int rank = 0; rank < c.pipeline; ++rank)
    add(floor.taken, c, rank, bytes_of_state(c, rank) + least_kept(c, run, rank, rows), least_on_host(c, run, rank, rows));
  return floor;
}

}  // namespace gyr
