// SPDX-License-Identifier: BSD-3-Clause
// Tests of NCCL memory registration on emulated GPUs, one per rank. Arenas and communicators are created and destroyed
// in any order. At any time each communicator has registered all arenas, the NCCL emulation sees no unregistered
// buffer, and no registration is left at the end.
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

class Variable {  // sets an environment variable until the end of a block
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

// NCCL communicators that a rank has per group: one of all ranks, and one per direction with each neighbour of the
// ring.
Index communicators(int ranks) { return 1 + (ranks == 1 ? 0 : (ranks == 2 ? 2 : 4)); }

// Creates and destroys arenas and groups in a random order that is the same on all ranks.
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
  // All-reduces values in a random place of an arena, then shifts them once around the ring.
  void talk() {
    if (arenas_.empty() || groups_.empty()) return;
    Arena& arena = *drawn(arenas_);
    Communicator& group = *drawn(groups_);
    const Scope scope(arena);
    const Index n = 1 + Index(random_() % 16), skipped = Index(random_() % 8);
    if (arena.capacity() < 1024) return;
    arena.push(skipped * 16);
    const auto x = arena.tensor<float>(n), y = arena.tensor<float>(n);
    std::vector<float> values(std::size_t(n), float(group.rank() + 1));
    copy_to_device(values.data(), x);
    Device dev(false, 0);
    group.start_all_reduce(dev, x, Reduction::sum).host_wait();
    const int ranks = group.size(), next = (group.rank() + 1) % ranks, before = (group.rank() + ranks - 1) % ranks;
    if (ranks > 1) {
      group.start_shift<float>(dev, Tensor1<const float>(x), next, y, before).host_wait();
      copy_to_host(y, values.data());
      for (const float v : values) EXPECT_EQ(v, float(ranks * (ranks + 1) / 2));
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

// Number of registrations while there is one arena and one group, with GYR_NCCL_REGISTER set to `first` on rank 0 and
// to `rest` on the other ranks.
Index registered(const std::string& first, const std::string& rest) {
  const Variable variable("GYR_NCCL_REGISTER", world_rank() == 0 ? first : rest);
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

// A communicator with only this rank.
ncclComm_t single_rank_comm() {
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

TEST(nccl, registration_setting_of_first_rank_applies_to_all) {
  EXPECT_EQ(registered("on", "on"), communicators(world_size()));
  EXPECT_EQ(registered("on", "off"), communicators(world_size()));
  EXPECT_EQ(registered("off", "on"), 0);
  EXPECT_EQ(registered("off", "off"), 0);
  EXPECT_THROW(registered("no", "no"), Error);
  const Variable variable("GYR_CUDA_MEMORY", "device");
  EXPECT_THROW(Arena(Memory::activations, 1000), Error);
}

TEST(nccl, nccl_emulation_detects_registration_errors) {
  const ncclComm_t one = single_rank_comm(), other = single_rank_comm();
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
  // the registered range ends inside of the buffer
  EXPECT_NE(complaint(sum_of(static_cast<char*>(known) + 4080)).find("not registered"), std::string::npos);
  EXPECT_NE(complaint([&] { ncclCommDeregister(other, handle); }).find("has not registered"), std::string::npos);
  EXPECT_NE(complaint([&] { cudaFree(known); }).find("1 communicators have registered"), std::string::npos);
  EXPECT_NE(complaint([&] { ncclCommDestroy(one); }).find("ends with 1 pieces"), std::string::npos);
  EXPECT_EQ(complaint([&] { ncclCommDeregister(one, handle); }), "");
  EXPECT_NE(complaint([&] { ncclCommDeregister(one, handle); }).find("or no longer"), std::string::npos);
  EXPECT_EQ(complaint([&] { cudaFree(known), cudaFree(unknown), ncclCommDestroy(one), ncclCommDestroy(other); }), "");
}
