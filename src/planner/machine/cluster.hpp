// SPDX-License-Identifier: BSD-3-Clause
// A cluster as its file describes it: nodes of equal devices, one for each rank, and the links between them by class. What no data sheet says,
// because it depends on kernels and libraries, is in few constants, which are fitted to measured steps. Of islands that differ, each has a file of
// its own, and theirs says which they are and how they are linked.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "src/deck/deck.hpp"
#include "src/parallel/islands.hpp"

namespace gyr {

// From one device to another, in one direction.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second, of one device
  double sums = 1;       // part of it that is reached where numbers are added up on the way
};

struct Cluster {
  std::string name;
  Index nodes = 0;         // 0: as many as a run asks for
  Index island_nodes = 0;  // nodes that share a network; 0: all
  Index per_node = 1;      // devices

  struct Device {
    double memory = 0;                       // bytes
    double memory_bandwidth = 0;             // bytes a second
    double fp64 = 0, fp32 = 0, bf16 = 0;     // peak of matrix products, flop/s
    double watts = 0;                        // 0: not known
    bool fused = false;                      // tiles of attention stay on the chip
    double gemm_rate(DType operands) const;  // of matrix products
  } device;

  // The host's memory, for what is swapped to it.
  struct Host {
    double memory = 0;     // bytes for each device; 0: it is the device's, which holds both
    double bandwidth = 0;  // bytes a second between the two, in one direction while the other is busy; 0: not known
    bool beside = false;   // copies are made while the device computes
  } host;

  Link node, network, islands;  // inside a node, between nodes of an island, between islands
  bool links_beside = true;     // transfers advance while the device computes, and take none of its time

  // Fitted: what part of the numbers above is reached, and what a step costs besides.
  struct Fit {
    double products = 1;  // of the peak, large matrix products
    double fused = 1;     // of the peak, products inside attention and scan
    double memory = 1;    // of the bandwidth, passes over memory
    double links = 1;     // of the bandwidth, transfers
    double step = 0;      // seconds in which nothing of the model is done: data, host, what is not hidden
  } fit;

  static constexpr int constants = 5;  // of Fit
  // Islands that differ, in the order of their ranks, each with nodes of its own. `device`, `host`, `node` and `network` are then the least of
  // theirs.
  std::vector<Cluster> parts = {};

  void limit_memory(double bytes);  // of every device
  // Bytes that a rank may swap which takes so many of its device.
  double host_memory_left(double taken) const { return host.memory > 0 ? host.memory : device.memory - taken; }
  Index devices() const;  // 0: as many as a run asks for
  // Where a rank of the job stands: ranks fill node after node, and island after island.
  struct Place {
    int island = 0;
    Index node = 0;
  };
  Place place_of(Index rank) const;
  int different_islands() const { return parts.empty() ? 1 : int(parts.size()); }  // 1: all are alike
  const Cluster& island(int number) const { return parts.empty() ? *this : parts.at(std::size_t(number)); }
  const Cluster& island_of(Index rank) const { return island(parts.empty() ? 0 : place_of(rank).island); }
  // Of so many ranks together: peak of matrix products in flop/s, and watts; 0 where those of some are not known.
  double peak(Index ranks, DType operands) const;
  double watts(Index ranks) const;
};

// Exit::config where there are too few devices.
void check_room(const Cluster&, int ranks);

// The islands that so many ranks are on, by the rate of products that theirs reach; none where all ranks are alike.
Islands islands_of(const Cluster&, int ranks, DType operands);

// Exit::missing or Exit::config with file:line.
Cluster read_cluster(const std::string& file);
// What keys there are, for help.
std::string cluster_keys();
// As a file, which reads back the same; `comment` stands before it, in lines that begin with #.
std::string to_yaml(const Cluster&, const std::string& comment);

}  // namespace gyr
