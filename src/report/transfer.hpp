// SPDX-License-Identifier: BSD-3-Clause
// Progress and remaining time of a long copy: on a terminal one line that is redrawn, and erased at the end; elsewhere
// one line every 30 seconds.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/base/scalar.hpp"

namespace gyr {

class Transfer {
 public:
  Transfer(std::FILE* out, std::string what, Index bytes);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  void add(Index bytes) { reach(done_ + bytes); }
  void reach(Index done);

 private:
  std::FILE* out_;
  std::string what_;
  Index bytes_, done_ = 0;
  bool live_;
  double begun_, drawn_at_ = 0;  // start and last redraw, seconds of the steady clock
};

}  // namespace gyr
