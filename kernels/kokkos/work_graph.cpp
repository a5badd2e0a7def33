// SPDX-License-Identifier: BSD-3-Clause
// Stub of CUDA graphs: the Kokkos backend launches every kernel individually.
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

void DeviceGraph::capture(const Queue&, const std::function<void()>&) { ensure(false, "the Kokkos backend has no CUDA graphs"); }
void DeviceGraph::launch(const Queue&) const { ensure(false, "the Kokkos backend has no CUDA graphs"); }

}  // namespace gyr
