// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/graph_replay.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

std::vector<Communicator*> layer_communicators(Grid& grid) {
  std::vector<Communicator*> all;
  const auto add = [&](Communicator& c) { all.push_back(&c); };
  grid.tensor().visit(add);
  if (grid.team()) grid.team()->visit(add);
  if (grid.layout().size(Axis::context) > 1) add(grid.group(Axis::context));
  return all;
}

bool graphs_support(const std::vector<Communicator*>& exchanges) {
  return std::all_of(exchanges.begin(), exchanges.end(), [](Communicator* c) { return DeviceGraph::possible_with(c->transport()); });
}

void GraphReplay::run(Device& dev, const std::function<void()>& enqueue) {
  if (!possible_ || watched(dev) || !std::exchange(enqueued_, true)) return enqueue();
  if (captured()) {
    for (std::size_t i = 0; i < exchanges_.size(); ++i) exchanges_[i]->add(traffic_[i]);
  } else {
    const std::vector<TrafficCount> before = traffic();
    graph_.capture(dev.queue, enqueue);
    traffic_ = traffic();
    for (std::size_t i = 0; i < before.size(); ++i) traffic_[i] = traffic_[i].since(before[i]);
  }
  graph_.launch(dev.queue);
}

std::vector<TrafficCount> GraphReplay::traffic() const {
  std::vector<TrafficCount> all;
  for (const Communicator* c : exchanges_) all.push_back(c->traffic());
  return all;
}

}  // namespace gyr
