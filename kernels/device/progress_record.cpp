// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/progress_record.hpp"

#include <algorithm>
#include <cstring>

namespace gyr {

int ProgressRecord::channel(std::string_view name) {
  const int number = channel_count_.load(std::memory_order_relaxed);
  const std::string_view kept = name.substr(0, name_bytes - 1);
  for (int known = 0; known < number; ++known)
    if (kept == channels_[known].data()) return known;
  if (number == most_channels) return -1;  // the table is full: this communicator has no name
  std::copy(kept.begin(), kept.end(), channels_[number].begin());
  channel_count_.store(number + 1, std::memory_order_release);
  return number;
}

ProgressSnapshot ProgressRecord::look() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  ProgressSnapshot s;
  s.progress = progress_.load(relaxed);
  s.step = step_.load(relaxed), s.micro = micro_.load(relaxed);
  s.phase = phase_.load(relaxed), s.task = task_.load(relaxed);
  s.waiting = waiting_.load(relaxed);
  const int channel = channel_.load(relaxed);
  if (channel >= 0 && channel < channel_count_.load(std::memory_order_acquire)) s.channel = channels_[channel].data();
  s.operation = operation_.load(relaxed);
  s.number = number_.load(relaxed);
  s.bytes = bytes_.load(relaxed), s.sent = sent_.load(relaxed);
  s.waited = waited();
  s.worked = worked_.load(relaxed), s.stepped = stepped_.load(relaxed);
  s.loss = loss_.load(relaxed);
  return s;
}

}  // namespace gyr
