// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/registrations.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gyr::cuda {

Registrations& Registrations::instance() {
  static Registrations& registrations = *new Registrations;  // never destroyed, because memory may be freed late
  return registrations;
}

void* Registrations::add(const void* communicator, const void* begin, std::size_t bytes) {
  all_[++last_] = {communicator, static_cast<const char*>(begin), bytes};
  return reinterpret_cast<void*>(last_);
}

void Registrations::remove(const void* communicator, const void* handle) {
  const auto found = all_.find(reinterpret_cast<std::size_t>(handle));
  if (found == all_.end() || found->second.communicator != communicator)
    throw Violation("a communicator deregisters memory that it has not registered, or no longer has registered");
  all_.erase(found);
}

void Registrations::judge_operation(const char* name, const void* communicator, const void* begin, std::size_t bytes) const {
  bool some = false;
  for (const auto& [handle, piece] : all_) {
    if (piece.communicator != communicator) continue;
    if (piece.has(begin, bytes)) return;
    some = true;
  }
  if (some && bytes > 0)
    throw Violation(fmt::format("{} of {} bytes that are not registered, with a communicator that has registered others", name, bytes));
}

void Registrations::judge_end(const void* communicator) const {
  const auto left = std::count_if(all_.begin(), all_.end(), [&](const auto& entry) { return entry.second.communicator == communicator; });
  if (left > 0) throw Violation(fmt::format("a communicator ends with {} pieces of memory still registered", left));
}

void Registrations::judge_return(const void* begin, std::size_t bytes) const {
  const char* const first = static_cast<const char*>(begin);
  const auto held = std::count_if(all_.begin(), all_.end(), [&](const auto& entry) {
    const Piece& piece = entry.second;
    return piece.begin < first + bytes && first < piece.begin + piece.bytes;
  });
  if (held > 0) throw Violation(fmt::format("{} bytes of device memory are freed that {} communicators have registered", bytes, held));
}

}  // namespace gyr::cuda
