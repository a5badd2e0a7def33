// SPDX-License-Identifier: BSD-3-Clause
// Kokkos is told each kernel by itself.
#include "kernels/work_graph.hpp"

#include "kernels/error.hpp"

namespace gyr {

struct WorkGraph::State {};

bool WorkGraph::possible() { return false; }
bool WorkGraph::possible_with(const Transport&) { return false; }

WorkGraph::WorkGraph() = default;
WorkGraph::~WorkGraph() = default;
WorkGraph::WorkGraph(WorkGraph&&) noexcept = default;
WorkGraph& WorkGraph::operator=(WorkGraph&&) noexcept = default;

void WorkGraph::capture(const Queue&, const std::function<void()>&) { ensure(false, "Kokkos has no graphs of work"); }
void WorkGraph::launch(const Queue&) const { ensure(false, "Kokkos has no graphs of work"); }

}  // namespace gyr
