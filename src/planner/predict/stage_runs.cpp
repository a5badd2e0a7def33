// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/stage_runs.hpp"

#include <numeric>
#include <set>

namespace gyr {

namespace {

std::string text_of(const RecomputeConfig& c) {
  const auto number = [](const Recompute& r) { return r ? int(*r) + 1 : 0; };
  std::string text = fmt::format("{}", number(c.all));
  for (const auto& [symbol, policy] : c.by_type) text += fmt::format("{}{}", symbol, number(policy));
  return text;
}

// Settings that a dry run of this model depends on.
std::string key_of(const EngineConfig& c, const Layout& l, int position) {
  const int replicas = l.size(token_axes);
  const bool sharded = l.zero_shard() != Shard::none || l.expert > 1;
  return fmt::format("{} t{}/{} c{}/{} {} {} a{} e{} {} s{} r{} z{} b{} m{} x{} p{} {} h{}/{} g{}",
                     content_of(c.model, l, l.coordinate(position, Axis::pipeline)), l.coordinate(position, Axis::tensor), l.size(Axis::tensor),
                     l.coordinate(position, Axis::context), l.size(Axis::context), int(l.context_mode), int(l.order), l.attention_ranks, l.expert,
                     l.expert_receive_capacity, l.sequence, sharded ? replicas : std::min(replicas, 2), int(l.zero_shard()), l.bucket_bytes,
                     c.micro_batch_size, c.micros, c.schedule == zero_bubble, text_of(c.recompute), c.offload.on, c.offload.alpha,
                     c.planned_gpu ? int(*c.planned_gpu) : -1);
}

}  // namespace

std::string content_of(const ModelConfig& model, const Layout& layout, int stage) {
  const PipelineShape shape = pipeline_shape(layout, 1);
  std::string text = stage == 0 ? "first" : stage == shape.ranks - 1 ? "last" : "";
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const Span layers = layout.stages[shape.stage(stage, chunk)];
    text += layers.first < layers_of_encoder(model) ? '>' : '|';
    text.append(model.pattern, std::size_t(layers.first), std::size_t(layers.size()));
    // The first layer R has the encoder, and neighbours are passed on up to the last one.
    if (const Span reading = retrieval_layers(model); reading.size() > 0)
      text += fmt::format(" {:d}{:d}{:d}", layers.first <= reading.first, layers.first < reading.last, layers.last < reading.last);
  }
  return text;
}

std::vector<int> positions_of(const Layout& layout, int stage) {
  std::set<int> positions;
  for (const bool last_tensor : {false, true})
    for (const bool last_context : {false, true})
      positions.insert(layout.position_at([&](Axis axis) {
        if (axis == Axis::pipeline) return stage;
        if (axis == Axis::tensor && last_tensor) return layout.size(Axis::tensor) - 1;
        if (axis == Axis::context && last_context) return layout.size(Axis::context) - 1;
        return 0;
      }));
  return {positions.begin(), positions.end()};
}

std::shared_ptr<const StageRun> StageRuns::of(const EngineConfig& planned, const Layout& layout, int position) {
  auto& run = runs_[key_of(planned, layout, position)];
  if (run) return run;
  RankPlan plan = plan_rank(planned, layout, position, {}, &known_);
  Program program = compile(planned.schedule, pipeline_shape(layout, planned.micros), layout.coordinate(position, Axis::pipeline), plan.buckets);
  run = std::make_shared<StageRun>(StageRun{std::move(plan), std::move(program), planned.precision});
  return run;
}

// A slot is the memory of one micro-batch in flight. A single slot also holds the blocks that several slots would
// share, so its memory is planned again if the number of slots changes from or to one.
Capacity StageRun::capacity(const std::vector<int>& slots) const {
  Capacity c = plan.capacity;
  const auto all = [](const std::vector<int>& counts) { return std::accumulate(counts.begin(), counts.end(), 0); };
  const bool single = all(slots) == 1, was_single = all(program.slots) == 1;
  for (std::size_t chunk = 0; chunk < c.training.size(); ++chunk) {
    ReplayedSlots& replayed = c.training[chunk];
    replayed.count = slots.at(chunk);
    if (single == was_single) continue;
    replayed.bytes = replayed.shared = 0;
    for (const auto& script : replayed.rooms) {
      const SlotPlan other = plan_slot(script->blocks, single);
      replayed.bytes = std::max(replayed.bytes, other.slot), replayed.shared = std::max(replayed.shared, other.shared);
    }
  }
  return c;
}

}  // namespace gyr
