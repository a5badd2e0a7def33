// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/run_plan.hpp"

#include <algorithm>
#include <map>

#include "src/config/generation_ranks.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/policy_generator.hpp"
#include "src/train/scoring_models.hpp"

namespace gyr {

namespace {

std::vector<RankPlan> planned_ranks(const EngineConfig& config, const Layout& layout) {
  std::vector<RankPlan> ranks;
  for (int position = 0; position < layout.ranks(); ++position)
    if (layout.coordinate(position, Axis::data) == 0) ranks.push_back(plan_rank(config, layout, position));
  return ranks;
}

// Memory of further models on a rank of the run: their weights, gradients and optimizer, and what they need of working memory.
struct FurtherMemory {
  std::vector<MemoryLine> lines;
  Index working = 0;

  Index sum() const {
    Index bytes = 0;
    for (const MemoryLine& line : lines) bytes += line.bytes;
    return bytes;
  }
};

FurtherMemory further_memory(const std::vector<FurtherPlan>& further, int rank) {
  FurtherMemory memory;
  for (const FurtherPlan& f : further)
    if (const std::optional<int> here = f.placed.mesh.index_of(rank)) {
      const Capacity& capacity = plan_at(f.ranks, f.placed.layout, f.placed.layout.position_of(*here)).capacity;
      for (const auto& [category, bytes] :
           {std::pair(Memory::weights, capacity.weights), {Memory::gradients, capacity.gradients}, {Memory::optimizer, capacity.optimizer}})
        if (bytes > 0) memory.lines.push_back({category, fmt::format("{} of models.{}", name_of(category), f.placed.use.name), bytes});
      memory.working = std::max(memory.working, capacity.working());
    }
  return memory;
}

// Adds the further models on the replica of this rank that needs most for them.
void add_further(RankPlan& plan, const Layout& layout, const std::vector<FurtherPlan>& further) {
  FurtherMemory most;
  Index bytes = -1;
  for (int data = 0; data < layout.size(Axis::data); ++data) {
    const int position = layout.position_at([&](Axis a) { return a == Axis::data ? data : layout.coordinate(plan.position, a); });
    FurtherMemory memory = further_memory(further, layout.rank_at(position));
    const Index all = memory.sum() + std::max(memory.working, plan.capacity.working());
    if (all > bytes) bytes = all, most = std::move(memory);
  }
  for (const MemoryLine& line : most.lines) {
    Capacity& c = plan.capacity;
    (line.category == Memory::weights ? c.weights : line.category == Memory::gradients ? c.gradients : c.optimizer) += line.bytes;
    plan.memory.push_back(line);
  }
  if (const Index more = most.working - plan.capacity.working(); more > 0) {
    plan.capacity.scratch += most.working - (plan.capacity.forward_slots() + plan.capacity.scratch);
    plan.memory.push_back({Memory::scratch, "activations and scratch of further models, beyond those of the trained model", more});
  }
}

// Adds the memory of generation on the replica of this rank that needs most for it.
void add_generator(RankPlan& plan, const EngineConfig& config, const Layout& layout, const GenerationPlace& place, const GeneratorCapacity& limits,
                   std::map<int, GeneratorBytes>& known) {
  GeneratorBytes most;
  for (int data = 0; data < layout.size(Axis::data); ++data) {
    const int of_training = layout.rank_at(layout.position_at([&](Axis a) { return a == Axis::data ? data : layout.coordinate(plan.position, a); }));
    const int rank = place.training.ranks[std::size_t(of_training)];
    const std::optional<int> here = place.mesh.index_of(rank);
    if (!here) continue;
    const int position = place.layout.position_of(*here);
    // Ranks that differ in their data and context coordinates need the same.
    const int like =
        place.layout.position_at([&](Axis a) { return a == Axis::data || a == Axis::context ? 0 : place.layout.coordinate(position, a); });
    const auto found = known.find(like);
    const GeneratorBytes bytes =
        found != known.end() ? found->second : known.emplace(like, generation_bytes(config.model, place, limits, rank)).first->second;
    if (bytes.weights + bytes.working > most.weights + most.working) most = bytes;
  }
  plan.capacity.weights += most.weights;
  if (most.weights > 0) plan.memory.push_back({Memory::weights, "weights of generation", most.weights});
  const Index more = most.working - plan.capacity.working();
  if (more <= 0) return;
  plan.capacity = with_working(plan.capacity, most.working);
  plan.memory.push_back({Memory::scratch, "KV cache, state and scratch of generation, beyond those of training", more});
}

std::vector<RankPlan> planned_generators(const ModelConfig& model, const GenerationPlace& place, const GeneratorCapacity& limits) {
  std::vector<RankPlan> ranks;
  for (int position = 0; position < place.layout.ranks(); ++position) {
    const int rank = place.mesh.ranks[std::size_t(place.layout.rank_at(position))];
    if (place.training.index_of(rank) || place.layout.coordinate(position, Axis::data) > 0) continue;
    const GeneratorBytes bytes = generation_bytes(model, place, limits, rank);
    RankPlan& plan = ranks.emplace_back();
    plan.position = position, plan.parameters = bytes.parameters, plan.flops = 0;
    plan.capacity.weights = bytes.weights, plan.capacity.scratch = plan.capacity.live = bytes.working;
  }
  return ranks;
}

}  // namespace

const RankPlan& plan_at(const std::vector<RankPlan>& ranks, const Layout& layout, int position) {
  const int first = layout.position_at([&](Axis a) { return a == Axis::data ? 0 : layout.coordinate(position, a); });
  return *std::lower_bound(ranks.begin(), ranks.end(), first, [](const RankPlan& plan, int wanted) { return plan.position < wanted; });
}

FurtherPlan::FurtherPlan(PlacedModel model) : placed(std::move(model)), config(scoring_config(placed)), ranks(planned_ranks(config, placed.layout)) {}

RunPlan::RunPlan(RunConfig r, int number)
    : run(std::move(r)), layout(layout_of(run, training_ranks(run, number).size())), config(engine_config(run, layout)),
      ranks(planned_ranks(config, layout)) {
  for (PlacedModel& placed : placed_models(run, layout.ranks())) further.emplace_back(std::move(placed));
  for (RankPlan& plan : ranks) add_further(plan, layout, further);
  if (!run.policy) return;
  generation = generation_place(run, layout);
  const GeneratorCapacity limits = generator_capacity(run, longest_prompt(run), generation->layout);
  std::map<int, GeneratorBytes> known;  // by position in the layout of generation
  for (RankPlan& plan : ranks) add_generator(plan, config, layout, *generation, limits, known);
  generators = planned_generators(config.model, *generation, limits);
}

const RankPlan& RunPlan::largest_rank() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) { return a.capacity.total() < b.capacity.total(); });
}

const RankPlan& RunPlan::slowest() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) { return a.flops < b.flops; });
}

}  // namespace gyr
