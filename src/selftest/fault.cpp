// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/fault.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr::selftest {

namespace {

constexpr std::array<std::pair<const char*, FaultKind>, 6> kinds{{{"wrong_memory", FaultKind::wrong_memory},
                                                                  {"wrong_bit", FaultKind::wrong_bit},
                                                                  {"slow_memory", FaultKind::slow_memory},
                                                                  {"slow_link", FaultKind::slow_link},
                                                                  {"dead_link", FaultKind::dead_link},
                                                                  {"wrong_link", FaultKind::wrong_link}}};

}  // namespace

std::string fault_kinds() {
  std::string names;
  for (const auto& [name, kind] : kinds) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Fault fault_in(const std::string& text, int ranks) {
  Fault fault;
  if (text.empty()) return fault;
  const auto colon = text.find(':');
  for (const auto& [name, kind] : kinds)
    if (text.substr(0, colon) == name) fault.kind = kind;
  const char* const begin = colon == text.npos ? text.data() : text.data() + colon + 1;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), fault.rank);
  require(fault.kind != FaultKind::none && error == std::errc() && end == text.data() + text.size() && fault.rank >= 0 && fault.rank < ranks,
          Exit::usage, "--fault {}: must be KIND:RANK with a rank of 0 to {}, as in wrong_bit:0; kinds are {}", printable(text), ranks - 1,
          fault_kinds());
  return fault;
}

}  // namespace gyr::selftest
