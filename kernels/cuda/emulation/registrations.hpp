// SPDX-License-Identifier: BSD-3-Clause
// Memory that communicators of the NCCL in this process have registered. What NCCL leaves undefined, or clears away without a word, is a Violation
// here: what is deregistered without having been registered, is given back to the device or left behind by its communicator before it is
// deregistered, and memory that is none of the registered for an operation of a communicator that has registered some.
#pragma once

#include <map>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

class Registrations {
 public:
  static Registrations& instance();

  void* add(const void* communicator, const void* begin, std::size_t bytes);  // the handle
  void remove(const void* communicator, const void* handle);
  Index count() const { return Index(all_.size()); }

  // Before an operation of a communicator, the end of one, and memory that is given back.
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
  std::map<std::size_t, Piece> all_;  // by handle
  std::size_t last_ = 0;
};

}  // namespace gyr::cuda
