// SPDX-License-Identifier: BSD-3-Clause
// Time that limits a search, in seconds since its begin:
//   max(p, e / 4)   p: processor time of this process;  e: elapsed time
// By processor time, a search on a busy machine finds what it finds on an idle one. The elapsed time also ends a search that hardly runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace gyr {

class SearchTime {
 public:
  static constexpr double most_elapsed = 4;  // elapsed seconds of a second of the limit

  double seconds() const {
    const double processor = double(std::clock() - begin_) / CLOCKS_PER_SEC;
    return std::max(processor, std::chrono::duration<double>(std::chrono::steady_clock::now() - elapsed_).count() / most_elapsed);
  }

 private:
  std::clock_t begin_ = std::clock();
  std::chrono::steady_clock::time_point elapsed_ = std::chrono::steady_clock::now();
};

}  // namespace gyr
