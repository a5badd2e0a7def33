// SPDX-License-Identifier: BSD-3-Clause
// Traffic passed to a transport, counted by operation and purpose.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

enum class Operation { all_reduce, reduce_scatter, all_gather, broadcast, send, receive, all_to_all, shift };
inline constexpr int operations = 8;
std::string_view name_of(Operation);

struct Traffic {
  Index calls = 0;
  Index bytes = 0;
};

class TrafficCount {
 public:
  struct Line {
    Operation operation;
    const char* purpose;  // label of the traffic, a string literal
    Traffic traffic;
  };

  void add(Operation, const char* purpose, const Traffic&);
  void add(const TrafficCount& more, Index times = 1);
  // Traffic added since an earlier state of this count.
  TrafficCount since(const TrafficCount& before) const;
  Traffic of(Operation) const;
  const std::vector<Line>& lines() const { return lines_; }  // one line per operation and purpose, in order of first use

 private:
  std::vector<Line> lines_;
};

}  // namespace gyr
