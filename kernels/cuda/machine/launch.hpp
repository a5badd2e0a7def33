// SPDX-License-Identifier: BSD-3-Clause
// Kernel launches.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "kernels/cuda/machine/primitives.hpp"
#include "kernels/cuda/machine/runtime.hpp"
#include "kernels/cuda/machine/wgmma_trial.hpp"
#include "kernels/device/device.hpp"

#if !defined(__CUDACC__)
#include "kernels/cuda/emulation/streams.hpp"
#endif

namespace gyr::cuda {

#if defined(__CUDACC__)
struct Grid {
  Index blocks;
  int threads;
  int shared_bytes = 0;
};

// Raises a kernel's dynamic shared-memory limit. This is done once per kernel, because the call may wait for the
// device.
inline void allow_shared_bytes(const void* kernel, int bytes, const char* name) {
  constexpr int given = 48 << 10;  // default limit in bytes, which needs no call
  static std::unordered_map<const void*, int> allowed;
  if (bytes <= given) return;
  int& most = allowed[kernel];
  if (bytes > most) check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most = bytes), name);
}
#endif

// Launches the kernel on the device's stream. A grid without blocks launches nothing.
template <class... P, class... A>
void launch(Device& dev, [[maybe_unused]] const char* name, const Grid& grid, void (*kernel)(P...), const A&... arguments) {
  if (grid.blocks == 0) return;
#if defined(__CUDACC__)
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), grid.shared_bytes, name);
  kernel<<<unsigned(grid.blocks), unsigned(grid.threads), std::size_t(grid.shared_bytes), stream_of(dev)>>>(P(arguments)...);
  check(cudaGetLastError(), name);
#else
  enqueue(stream_of(dev), name, [=, given = std::tuple<P...>(P(arguments)...)] { run_grid(name, grid, [&] { std::apply(kernel, given); }); });
#endif
}

// True if kernels should use wgmma: the GPU has capability 9.0, the program contains code for it, GYR_CUDA_WARPGROUPS
// is not off, and the self-test has passed.
inline bool uses_wgmma() {
#if defined(__CUDACC__)
  constexpr int compiled[] = {__CUDA_ARCH_LIST__};
#else
  constexpr int compiled[] = {900};
#endif
  return environment_allows("GYR_CUDA_WARPGROUPS") && device_capability() == 90 &&
         std::find(std::begin(compiled), std::end(compiled), 900) != std::end(compiled) && wgmma_passes_self_test();
}

// Calls f(std::integral_constant<int, N>()) if all of these tensors allow packs of N elements, otherwise
// f(std::integral_constant<int, 1>()).
template <int N, class F, class... X>
void with_packs_of(const F& f, const Global<X>&... tensors) {
  if ((tensors.template packs<N>() && ...)) f(std::integral_constant<int, N>());
  else f(std::integral_constant<int, 1>());
}

// Same as with_packs_of, with as many elements of T per pack as one instruction loads.
template <class T, class F, class... X>
void with_packs(const F& f, const Global<X>&... tensors) {
  with_packs_of<pack_bytes / int(sizeof(T))>(f, tensors...);
}

}  // namespace gyr::cuda
