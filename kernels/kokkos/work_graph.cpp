// SPDX-License-Identifier: BSD-3-Clause
// Kokkos is told each kernel by itself.
#include "kernels/device/device_graph.hpp"

#include "kernels/base/error.hpp"

namespace gyr {

struct DeviceGraph::State {};

bool DeviceGraph::possible() { return false; }
bool DeviceGraph::possible_with(const Transport&) { return false; }

DeviceGraph::DeviceGraph() = default;
DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;

void DeviceGraph::capture(const Queue&, const std::function<void()>&) { ensure(false, "Kokkos has no graphs of work"); }
void DeviceGraph::launch(const Queue&) const { ensure(false, "Kokkos has no graphs of work"); }

}  // namespace gyr
