// SPDX-License-Identifier: BSD-3-Clause
// Scope in which a task of a training slot runs: scratch allocations follow the slot's tape (recorded memory plan).
#pragma once

#include <optional>

#include "kernels/device/arena.hpp"

namespace gyr {

class OnTape {
 public:
  OnTape(Arena& scratch, std::optional<Tape>& tape) : scratch_(scratch), tape_(tape) {
    if (tape_) scratch_.follow(&*tape_);
  }
  ~OnTape() {
    scratch_.follow(nullptr);
    if (tape_) tape_->end_task();
  }
  OnTape(const OnTape&) = delete;
  OnTape& operator=(const OnTape&) = delete;

 private:
  Arena& scratch_;
  std::optional<Tape>& tape_;
};

}  // namespace gyr
