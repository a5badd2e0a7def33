// SPDX-License-Identifier: BSD-3-Clause
// Description of a cluster, as read from its YAML file: nodes with equal devices, one rank per device, and links by
// class (inside a node, between nodes, between islands). Efficiencies that depend on kernels and libraries are a few
// constants fitted to measured steps (Fit). A cluster of different islands names one file per island, and its own file
// gives their order and the links between them. An island is a set of nodes with the same device type and interconnect.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "kernels/device/queue.hpp"
#include "src/deck/deck.hpp"
#include "src/parallel/islands.hpp"

namespace gyr {

// Link from one device to another, in one direction.
struct Link {
  double latency = 0;    // latency in seconds per message
  double bandwidth = 0;  // bandwidth in bytes per second, per device
  double sums = 1;       // fraction of the bandwidth that reductions (all-reduce, reduce-scatter) reach
  bool assumed = false;  // true: the file does not set the bandwidth, which is then that of the next closer link class
};

struct Cluster {
  std::string name;
  Index nodes = 0;                // number of nodes; 0: as many as the run needs
  Index island_nodes = 0;         // number of nodes that share a network; 0: all nodes
  Index per_node = 1;             // number of devices per node, one rank each
  bool per_node_assumed = false;  // true: the file does not set it

  struct Device {
    double memory = 0;                       // memory of a device in bytes
    double memory_bandwidth = 0;             // memory bandwidth in bytes per second
    double fp64 = 0, fp32 = 0, bf16 = 0;     // peak GEMM rate by operand type, flop/s
    double watts = 0;                        // power of a device under load in watts; 0: unknown
    bool fused = false;                      // attention is fused (FlashAttention): its tiles stay on chip and use no memory bandwidth
    double reserve = 0;                      // bytes of it that no plan contains: CUDA context, NCCL buffers, cuBLAS
    bool gpu = backend::on_gpu();            // true: plans contain the scratch of the CUDA kernels; false: that of the host kernels
    double price = 0;                        // price of a device hour in `currency`; 0: unknown
    std::string currency = {};               // for reports, as in EUR
    double gemm_rate(DType operands) const;  // peak GEMM rate for this operand type, flop/s
    double usable() const { return std::max(0.0, memory - reserve); }  // bytes that the plan of a rank may take
  } device;

  // Host memory, used for offloaded activations.
  struct Host {
    double memory = 0;      // bytes per device; 0: device and host share the device's memory
    double bandwidth = 0;   // bytes per second of a copy in one direction while the other direction is busy; 0: unknown
    bool overlaps = false;  // true: copies overlap with computation on the device
  } host;

  Link node, network, islands;  // inside a node, between nodes of an island, between islands
  bool links_overlap = true;    // communication overlaps with computation and does not slow it down

  // Constants fitted to measured steps: the fraction of each peak that is reached, and the fixed overhead of a step.
  struct Fit {
    double gemms = 1;   // fraction of the peak GEMM rate reached by large GEMMs
    double fused = 1;   // fraction of the peak GEMM rate reached inside attention and scan kernels
    double memory = 1;  // fraction of the memory bandwidth reached by memory-bound kernels
    double links = 1;   // fraction of the link bandwidth reached by transfers
    double step = 0;    // fixed overhead per step in seconds: data loading, host work, everything that is not overlapped
  } fit;

  static constexpr int constants = 5;  // number of members of Fit
  // Islands of a heterogeneous cluster in rank order, each with its own nodes; empty if all nodes are alike. If there
  // are islands, `device`, `host`, `node` and `network` above hold the worst value of any island.
  std::vector<Cluster> parts = {};

  double storage = 0;  // bytes per second that a node writes to the file system while all nodes write; 0: unknown

  // Failures that end a job: hardware, network, file system.
  struct Failures {
    double hours = 0;    // mean time between failures in hours of one device; 0: unknown
    double restart = 0;  // seconds from a failure to the first step of the restarted job
  } failures;

  // Absolute error of predicted step times, as a fraction, by kind of evidence; 0: not judged.
  struct Errors {
    double published = 0;         // mean of published steps of dense transformers, each left out of the fit
    double measured = 0;          // largest of steps of this program on one device
    std::string published_steps;  // text: which steps
    std::string measured_steps;
    double largest() const { return std::max(published, measured); }  // half width of the error bar
  } errors;

  void limit_memory(double bytes);  // caps the usable memory of every device at `bytes`
  // Bytes of host memory that a rank may offload to. If the host shares the device's memory (host.memory = 0), these
  // are the bytes that remain after the `taken` bytes of the rank.
  double host_memory_left(double taken) const { return host.memory > 0 ? host.memory : device.usable() - taken; }
  Index devices() const;  // number of devices; 0: as many as the run needs
  // Island and node of a rank. Ranks fill the cluster node by node and island by island.
  struct Place {
    int island = 0;
    Index node = 0;
  };
  Place place_of(Index rank) const;
  int different_islands() const { return parts.empty() ? 1 : int(parts.size()); }  // number of different islands; 1 if all nodes are alike
  const Cluster& island(int number) const { return parts.empty() ? *this : parts.at(std::size_t(number)); }
  const Cluster& island_of(Index rank) const { return island(parts.empty() ? 0 : place_of(rank).island); }
  // Sum over the first `ranks` ranks: peak GEMM rate in flop/s, and power in watts. watts() is 0 if the power of any of
  // these devices is unknown.
  double peak(Index ranks, DType operands) const;
  double watts(Index ranks) const;
  // Price of an hour of these devices; 0 if the price of any is unknown, or if their currencies differ.
  double price(Index ranks) const;

  std::vector<std::string> defaults = {};  // keys of latencies and efficiencies that the file does not set, with the ideal values taken instead
};

// Throws Exit::config if the cluster has fewer than `ranks` devices.
void check_capacity(const Cluster&, int ranks);

// Remarks on the links between the first `ranks` ranks, one sentence each: values that the file does not set, a bandwidth that
// looks like Gb/s, and one of both directions.
std::vector<std::string> doubtful_links(const Cluster&, int ranks);
// Notes on rates of devices that are out of range by their unit or include sparsity, and on keys of GPUs that are not set.
std::vector<std::string> doubtful_devices(const Cluster&);

// Islands that the first `ranks` ranks occupy, with the GEMM rate of their devices as speed. Empty if all ranks are on
// one island.
Islands islands_of(const Cluster&, int ranks, DType operands);

// Reads a cluster description. Throws Exit::missing, or Exit::config with file:line.
Cluster read_cluster(const std::string& file);
// All keys of a cluster description, and a help text that lists them.
std::vector<Declaration> cluster_settings();
std::string cluster_keys();
// Cluster description as YAML that read_cluster() accepts. `comment` is written first, as lines that begin with #.
std::string to_yaml(const Cluster&, const std::string& comment);

}  // namespace gyr
