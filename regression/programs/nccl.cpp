// SPDX-License-Identifier: BSD-3-Clause
// Memory and the communicators that know it: whichever comes and goes first, each communicator has registered all that there is, the stand-in of NCCL
// meets none that is not, and nothing is left behind. Every rank runs all of it, on a GPU of its own, emulated.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <list>
#include <numeric>
#include <random>

#include "kernels/comm/communicator.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "kernels/cuda/comm/nccl_transport.hpp"
#include "kernels/cuda/emulation/registrations.hpp"
#include "kernels/device/device.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "regression/support/seed.hpp"

using namespace gyr;
using cuda::Registrations;
using cuda::Violation;

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

class Variable {  // of the environment, until the end of a block
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::unique_ptr<Transport> joined() {
  MPI_Comm all;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  return nccl_transport(mpi_transport(all, wait_policy_of(MPI_COMM_WORLD)));
}

// Communicators of NCCL that a rank has for one group of these: that of all, and those with its neighbours round a ring, one each way.
Index communicators(int ranks) { return 1 + (ranks == 1 ? 0 : (ranks == 2 ? 2 : 4)); }

// Arenas and groups, made and dropped in an order drawn at random, the same on all ranks.
class RandomLifetimes {
 public:
  explicit RandomLifetimes(unsigned seed) : random_(seed) {}

  void step() {
    switch (random_() % 6) {
      case 0:
      case 1: arenas_.emplace_back(Memory::activations, 256 + Index(random_() % 100000)); break;
      case 2: groups_.emplace_back("all", joined()); break;
      case 3: drop(arenas_); break;
      case 4: drop(groups_); break;
      case 5: talk();
    }
  }
  Index expected() const { return Index(arenas_.size() * groups_.size()) * communicators(world_size()); }
  int talks() const { return talks_; }

 private:
  template <class List>
  auto drawn(List& all) {
    return std::next(all.begin(), long(random_() % all.size()));
  }
  template <class List>
  void drop(List& all) {
    if (!all.empty()) all.erase(drawn(all));
  }
  // Numbers somewhere in an arena are summed over all ranks and go once round the ring.
  void talk() {
    if (arenas_.empty() || groups_.empty()) return;
    Arena& arena = *drawn(arenas_);
    Communicator& group = *drawn(groups_);
    const Scope scope(arena);
    const Index n = 1 + Index(random_() % 16), skipped = Index(random_() % 8);
    if (arena.capacity() < 1024) return;
    arena.push(skipped * 16);
    const auto x = arena.tensor<float>(n), y = arena.tensor<float>(n);
    std::vector<float> numbers(std::size_t(n), float(group.rank() + 1));
    copy_to_device(numbers.data(), x);
    Device dev(false, 0);
    group.start_all_reduce(dev, x, Reduction::sum).host_wait();
    const int ranks = group.size(), next = (group.rank() + 1) % ranks, before = (group.rank() + ranks - 1) % ranks;
    if (ranks > 1) {
      group.start_shift<float>(dev, Tensor1<const float>(x), next, y, before).host_wait();
      copy_to_host(y, numbers.data());
      for (const float v : numbers) EXPECT_EQ(v, float(ranks * (ranks + 1) / 2));
    }
    ++talks_;
  }

  std::mt19937 random_;
  std::list<Arena> arenas_;
  std::list<Communicator> groups_;
  int talks_ = 0;
};

void expect_all_registered(unsigned seed) {
  const Index before = Registrations::instance().count();
  {
    RandomLifetimes bustle(seed);
    for (int i = 0; i < 120; ++i) {
      bustle.step();
      ASSERT_EQ(Registrations::instance().count(), before + bustle.expected()) << "after step " << i;
    }
    EXPECT_GT(bustle.talks(), 0);
  }
  EXPECT_EQ(Registrations::instance().count(), before);
}

// What is registered while there is an arena and a group, where the environment says so on rank 0 and, maybe otherwise, on the others.
Index registered(const std::string& first, const std::string& others) {
  const Variable variable("GYR_NCCL_REGISTER", world_rank() == 0 ? first : others);
  const Index before = Registrations::instance().count();
  const Arena arena(Memory::activations, 1000);
  const auto group = joined();
  return Registrations::instance().count() - before;
}

std::string complaint(const std::function<void()>& mistake) {
  try {
    mistake();
  } catch (const Violation& v) {
    return v.what();
  }
  return "";
}

// A communicator of this rank alone.
ncclComm_t alone() {
  ncclUniqueId id;
  ncclComm_t c = nullptr;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&c, 1, id, 0), ncclSuccess);
  return c;
}

}  // namespace

TEST(nccl, registers_all_memory_with_all_communicators) {
  const unsigned seed = gyr::testing::seed_of_run();
  expect_all_registered(seed);
  const Variable variable("GYR_CUDA_MEMORY", "nccl");
  expect_all_registered(seed + 1);
}

TEST(nccl, registers_nothing_where_the_first_rank_is_told_so) {
  EXPECT_EQ(registered("on", "on"), communicators(world_size()));
  EXPECT_EQ(registered("on", "off"), communicators(world_size()));
  EXPECT_EQ(registered("off", "on"), 0);
  EXPECT_EQ(registered("off", "off"), 0);
  EXPECT_THROW(registered("no", "no"), Error);
  const Variable variable("GYR_CUDA_MEMORY", "device");
  EXPECT_THROW(Arena(Memory::activations, 1000), Error);
}

TEST(nccl, stand_in_finds_mistakes_with_registered_memory) {
  const ncclComm_t one = alone(), other = alone();
  void *known = nullptr, *unknown = nullptr, *handle = nullptr;
  ASSERT_EQ(cudaMalloc(&known, 4096), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&unknown, 4096), cudaSuccess);
  const auto sum_of = [&](void* memory) {
    return [=] {
      ncclAllReduce(memory, memory, 8, ncclFloat32, ncclSum, one, nullptr);
      cudaDeviceSynchronize();
    };
  };
  EXPECT_EQ(complaint(sum_of(unknown)), "");
  ASSERT_EQ(ncclCommRegister(one, known, 4096, &handle), ncclSuccess);
  EXPECT_EQ(complaint(sum_of(known)), "");
  EXPECT_NE(complaint(sum_of(unknown)).find("ncclAllReduce of 32 bytes that are not registered"), std::string::npos);
  EXPECT_NE(complaint(sum_of(static_cast<char*>(known) + 4080)).find("not registered"), std::string::npos);  // not to its end
  EXPECT_NE(complaint([&] { ncclCommDeregister(other, handle); }).find("has not registered"), std::string::npos);
  EXPECT_NE(complaint([&] { cudaFree(known); }).find("1 communicators have registered"), std::string::npos);
  EXPECT_NE(complaint([&] { ncclCommDestroy(one); }).find("ends with 1 pieces"), std::string::npos);
  EXPECT_EQ(complaint([&] { ncclCommDeregister(one, handle); }), "");
  EXPECT_NE(complaint([&] { ncclCommDeregister(one, handle); }).find("or no longer"), std::string::npos);
  EXPECT_EQ(complaint([&] { cudaFree(known), cudaFree(unknown), ncclCommDestroy(one), ncclCommDestroy(other); }), "");
}
