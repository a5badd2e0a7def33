// SPDX-License-Identifier: BSD-3-Clause
// Memory registered with the communicators of the emulated NCCL. Errors that NCCL leaves undefined or ignores throw a
// Violation here: deregistering memory that is not registered, freeing memory or destroying a communicator before
// deregistration, and an operation on unregistered memory with a communicator that has registered other memory.
#pragma once

#include <map>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

class Registrations {
 public:
  static Registrations& instance();

  void* add(const void* communicator, const void* begin, std::size_t bytes);  // registers memory; returns its handle
  void remove(const void* communicator, const void* handle);
  Index count() const { return Index(all_.size()); }

  // Checks before an operation of a communicator, before its destruction, and before memory is freed.
  void judge_operation(const char* name, const void* communicator, const void* begin, std::size_t bytes) const;
  void judge_end(const void* communicator) const;
  void judge_return(const void* begin, std::size_t bytes) const;

 private:
  struct Piece {
    const void* communicator;
    const char* begin;
    std::size_t bytes;
    bool has(const void* p, std::size_t n) const { return p >= begin && static_cast<const char*>(p) + n <= begin + bytes; }
  };
  std::map<std::size_t, Piece> all_;  // registered pieces of memory by handle
  std::size_t last_ = 0;
};

}  // namespace gyr::cuda
