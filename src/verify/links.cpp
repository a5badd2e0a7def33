// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/links.hpp"

#include <algorithm>
#include <limits>

#include "kernels/ops/elementwise.hpp"
#include "src/base/quantity.hpp"
#include "src/base/stopwatch.hpp"
#include "src/base/table.hpp"
#include "src/engine/gemm_choice/gemm_rate.hpp"

namespace gyr {

namespace {

constexpr Index large = Index(1) << 20;    // elements (floats) of the large all-reduce
constexpr Index message = Index(1) << 18;  // elements (floats) of a message between neighbours
constexpr int repeats = 5;

template <class Body>
double seconds_of(Body&& body) {
  double seconds = 0;
  {
    const Stopwatch watch(seconds);
    body();
  }
  return seconds;
}

// A communicator of this rank; nullptr if this rank is its only member or not a member.
struct Measured {
  std::string name;
  Communicator* ranks;
};

// Communicators that have several ranks somewhere, with the same names on all ranks. Parts of the tensor-parallel group
// are left out.
std::vector<Measured> communicators_of(Grid& grid) {
  std::vector<Measured> all;
  const auto add = [&](Axes axes) {
    if (grid.size(axes) > 1) all.push_back({grid.group(axes).name(), &grid.group(axes)});
  };
  add(all_axes);
  for (const LayoutAxis& a : grid.layout().axes) add(a.axis);
  if (grid.size(Axis::data) > 1 && grid.size(Axis::context) > 1) add(token_axes);
  const Mixers mixers = grid.layout().mixers();
  if (std::max(mixers.attention.size(), mixers.ssm.size()) > 1) {
    Communicator& team = grid.team()->full();
    all.push_back({"attention, ssm", team.size() > 1 ? &team : nullptr});
  }
  if (grid.size(Axis::pipeline) > 1) all.push_back({"embedding", grid.embedding_group()});
  return all;
}

// Seconds of an all-reduce of x: the minimum of several repeats, because disturbances are not properties of the
// machine.
double all_reduce_seconds(Communicator& c, Device& device, Tensor1<float> x) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) least = std::min(least, seconds_of([&] { c.start_all_reduce(device, x).host_wait(); }));
  return least;
}

// Bytes that each rank sends in a ring all-reduce of `elements` floats: 2 (ranks - 1) / ranks of the buffer.
double sent(int ranks, Index elements) { return 2.0 * (ranks - 1) / ranks * double(elements) * sizeof(float); }

// Partner of a rank in an exchange between neighbours, or -1. Every rank has at most one partner per round. Rounds 0
// and 1: pairs that start at an even or odd rank. Round 2: the first and the last rank.
int partner(int rank, int size, int round) {
  const bool ends = size > 2 && (rank == 0 || rank == size - 1);
  if (round == 2) return ends ? size - 1 - rank : -1;
  const int other = rank % 2 == round ? rank + 1 : rank - 1;
  return other >= 0 && other < size ? other : -1;
}

double exchange_rate(Communicator& c, Device& device, int other, Tensor1<const float> out, Tensor1<float> in) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) least = std::min(least, seconds_of([&] { c.start_shift(device, out, other, in, other).host_wait(); }));
  return double(message) * sizeof(float) / least;
}

class Measurement {
 public:
  explicit Measurement(Grid& grid) : grid_(grid), memory_(Memory::scratch, 3 * large * Index(sizeof(float))) {
    x_ = memory_.tensor<float>(large), y_ = memory_.tensor<float>(message);
    fill<float>(device_, x_, 0), fill<float>(device_, y_, 0);
  }

  void take(const Measured& measured, MachineRates& rates) {
    Communicator* const c = measured.ranks;
    grid_.begin_task(c ? "measure all-reduce" : "measure");
    const std::vector<double> mine =
        c ? std::vector<double>{double(c->size()), all_reduce_seconds(*c, device_, rows(x_, 0, 1)), all_reduce_seconds(*c, device_, x_)}
          : std::vector<double>(3, 0);
    const std::vector<double> all = grid_.world().gather(mine);
    CommunicatorRate slowest{measured.name, 0, 0, 0};
    for (std::size_t i = 0; i < all.size(); i += 3)
      if (all[i] > 0) {
        slowest.size = int(all[i]), slowest.latency = std::max(slowest.latency, all[i + 1]);
        const double rate = sent(slowest.size, large) / all[i + 2];
        slowest.bytes_per_second = slowest.bytes_per_second == 0 ? rate : std::min(slowest.bytes_per_second, rate);
      }
    rates.communicators.push_back(slowest);
  }

