// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/double_buffer.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gyr {

namespace {

constexpr std::size_t blocks = 3;  // buffers: one for each side, and one in between to even out their speeds

// Progress of producer and consumer. A block belongs to the producer until it is filled, then to the consumer until it
// is drained.
class DoubleBuffer {
 public:
  explicit DoubleBuffer(std::size_t count) : count_(count) {}

  bool may_fill() {
    return wait([&] { return filled_ - drained_ < blocks; }, filled_);
  }
  bool may_drain() {
    return wait([&] { return drained_ < filled_; }, drained_);
  }
  void has_filled() { advance(filled_); }
  void has_drained() { advance(drained_); }

  // Keeps the first exception and stops both sides.
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <class Ready>
  bool wait(const Ready& ready, const std::size_t& done) {
    std::unique_lock lock(mutex_);
    if (done == count_) return false;
    changed_.wait(lock, [&] { return failure_ || ready(); });
    return !failure_;
  }
  void advance(std::size_t& done) {
    const std::lock_guard lock(mutex_);
    ++done;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_, filled_ = 0, drained_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void convey(std::size_t count, Index block_bytes, Aside aside, const BlockUse& fill, const BlockUse& drain) {
  std::array<std::vector<std::byte>, blocks> memory;
  for (std::size_t i = 0; i < std::min(blocks, count); ++i) memory[i].resize(std::size_t(block_bytes));
  DoubleBuffer double_buffer(count);
  const auto side = [&](const BlockUse& use, bool (DoubleBuffer::*may)(), void (DoubleBuffer::*has)()) {
    try {
      for (std::size_t i = 0; (double_buffer.*may)(); ++i) {
        use(i, memory[i % blocks]);
        (double_buffer.*has)();
      }
    } catch (...) {
      double_buffer.fail(std::current_exception());
    }
  };
  const auto filling = [&] { side(fill, &DoubleBuffer::may_fill, &DoubleBuffer::has_filled); };
  const auto draining = [&] { side(drain, &DoubleBuffer::may_drain, &DoubleBuffer::has_drained); };
  std::thread other = aside == Aside::filling ? std::thread(filling) : std::thread(draining);
  if (aside == Aside::filling) draining();
  else filling();
  other.join();
  double_buffer.check();
}

}  // namespace gyr
