// SPDX-License-Identifier: BSD-3-Clause
// Memory of the emulated device. If Machine::apart is set, device addresses are not mapped on the host, so code that
// dereferences one outside a kernel receives a signal, as on a GPU. A checked machine records the last accesses, to
// find unordered accesses by two streams.
#pragma once

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

// Allocates device memory; null if there is not enough.
void* take_device_memory(std::size_t bytes);
void return_device_memory(void*);
bool is_device_memory(const void*);
std::size_t device_memory_bytes();

// Host address of the device memory at p. If p is not device memory, throws a Violation if Machine::apart is set, else
// returns p.
char* resolved(const void* p);
template <class T>
T* resolved(T* p) {
  return reinterpret_cast<T*>(resolved(static_cast<const void*>(p)));
}

// Records an access by the running task. On a checked machine, throws a Violation if another stream accessed the bytes
// without synchronisation in between.
void touch(const void* p, std::size_t bytes, Touch);

}  // namespace gyr::cuda
