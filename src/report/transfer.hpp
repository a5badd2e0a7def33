// SPDX-License-Identifier: BSD-3-Clause
// How far a long copy is and how long it will take: on a terminal one line that redraws itself and is gone at the end, elsewhere a line every half
// minute.
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
  double begun_, drawn_at_ = 0;  // seconds of the steady clock
};

}  // namespace gyr
