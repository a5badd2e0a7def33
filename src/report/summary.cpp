// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/summary.hpp"

#include "src/base/table.hpp"

namespace gyr {

std::string banner(std::string_view version, std::span<const std::pair<std::string, std::string>> facts) {
  Table table({{"", false, 24}, {"", false, 92}});
  for (const auto& [name, value] : facts) table.row({name, value});
  return fmt::format("Gyrfalcon {}\n{}", version, table.str(false));
}

std::string last_line(Exit code) {
  if (code == Exit::ok) return "RUN OK";
  return fmt::format("RUN {} {} ({})", code == Exit::again ? "STOPPED" : "FAILED", int(code), meaning(code));
}

std::string_view meaning(Exit code) {
  switch (code) {
    case Exit::ok: return "done";
    case Exit::usage: return "invalid command line";
    case Exit::data: return "a file's content is invalid or damaged";
    case Exit::missing: return "a file does not exist";
    case Exit::internal: return "internal error: please report it";
    case Exit::device: return "MPI, launcher, device or processor";
    case Exit::io: return "reading or writing failed";
    case Exit::again: return "stopped early: submit again to continue";
    case Exit::config: return "invalid deck";
    case Exit::numeric: return "loss or gradient not finite, or replicas differ";
    case Exit::unequal: return "verify: results of the layout differ from those of one rank";
  }
  return "unknown";
}

std::string exit_codes() {
  std::string text = "Exit codes:";
  for (const Exit code : {Exit::ok, Exit::usage, Exit::data, Exit::missing, Exit::device, Exit::internal, Exit::io, Exit::again, Exit::config,
                          Exit::numeric, Exit::unequal})
    text += fmt::format(" {} {}{}", int(code), meaning(code), code == Exit::unequal ? ".\n" : ";");
  return text;
}

}  // namespace gyr
