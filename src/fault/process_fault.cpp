// SPDX-License-Identifier: BSD-3-Clause
#include "src/fault/process_fault.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace gyr {

bool is_for(const FaultSettings& settings, const Identity& me) {
  const bool now = settings.any() && (settings.attempt < 0 || settings.attempt == me.attempt);
  require(!now || settings.rank < me.ranks, Exit::config, "fault.rank = {}, but there are {} ranks", settings.rank, me.ranks);
  return now && settings.rank == me.rank;
}

void break_process(const FaultSettings& settings) {
  if (settings.kind == FaultKind::kill) ::kill(getpid(), SIGKILL);
  if (settings.kind == FaultKind::stop) ::kill(getpid(), SIGSTOP);
  if (settings.kind == FaultKind::leave) ::_exit(int(settings.amount));
  while (settings.kind == FaultKind::hang) ::pause();
}

ProcessFault::ProcessFault(const FaultSettings& settings, const Identity& me) : settings_(settings), due_(is_for(settings, me)) {
  constexpr FaultKind kinds[] = {FaultKind::kill, FaultKind::stop, FaultKind::leave, FaultKind::hang};
  require(!due_ || std::find(std::begin(kinds), std::end(kinds), settings.kind) != std::end(kinds), Exit::config,
          "fault.kind = {}: rank {} only generates answers; choose kill, stop, hang or exit:CODE, or the rank of one that trains", settings.text,
          me.rank);
}

void ProcessFault::inject(Index step) {
  if (step < settings_.step || !std::exchange(due_, false)) return;
  break_process(settings_);
}

}  // namespace gyr
