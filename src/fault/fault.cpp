// SPDX-License-Identifier: BSD-3-Clause
#include "src/fault/fault.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernels/elementwise.hpp"

namespace gyr {

template <class T>
Fault<T>::Fault(const FaultSettings& settings, const Identity& me, Engine<T>& engine, const Beacon& beacon)
    : settings_(settings), engine_(engine), beacon_(beacon), last_(std::chrono::steady_clock::now()) {
  const bool now = settings.any() && (settings.attempt < 0 || settings.attempt == me.attempt);
  require(!now || settings.rank < me.ranks, Exit::config, "fault.rank = {}, but there are {} ranks", settings.rank, me.ranks);
  mine_ = now && settings.rank == me.rank;
  if (!mine_ || (settings_.kind != FaultKind::nan && settings_.kind != FaultKind::gradflip)) return;
  engine_.on_gradients([this](Device& dev, Tensor1<Acc<T>> gradients) {
    if (std::exchange(spoil_, false)) spoil(dev, gradients);
  });
}

template <class T>
void Fault<T>::strike(Index step) {
  if (!mine_) return;
  if (settings_.kind == FaultKind::slow) {
    if (step >= settings_.step) delay();
    last_ = std::chrono::steady_clock::now(), last_waited_ = beacon_.waited();
    return;
  }
  if (step != settings_.step) return;
  if (settings_.kind != FaultKind::kill && settings_.kind != FaultKind::stop) mine_ = false;  // once: a step may be taken again
  switch (settings_.kind) {
    case FaultKind::kill: ::kill(getpid(), SIGKILL); break;
    case FaultKind::stop: ::kill(getpid(), SIGSTOP); break;
    case FaultKind::leave: ::_exit(int(settings_.amount));
    case FaultKind::hang:
      for (;;) ::pause();
    case FaultKind::nan:
    case FaultKind::gradflip: spoil_ = true; break;
    case FaultKind::bitflip: flip_weight(largest()); break;
    case FaultKind::scale:
      for (const auto& p : engine_.stage().parameters().all()) scale(*p);
      break;
    case FaultKind::slow:
    case FaultKind::none: break;
  }
}

// Sleeps as long as the last step worked, less its waiting, times what makes it so many times as slow.
template <class T>
void Fault<T>::delay() {
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - last_).count();
  const double worked = std::max(0.0, took - (beacon_.waited() - last_waited_));
  std::this_thread::sleep_for(std::chrono::duration<double>((settings_.amount - 1) * worked));
}

template <class T>
const Parameter& Fault<T>::largest() const {
  const Parameter* found = nullptr;
  for (const auto& p : engine_.stage().parameters().all())
    if (!found || p->size() > found->size()) found = p.get();
  return *found;
}

// The numbers that training goes on from: of a weight that has a master those, since the weight itself is made anew from them.
template <class T>
template <class F>
void Fault<T>::with_values(const Parameter& p, F&& f) {
  if (engine_.optimizer().has_master(p)) f(engine_.optimizer().master(p));
  else if (p.dtype() == dtype_of<T>()) f(p.vector<T>());
  else f(p.vector<Acc<T>>());
}

// In the middle of the weight.
template <class T>
void Fault<T>::flip_weight(const Parameter& p) {
  with_values(p, [&](auto values) { flip_bit(values, p.size() / 2); });
}

// All of them, or a bit of the largest: most numbers of an embedding's gradient are 0.
template <class T>
void Fault<T>::spoil(Device& dev, Tensor1<Acc<T>> gradients) {
  if (settings_.kind == FaultKind::nan) return fill<Acc<T>>(dev, gradients, std::numeric_limits<double>::quiet_NaN());
  dev.exec.fence();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), gradients);
  Index at = 0;
  for (Index i = 0; i < Index(host.size()); ++i)
    if (std::abs(host(i)) > std::abs(host(at))) at = i;
  flip_bit(gradients, at);
}

template <class T>
template <class S>
void Fault<T>::flip_bit(Tensor1<S> values, Index at) {
  S number;
  const Kokkos::View<S, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(&number);
  Kokkos::deep_copy(host, Kokkos::subview(values, at));
  auto* bytes = reinterpret_cast<unsigned char*>(&number);
  const int bit = int(settings_.amount) % int(8 * sizeof(S));
  bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
  Kokkos::deep_copy(Kokkos::subview(values, at), host);
}

template <class T>
void Fault<T>::scale(const Parameter& p) {
  with_values(p, [&](auto values) {
    using S = typename decltype(values)::non_const_value_type;
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);
    for (Index i = 0; i < p.size(); ++i) host(i) = S(double(host(i)) * settings_.amount);
    Kokkos::deep_copy(values, host);
  });
}

template class Fault<double>;
template class Fault<float>;
template class Fault<bf16>;

}  // namespace gyr
