// SPDX-License-Identifier: BSD-3-Clause
// Limits on the work of one rendering, so that no template runs for long or fills the memory.
#pragma once

#include <cstddef>

#include "src/jinja/problem.hpp"

namespace gyr::jinja {

// `steps`: evaluated nodes, and elements and blocks of 64 bytes that operations visit. `bytes`: total size of all values
// that are created, a bound on the memory in use. Both grow with the size of the conversation.
class Budget {
 public:
  // Size of a text, list, dict or scope apart from its content, with the allocator's share.
  static constexpr std::size_t value_size = 128;

  explicit Budget(std::size_t input_bytes) : steps_(20'000'000 + 4 * input_bytes), bytes_((std::size_t(256) << 20) + 32 * input_bytes) {}

  void step(std::size_t count = 1) {
    if (count > steps_) refuse("the template takes too many steps");
    steps_ -= count;
  }
  void bytes(std::size_t count) {
    if (count > bytes_) refuse("the template creates too much text");
    bytes_ -= count;
    step(count / 64);
  }

 private:
  std::size_t steps_, bytes_;
};

}  // namespace gyr::jinja
