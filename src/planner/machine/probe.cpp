// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/comm/communicator.hpp"
#include "kernels/comm/mpi/node.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "kernels/device/host_copies.hpp"
#include "kernels/ops/elementwise.hpp"
#include "src/base/stopwatch.hpp"
#include "src/engine/gemm_choice/gemm_times.hpp"

namespace gyr {

namespace {

constexpr int repetitions = 9;
constexpr Index many_bytes = Index(8) << 20;
constexpr Index beyond_caches = Index(64) << 20;  // buffer size in bytes, larger than all caches

// Minimum seconds of `body` over several repetitions, which excludes other load on the machine. Returns the maximum
// over ranks.
template <class Body>
double least_seconds(Communicator& ranks, Device& dev, const Body& body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repetitions; ++i) {
    ranks.barrier();
    double once = 0;
    {
      const Stopwatch watch(once);
      body();
      dev.fence();
    }
    least = std::min(least, once);
  }
  return ranks.max(least);
}

// Highest GEMM rate in flop/s over four shapes that are large and typical of layers. Returns the value of the slowest
// rank.
double gemm_rate(DType precision, Communicator& ranks) {
  GemmCounts shapes;
  for (const auto& [m, n, k] : {std::array<Index, 3>{1024, 1024, 1024}, {1024, 1536, 512}, {512, 512, 512}, {2048, 512, 1024}})
    shapes[{"gemm", false, true, false, m, n, k, k, k, n, precision, precision}] = 1;
  double best = 0;
  for (const GemmTime& time : time_gemms(shapes)) best = std::max(best, time.flops() / time.by_choice());
  return -ranks.max(-best);
}

// Bytes per second of y += x on tensors larger than all caches.
double memory_bandwidth(Communicator& ranks) {
  constexpr Index n = Index(16) << 20;
  Device dev(false, 2 * n * Index(sizeof(float)) + 4096);
  const auto x = dev.scratch.tensor<float>(n), y = dev.scratch.tensor<float>(n);
  fill<float>(dev, x, 1), fill<float>(dev, y, 1);
  return 3.0 * sizeof(float) * n / least_seconds(ranks, dev, [&] { add<float>(dev, Tensor1<const float>(x), y); });
}

// Bytes per second of copies between device and host, the slower of the two directions.
double host_bandwidth(Communicator& ranks) {
  Device dev(false, many_bytes + 4096);
  const auto x = dev.scratch.tensor<std::byte>(many_bytes);
  const HostMemory memory(many_bytes, "");
  HostCopies copies(dev.queue);
  const std::array<HostCopy, 1> out{{{x.data(), memory.begin(), many_bytes}}}, back{{{memory.begin(), x.data(), many_bytes}}};
  const double slower = std::max(least_seconds(ranks, dev, [&] { copies.device_waits(copies.out(out)); }),
                                 least_seconds(ranks, dev, [&] { copies.device_waits(copies.back(back)); }));
  return double(many_bytes) / slower;
}

// Bytes per second that each rank sends in a ring all-reduce over all ranks, on data larger than all caches. Each of n
// ranks sends 2 (n - 1) / n of the data.
double sum_rate(Communicator& ranks) {
  const Index elements = beyond_caches / Index(sizeof(float));
  Device dev(false, beyond_caches + 4096);
  const auto x = dev.scratch.tensor<float>(elements);
  fill<float>(dev, x, 0);
  const double n = ranks.size(), seconds = least_seconds(ranks, dev, [&] { ranks.start_all_reduce<float>(dev, x).device_wait(dev); });
  return 2 * (n - 1) / n * double(beyond_caches) / seconds;
}

// Seconds that a message costs between ranks that are computing and reach it at different times: the time with messages
// between pieces of work, minus the mean time of the ranks without messages, per message.
double meeting(Communicator& ranks, Device& dev, const std::function<void()>& work, const std::function<void()>& message) {
  constexpr int meetings = 50;
  const auto seconds = [&](bool overlapping) {
    ranks.barrier();
    double all = 0;
    {
      const Stopwatch watch(all);
      for (int i = 0; i < meetings; ++i) {
        work();
        if (overlapping) message();
        dev.fence();
      }
    }
    return all;
  };
  std::vector<double> costs;
  for (int i = 0; i < repetitions; ++i) {
    const double with = ranks.max(seconds(true));
    const double separate = seconds(false);
    const std::vector<double> without = ranks.gather({&separate, 1});
    costs.push_back((with - std::accumulate(without.begin(), without.end(), 0.0) / double(without.size())) / meetings);
  }
  std::nth_element(costs.begin(), costs.begin() + repetitions / 2, costs.end());
  return std::max(0.0, costs[repetitions / 2]);
}

// Latency and bandwidth of a ring in which every rank sends to the next rank and receives from the previous one at the
// same time.
Link ring(Communicator& ranks) {
  const Index most = many_bytes / Index(sizeof(float));
  Device dev(false, 2 * many_bytes + 4096);
  const auto x = dev.scratch.tensor<float>(most), y = dev.scratch.tensor<float>(most);
  fill<float>(dev, x, 1), fill<float>(dev, y, 1);
  const int n = ranks.size(), next = (ranks.rank() + 1) % n, last = (ranks.rank() + n - 1) % n;
  const auto message = [&](Index size) {
    ranks.start_shift<float>(dev, Tensor1<const float>(x.data(), size), next, Tensor1<float>(y.data(), size), last).device_wait(dev);
  };
  const auto seconds = [&](Index size, int times) {
    return least_seconds(ranks, dev,
                         [&] {
                           for (int i = 0; i < times; ++i) message(size);
                         }) /
           times;
  };
  seconds(most, 1);  // warm-up: the set-up cost of the first transfer is not measured
  const double latency = seconds(1, 50), large = seconds(most, 2);
  const double bandwidth = double(many_bytes) / std::max(large - latency, 1e-9);
  const auto work = [&] { add<float>(dev, Tensor1<const float>(x), y); };
  return {std::max(latency, meeting(ranks, dev, work, [&] { message(1); })), bandwidth, std::min(1.0, sum_rate(ranks) / bandwidth)};
}

Link slowest(const Link& link, Communicator& ranks) { return {ranks.max(link.latency), -ranks.max(-link.bandwidth), -ranks.max(-link.sums)}; }

MPI_Comm split(MPI_Comm world, int color, int key) {
  MPI_Comm part;
  MPI_Comm_split(world, color, key, &part);
  return part;
}

// Ranks on this machine, index of this rank on it, and number of machines.
struct RankCounts {
  int here, place, machines;
};

RankCounts places_of(MPI_Comm world) {
  MPI_Comm node = node_of(world);
  RankCounts places{};
  MPI_Comm_size(node, &places.here);
  MPI_Comm_rank(node, &places.place);
  MPI_Comm_free(&node);
  const int first = places.place == 0;
  MPI_Allreduce(&first, &places.machines, 1, MPI_INT, MPI_SUM, world);
  return places;
}

// Host name of the first rank, on every rank.
std::string first_host(MPI_Comm world) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, world);
  return name;
}

