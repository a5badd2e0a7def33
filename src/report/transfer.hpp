// SPDX-License-Identifier: BSD-3-Clause
// How far a long copy is, on a terminal: one line that redraws itself and is gone at the end. Elsewhere nothing is printed.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/scalar.hpp"

namespace gyr {

class Transfer {
 public:
  Transfer(std::FILE* out, std::string what, Index bytes);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  void add(Index bytes);

 private:
  std::FILE* out_;
  std::string what_;
  Index bytes_, done_ = 0;
  bool live_;
  double drawn_at_ = 0;  // seconds of the steady clock
};

}  // namespace gyr
