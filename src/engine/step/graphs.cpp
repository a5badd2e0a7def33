// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/graphs.hpp"

#include <fmt/format.h>

#include "modules/layers/experts.hpp"
#include "modules/layers/relative_bias.hpp"

namespace gyr {

namespace {

// Reason why the host must know which experts the rows of a micro-batch have chosen; empty if it need not.
std::string why_host_counts(const EngineConfig& c, Grid& grid) {
  if (!has_layer(all_layers(c.model), &LayerTraits::experts)) return "";
  const Layout& layout = grid.layout();
  if (layout.expert > 1) return "expert parallelism, in which the hosts exchange row counts";
  if (c.model.moe.capacity_factor > 0) return "experts with a capacity limit, which the host applies";
  const Index rows = layout.sequences(grid.position(), c.micro_batch_size, c.seq_length).rows();
  return groups_rows_on_device(c.model.moe, c.precision, rows) ? "" : "experts whose rows the host counts";
}

// True if context-parallel ranks send to others than their neighbours, which requires the host. Load-balanced context
// parallelism does, and so do rings with sliding windows, which end early.
bool sends_beyond_neighbours(const Layout& layout, const std::string& layers) {
  const bool windows = has_layer(layers, attends(AttentionKind::window));
  return layout.size(Axis::context) > 3 && (layout.context_mode == ContextMode::balanced || (layout.context_mode == ContextMode::ring && windows));
}

}  // namespace

std::string reason_without_graphs(const EngineConfig& c, Grid& grid) {
  const Layout& layout = grid.layout();
  const std::string layers = all_layers(c.model);
  if (const auto other = find_layer(layers, std::not_fn(&LayerTraits::same_launches)); other != std::string::npos)
    return fmt::format("layers of type {}", layers[other]);
  if (const std::string why = why_host_counts(c, grid); !why.empty()) return why;
  if (has_relative_bias(c.model)) return "relative position bias";
  if (!c.model.objective->repeats()) return "objective " + std::string(c.model.objective->name());
  if (c.offload.on) return "offload of activations to the host";
  if (layout.zero_shard() >= Shard::gradients) return "sharded gradients or weights (ZeRO-2, ZeRO-3), whose buckets share two buffers";
  if (sends_beyond_neighbours(layout, layers) || !graphs_support(layer_communicators(grid)))
    return "communication inside layers that passes through the host";
  return "";
}

std::string Engine::graphs() const {
  if (!has_graphs_) return "";
  if (without_graphs_.empty()) return "micro-batches, gradient norm and optimizer";
  return "gradient norm and optimizer; micro-batches are launched kernel by kernel because of: " + without_graphs_;
}

}  // namespace gyr
