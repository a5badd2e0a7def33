// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/graphs.hpp"

#include <fmt/format.h>

#include "modules/layers/experts.hpp"
#include "modules/layers/relative_bias.hpp"

namespace gyr {

namespace {

// Why the host has to learn which experts the rows of a micro-batch have chosen.
std::string why_host_counts(const EngineConfig& c, Grid& grid) {
  if (all_layers(c.model).find('E') == std::string::npos) return "";
  const Layout& layout = grid.layout();
  if (layout.expert > 1) return "experts that ranks deal, who tell each other on their hosts how many rows come";
  if (c.model.moe.capacity_factor > 0) return "experts with room for some rows, which hosts choose";
  const Index rows = layout.sequences(grid.position(), c.micro_batch_size, c.seq_length).rows();
  return groups_rows_on_device(c.model.moe, c.precision, rows) ? "" : "experts whose rows the host counts";
}

// Whether ranks that share sequences send to others than neighbours, which takes the host: those that help each other, and in rings that end early,
// since no query looks further back.
bool sends_beyond_neighbours(const Layout& layout, const std::string& layers) {
  const bool windows = layers.find('W') != std::string::npos;
  return layout.size(Axis::context) > 3 && (layout.context_mode == ContextMode::balanced || (layout.context_mode == ContextMode::ring && windows));
}

}  // namespace

std::string reason_without_graphs(const EngineConfig& c, Grid& grid) {
  const Layout& layout = grid.layout();
  const std::string layers = all_layers(c.model);
  if (const auto other = layers.find_first_not_of("P*WLM-BE"); other != std::string::npos) return fmt::format("layers {}", layers[other]);
  if (const std::string why = why_host_counts(c, grid); !why.empty()) return why;
  if (has_relative_bias(c.model)) return "relative positions";
  if (!c.model.objective->repeats()) return "objective " + std::string(c.model.objective->name());
  if (c.swap.on) return "activations that are swapped";
  if (layout.cut() >= Shard::gradients) return "weights or gradients that take turns in memory";
  if (sends_beyond_neighbours(layout, layers) || !graphs_support(layer_communicators(grid))) return "ranks that exchange by way of the host";
  return "";
}

std::string Engine::graphs() const {
  if (!has_graphs_) return "";
  if (without_graphs_.empty()) return "micro-batches, norm and optimizer";
  return "norm and optimizer; micro-batches are told kernel by kernel: " + without_graphs_;
}

}  // namespace gyr