  void take_links(Axis axis, MachineRates& rates) {
    Communicator& c = grid_.group(axis);
    for (int round = 0; round < (c.size() > 2 ? 3 : 1); ++round) {
      grid_.begin_task("measure links");
      const int other = partner(c.rank(), c.size(), round);
      const double rate = other < 0 ? 0 : exchange_rate(c, device_, other, rows(x_, 0, message), y_);
      const std::vector<double> partners = c.gather(std::vector<double>{double(grid_.layout().rank_at(grid_.position()))});
      const std::vector<double> all = grid_.world().gather(std::vector<double>{partners[c.rank()], other < 0 ? -1 : partners[other], rate});
      for (std::size_t i = 0; i < all.size(); i += 3)
        if (all[i] < all[i + 1]) rates.links.push_back({c.name(), int(all[i]), int(all[i + 1]), all[i + 2]});
    }
  }

 private:
  Grid& grid_;
  Device device_{false, 1 << 16};
  Arena memory_;
  Tensor1<float> x_, y_;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + std::ptrdiff_t(x.size() / 2), x.end());
  return x[x.size() / 2];
}

std::string at_host(int rank, const std::vector<std::string>& hosts) { return fmt::format("rank {} on {}", rank, hosts.at(std::size_t(rank))); }

std::string slowest_link(const std::vector<MeasuredLink>& links, const std::vector<std::string>& hosts) {
  std::vector<double> rates;
  for (const MeasuredLink& link : links) rates.push_back(link.bytes_per_second);
  const MeasuredLink& slowest = links[std::size_t(std::min_element(rates.begin(), rates.end()) - rates.begin())];
  return fmt::format("slowest link: {} each way between {} and {}, neighbours on {}; median {} of {}\n", metric_text(slowest.bytes_per_second, "B/s"),
                     at_host(slowest.a, hosts), at_host(slowest.b, hosts), slowest.name, metric_text(median(rates), "B/s"),
                     counted(Index(links.size()), "link"));
}

std::string slowest_rank(const std::vector<double>& rates, const std::vector<std::string>& hosts) {
  const auto slowest = std::min_element(rates.begin(), rates.end());
  return fmt::format("slowest rank: {} in GEMMs on {}; median {} of {}\n", metric_text(*slowest, "FLOP/s"),
                     at_host(int(slowest - rates.begin()), hosts), metric_text(median(rates), "FLOP/s"), counted(Index(rates.size()), "rank"));
}

}  // namespace

MachineRates measure(Grid& grid, DType precision) {
  MachineRates rates;
  {
    Measurement measurement(grid);
    for (const Measured& c : communicators_of(grid)) measurement.take(c, rates);
    for (const LayoutAxis& a : grid.layout().axes)
      if (a.size > 1) measurement.take_links(a.axis, rates);
  }
  grid.begin_task("measure GEMMs");
  const double place[] = {double(grid.layout().rank_at(grid.position())), gemm_rate(precision).best};
  const std::vector<double> all = grid.world().gather(place);
  rates.flops_per_second.resize(all.size() / 2);
  for (std::size_t i = 0; i < all.size(); i += 2) rates.flops_per_second[std::size_t(all[i])] = all[i + 1];
  return grid.position() == 0 ? rates : MachineRates();
}

std::string text_of(const MachineRates& rates, const std::vector<std::string>& hosts) {
  std::string text;
  if (!rates.communicators.empty()) {
    Table table({{"communicator"}, {"ranks", true}, {"latency", true}, {"per rank", true}});
    for (const CommunicatorRate& c : rates.communicators)
      table.row({c.name, fmt::format("{}", c.size), time_text(c.latency), metric_text(c.bytes_per_second, "B/s")});
    text += table.str();
  }
  if (!rates.links.empty()) text += slowest_link(rates.links, hosts);
  return text + slowest_rank(rates.flops_per_second, hosts);
}

}  // namespace gyr
