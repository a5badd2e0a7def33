// SPDX-License-Identifier: BSD-3-Clause
#include "src/fault/fault.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/host_values.hpp"
#include "src/fault/process_fault.hpp"

namespace gyr {

Fault::Fault(const FaultSettings& settings, const Identity& me, ModelState& state, const ProgressRecord& progress_record)
    : settings_(settings), state_(state), progress_record_(progress_record), last_(std::chrono::steady_clock::now()) {
  mine_ = is_for(settings, me);
  if (!mine_ || (settings_.kind != FaultKind::nan && settings_.kind != FaultKind::gradflip)) return;
  state_.on_gradients([this](const std::vector<AnyTensor>& gradients) {
    if (std::exchange(spoil_, false)) spoil(gradients);
  });
}

void Fault::inject_fault(Index step) {
  if (!mine_) return;
  if (settings_.kind == FaultKind::slow) {
    if (step >= settings_.step) delay();
    last_ = std::chrono::steady_clock::now(), last_waited_ = progress_record_.waited();
    return;
  }
  if (step != settings_.step) return;
  // only once, because a step may be repeated after a rollback
  if (settings_.kind != FaultKind::kill && settings_.kind != FaultKind::stop) mine_ = false;
  switch (settings_.kind) {
    case FaultKind::kill:
    case FaultKind::stop:
    case FaultKind::leave:
    case FaultKind::hang: break_process(settings_); break;
    case FaultKind::nan:
    case FaultKind::gradflip: spoil_ = true; break;
    case FaultKind::bitflip: flip_bit(largest(), largest().size / 2); break;
    case FaultKind::scale:
      for (const auto& p : state_.parameters()) scale(state_.updated(*p).values);
      break;
    case FaultKind::slow:
    case FaultKind::none: break;
  }
}

// Makes the rank `amount` times as slow: sleeps (amount - 1) times the duration of the last step without its waiting.
void Fault::delay() {
  const Recorder::Span span(state_.grid().recorder(), "fault");
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - last_).count();
  const double worked = std::max(0.0, took - (progress_record_.waited() - last_waited_));
  std::this_thread::sleep_for(std::chrono::duration<double>((settings_.amount - 1) * worked));
}

AnyTensor Fault::largest() const {
  AnyTensor found;
  for (const auto& p : state_.parameters())
    if (const Piece kept = state_.updated(*p); kept.values.size > found.size) found = kept.values;
  return found;
}

// Sets all gradients to NaN, or flips a bit of the largest gradient element. It takes the largest one because most
// elements of an embedding's gradient are 0.
void Fault::spoil(const std::vector<AnyTensor>& gradients) {
  state_.device().fence();
  double largest = -1;
  AnyTensor number;
  for (const AnyTensor& some : gradients)
    with_type(some, [&]<class S>(const Tensor1<S>& x) {
      if (settings_.kind == FaultKind::nan) return fill<S>(state_.device(), x, std::numeric_limits<double>::quiet_NaN());
      HostValues<S> host(x);
      host.take();
      for (Index i = 0; i < some.size; ++i)
        if (std::abs(double(host(i))) > largest) largest = std::abs(double(host(i))), number = rows(some, i, 1);
    });
  if (number) flip_bit(number, 0);
}

void Fault::flip_bit(const AnyTensor& values, Index at) {
  const Index size = size_of(values.dtype);
  const AnyTensor number(static_cast<std::byte*>(values.data) + at * size, values.dtype, 1);
  std::array<unsigned char, sizeof(double)> bytes{};
  copy_to_host(number, bytes.data());
  const int bit = int(settings_.amount) % int(8 * size);
  bytes[std::size_t(bit / 8)] ^= static_cast<unsigned char>(1u << (bit % 8));
  copy_to_device(bytes.data(), number);
}

void Fault::scale(const AnyTensor& values) {
  with_type(values, [&]<class S>(const Tensor1<S>& x) {
    HostValues<S> host(x);
    host.take();
    for (Index i = 0; i < values.size; ++i) host(i) = S(double(host(i)) * settings_.amount);
    host.put();
  });
}

}  // namespace gyr
