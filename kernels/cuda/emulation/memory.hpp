// SPDX-License-Identifier: BSD-3-Clause
// The memory of the emulated device. Where the machine's memories are apart, its addresses are none of the host: who follows one outside a kernel is
// ended by the system, as on a GPU. A checked machine remembers who touched what last, so that work of two streams which nothing orders is found.
#pragma once

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

// Null where there is not so much.
void* take_device_memory(std::size_t bytes);
void return_device_memory(void*);
bool is_device_memory(const void*);
std::size_t device_memory_bytes();

// Where the host finds what the device has at p. Other memory than the device's is a Violation where memories are apart, and itself elsewhere.
char* resolved(const void* p);
template <class T>
T* resolved(T* p) {
  return reinterpret_cast<T*>(resolved(static_cast<const void*>(p)));
}

// The task that runs now touches bytes of the device: a Violation where another stream did and nothing lies between, on a checked machine.
void touch(const void* p, std::size_t bytes, Touch);

}  // namespace gyr::cuda
