// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/traffic.hpp"

#include <algorithm>

namespace gyr {

std::string_view name_of(Operation op) {
  switch (op) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
    case Operation::send: return "send";
    case Operation::receive: return "receive";
    case Operation::all_to_all: return "all_to_all";
    case Operation::shift: return "shift";
  }
  return "";
}

void TrafficCount::add(Operation op, const char* purpose, const Traffic& more) {
  auto line = std::find_if(lines_.begin(), lines_.end(),
                           [&](const Line& l) { return l.operation == op && std::string_view(l.purpose) == std::string_view(purpose); });
  if (line == lines_.end()) line = lines_.insert(line, {op, purpose, {}});
  line->traffic.calls += more.calls, line->traffic.bytes += more.bytes;
}

void TrafficCount::add(const TrafficCount& more, Index times) {
  for (const Line& l : more.lines_) add(l.operation, l.purpose, {l.traffic.calls * times, l.traffic.bytes * times});
}

TrafficCount TrafficCount::since(const TrafficCount& before) const {
  TrafficCount rest = *this;
  rest.add(before, -1);
  return rest;
}

Traffic TrafficCount::of(Operation op) const {
  Traffic sum;
  for (const Line& l : lines_)
    if (l.operation == op) sum.calls += l.traffic.calls, sum.bytes += l.traffic.bytes;
  return sum;
}

}  // namespace gyr