double memory_of_machine() { return double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Probe probe_machine(MPI_Comm world) {
  const WaitPolicy patience = wait_policy_of(world);
  MPI_Comm all;
  MPI_Comm_dup(world, &all);
  Communicator ranks("world", mpi_transport(all, patience));
  const RankCounts places = places_of(world);
  Probe probe;
  Cluster& c = probe.cluster;
  c.name = first_host(world);
  c.nodes = places.machines, c.per_node = Index(ranks.max(places.here));
  c.device.memory = -ranks.max(-memory_of_machine() / double(places.here));
  c.device.bf16 = gemm_rate(DType::bf16, ranks);
  c.device.fp32 = gemm_rate(DType::f32, ranks);
  c.device.fp64 = gemm_rate(DType::f64, ranks);
  c.device.memory_bandwidth = memory_bandwidth(ranks);
  c.host.bandwidth = host_bandwidth(ranks), c.host.overlaps = HostCopies::overlap();
  c.links_overlap = c.host.overlaps;  // if ranks do the copies themselves, they also move their own messages
  probe.comment = fmt::format(
      "Measured by {} ranks on {} machine{} at the same time, each as one device: the best of four GEMM shapes, y += x, copies "
      "to and from host memory, a ring exchange, and an all-reduce.",
      ranks.size(), places.machines, places.machines > 1 ? "s" : "");
  if (patience == WaitPolicy::yield)
    probe.comment += "\nThere were fewer cores than threads, so rates and links were measured on oversubscribed cores.";
  if (c.device.gpu) probe.comment += "\ndevice.reserve was not measured and is 0. CUDA context and NCCL take some GiB, see input/clusters.";
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  if (c.per_node > 1) {
    Communicator neighbours("node", mpi_transport(node_of(world), patience));
    c.node = ring(neighbours);
    c.node = slowest(c.node, ranks);
  } else {
    c.node = {0, c.device.memory_bandwidth, 1};
    probe.comment += "\nThere is only one rank per machine: links.node was not measured and is set to the memory bandwidth.";
  }
  c.network = c.islands = c.node;
  if (places.machines > 1) {
    Communicator alike("network", mpi_transport(split(world, places.place, rank), patience));
    if (alike.size() > 1) c.network = ring(alike);
    c.network = slowest(c.network, ranks);
    c.islands = c.network;
  } else {
    c.network.assumed = c.islands.assumed = true;
    probe.comment += "\nThere is only one machine: links.network and links.islands were not measured. A plan on several nodes assumes links.node.";
  }
  return probe;
}

}  // namespace gyr
