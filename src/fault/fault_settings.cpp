// SPDX-License-Identifier: BSD-3-Clause
#include "src/fault/fault_settings.hpp"

#include <algorithm>
#include <cstdlib>

#include "src/base/limits.hpp"

namespace gyr {

namespace {

struct Name {
  const char* text;
  FaultKind kind;
  bool takes_number, needs_number;
  double fallback, least, most;
};
constexpr Name names[] = {{"kill", FaultKind::kill, false, false, 0, 0, 0},        {"stop", FaultKind::stop, false, false, 0, 0, 0},
                          {"hang", FaultKind::hang, false, false, 0, 0, 0},        {"exit", FaultKind::leave, true, true, 0, 0, 255},
                          {"slow", FaultKind::slow, true, true, 0, 1, 1e6},        {"nan", FaultKind::nan, false, false, 0, 0, 0},
                          {"bitflip", FaultKind::bitflip, true, false, 22, 0, 63}, {"gradflip", FaultKind::gradflip, true, false, 22, 0, 63},
                          {"scale", FaultKind::scale, true, true, 0, 0, 1e30}};

}  // namespace

FaultSettings parse_fault(const std::string& kind) {
  FaultSettings s;
  s.text = kind;
  if (kind.empty()) return s;
  const auto colon = kind.find(':');
  for (const Name& name : names) {
    if (kind.substr(0, colon) != name.text) continue;
    s.kind = name.kind, s.amount = name.fallback;
    if (colon == std::string::npos && !name.needs_number) return s;
    char* end = nullptr;
    const char* number = kind.c_str() + (colon == std::string::npos ? kind.size() : colon + 1);
    s.amount = std::strtod(number, &end);
    const bool fine = name.takes_number && end != number && *end == 0 && s.amount >= name.least && s.amount <= name.most;
    require(fine, Exit::config, "fault.kind = {}: {} takes {}", kind, name.text,
            name.takes_number ? fmt::format("a number from {} to {}, as in {}:{}", name.least, name.most, name.text, std::max(name.least, 2.0))
                              : "no number");
    return s;
  }
  fail(Exit::config, "fault.kind = {}: choose kill, stop, hang, exit:CODE, slow:FACTOR, nan, bitflip:BIT, gradflip:BIT or scale:FACTOR", kind);
}

FaultSettings read_fault(Section& s) {
  FaultSettings c = parse_fault(
      s.get("kind", "",
            "fault to inject, for tests: kill, stop, hang, exit:CODE, slow:FACTOR, nan, bitflip:BIT, gradflip:BIT or scale:FACTOR; empty: none")
          .value());
  c.rank = s.get("rank", 0, "rank with the fault").at_least(0);
  c.step = s.get("step", 1, "step before which the fault is injected").positive().at_most(most_steps);
  c.attempt = s.get("attempt", 0, "attempt with the fault, as counted by gyrfalcon run; -1: every attempt").at_least(-1);
  return c;
}

std::string describe(const FaultSettings& s) {
  return fmt::format("FAULT INJECTION (fault.kind, for tests): rank {} gets {} at step {} of {}", s.rank, s.text, s.step,
                     s.attempt < 0 ? "every attempt" : fmt::format("attempt {}", s.attempt));
}

}  // namespace gyr
