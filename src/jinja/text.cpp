// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/text.hpp"

#include <algorithm>

namespace gyr::jinja {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) { close_run(origin); }

void Text::close_run(Origin origin) {
  if (bytes_.size() == (runs_.empty() ? 0 : runs_.back().end)) return;
  if (!runs_.empty() && runs_.back().origin == origin) runs_.back().end = bytes_.size();
  else runs_.push_back({bytes_.size(), origin});
}

void Text::append(std::string_view bytes, Origin origin) {
  bytes_ += bytes;
  close_run(origin);
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  end = std::min(end, other.size());
  if (begin >= end) return;
  const std::size_t shift = bytes_.size();
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin, [](std::size_t at, const Run& r) { return at < r.end; });
  bytes_.append(other.bytes_, begin, end - begin);
  for (; run != other.runs_.end(); ++run) {
    const std::size_t last = std::min(run->end, end) - begin + shift;
    if (!runs_.empty() && runs_.back().origin == run->origin) runs_.back().end = last;
    else runs_.push_back({last, run->origin});
    if (run->end >= end) break;
  }
}

void Text::append_changed(std::string_view bytes, const Text& from, std::size_t begin) { append(bytes, from.origin_at(begin)); }

Text Text::part(std::size_t begin, std::size_t end) const {
  Text text;
  text.append(*this, begin, end);
  return text;
}

Origin Text::origin_at(std::size_t byte) const {
  return std::upper_bound(runs_.begin(), runs_.end(), byte, [](std::size_t at, const Run& r) { return at < r.end; })->origin;
}

void Text::mark_generated() {
  for (Run& run : runs_) run.origin.generated = true;
}

}  // namespace gyr::jinja
