// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/graphs.hpp"

#include <fmt/format.h>

#include "modules/relative_bias.hpp"

namespace gyr {

std::string why_kernel_by_kernel(const EngineConfig& c, Grid& grid) {
  const std::string layers = c.model.pattern + c.model.objective->head_layers();
  if (const auto other = layers.find_first_not_of("P*WLM-B"); other != std::string::npos) return fmt::format("layers {}", layers[other]);
  if (has_relative_bias(c.model)) return "relative positions";
  if (!c.model.objective->repeats()) return "objective " + std::string(c.model.objective->name());
  if (c.model.dropout.any()) return "dropout";
  if (c.packed) return "documents that are packed";
  if (c.swap.on) return "activations that are swapped";
  if (grid.layout().cut() >= Shard::gradients) return "weights or gradients that take turns in memory";
  if (grid.layout().size(Axis::context) > 1) return "sequences that ranks share";
  if (!graphs_hold(exchanges_of_layers(grid))) return "ranks that exchange by way of the host";
  return "";
}

std::string Engine::graphs() const {
  if (!has_graphs_) return "";
  if (kernel_by_kernel_.empty()) return "micro-batches, norm and optimizer";
  return "norm and optimizer; micro-batches are told kernel by kernel: " + kernel_by_kernel_;
}

}  // namespace gyr
