// SPDX-License-Identifier: BSD-3-Clause
// Offloaded activations return unchanged, even if every copy finishes only when the device waits for it. Meanwhile,
// memory that has been released is overwritten.
#include <deque>
#include <random>

#include "kernels/device/upload.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/sum.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/engine/memory/offload.hpp"

namespace gyr::testing::offload_queue_suite {
namespace {

// Copies that start when the device waits for them: the latest time that HostCopies allows.
class LateCopies final : public HostCopies {
 public:
  using HostCopies::HostCopies;
  Ticket out(std::span<const HostCopy> copies) override { return enqueue(true, copies); }
  Ticket back(std::span<const HostCopy> copies) override { return enqueue(false, copies); }
  void device_waits(Ticket ticket) override {
    for (Ticket earlier = 0; earlier <= ticket; ++earlier) {  // copies of one direction run in order
      Copies& c = enqueued_.at(std::size_t(earlier));
      if (c.done || c.out != enqueued_.at(std::size_t(ticket)).out) continue;
      HostCopies::device_waits(c.out ? HostCopies::out(c.list) : HostCopies::back(c.list));
      c.done = true;
    }
  }

 private:
  struct Copies {
    bool out;
    std::vector<HostCopy> list;
    bool done = false;
  };
  Ticket enqueue(bool out, std::span<const HostCopy> copies) {
    enqueued_.push_back({out, {copies.begin(), copies.end()}});
    return Ticket(enqueued_.size()) - 1;
  }
  std::vector<Copies> enqueued_;
};

constexpr Key<Tensor2<float>> projection{"projection", RecomputeCost::gemm, Phase::weight_gradients, RowSplit::split};
constexpr Key<Tensor2<float>> states{"states"};
constexpr Key<Tensor1<float>> sums{"sums"};

// Saved activations of a layer: two tensors in its frame, and one in a nested frame.
struct SavedLayer {
  Frame frame;
  std::vector<std::vector<float>> values;
  std::vector<Tensor1<float>> memory;  // where the tensors are before they are offloaded

  SavedLayer(Device& dev, Arena& arena, std::mt19937& random) : frame(arena) {
    const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
    const auto save = [&](const Tensor1<float>& x) {
      std::vector<float>& v = values.emplace_back();
      for (Index i = 0; i < Index(x.extent(0)); ++i) v.push_back(float(from(-1000, 1000)));
      backend::upload(dev.queue, v.data(), x.data(), Index(v.size() * sizeof(float)));
      memory.push_back(x);
    };
    save(flat(frame.put(projection, from(1, 200), from(1, 9))));
    save(flat(frame.nested(0).put(states, from(1, 5), from(1, 5))));
    save(frame.put(sums, from(1, 300)));
  }
  void expect_values(Device& dev) {
    const std::array<Tensor1<float>, 3> now{flat(frame.get(projection)), flat(frame.nested(0).get(states)), frame.get(sums)};
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(to_host(dev, Tensor1<const float>(now[i])), values[i]) << "tensor " << i;
  }
};

// The order of chunk.cpp: a layer is copied out while the next one computes, and copied back while the layer after it
// runs its backward.
void offload_and_return(Device& dev, std::deque<SavedLayer>& layers, OffloadQueue& queue) {
  const Index last = Index(layers.size()) - 1;
  const auto leave = [&](Index layer) {
    queue.leave(layer);
    for (const Tensor1<float>& freed : layers[std::size_t(layer)].memory) fill<float>(dev, freed, 12345);
  };
  for (Index layer = 0; layer <= last; ++layer) {
    OffloadBatch batch;
    batch.load(layers[std::size_t(layer)].frame, 1, nullptr);
    queue.out(dev, layer, std::move(batch));
    if (layer > 0) leave(layer - 1);
  }
  leave(last);
  queue.back(dev, last);
  for (Index layer = last; layer >= 0; --layer) {
    SCOPED_TRACE(fmt::format("layer {} of {}", layer, last + 1));
    if (layer > 0) queue.back(dev, layer - 1);
    queue.arrive(layer).restore(layers[std::size_t(layer)].frame);
    layers[std::size_t(layer)].expect_values(dev);
  }
}

TEST(offload_queue, activations_return_whenever_copies_finish) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 60; ++draw) {
    SCOPED_TRACE(fmt::format("draw {}", draw));
    Device dev(false, 1 << 12);
    Arena arena(Memory::activations, 1 << 19);
    std::deque<SavedLayer> layers;
    for (int n = std::uniform_int_distribution<int>(1, 6)(random); n > 0; --n) layers.emplace_back(dev, arena, random);
    const HostMemory memory(1 << 18, "");
    HostCopies early(dev.queue);
    LateCopies late(dev.queue);
    OffloadQueue queue(draw % 2 ? early : late, memory.begin(), 1 << 18);
    offload_and_return(dev, layers, queue);
  }
}

}  // namespace
}  // namespace gyr::testing::offload_queue_suite
