// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/transfer.hpp"

#include <chrono>

#include "src/report/progress.hpp"

namespace gyr {

namespace {
constexpr double redraw_interval = 0.1, line_seconds = 30;
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

Transfer::Transfer(std::FILE* out, std::string what, Index bytes)
    : out_(out), what_(std::move(what)), bytes_(bytes), live_(progress_style(out, 1).live), begun_(now()), drawn_at_(live_ ? 0 : begun_) {}

Transfer::~Transfer() {
  if (!live_ || drawn_at_ == 0) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

void Transfer::reach(Index done) {
  done_ = done;
  const double at = now();
  if (at - drawn_at_ < (live_ ? redraw_interval : line_seconds)) return;
  drawn_at_ = at;
  const double left = done_ > 0 ? (at - begun_) * double(bytes_ - done_) / double(done_) : 0;
  const std::string line = fmt::format("{} {:.2f} of {:.2f} GB, {} left", what_, double(done_) / 1e9, double(bytes_) / 1e9, duration(left));
  std::fprintf(out_, live_ ? "\r\x1b[K%s" : "%s\n", line.c_str());
  std::fflush(out_);
}

}  // namespace gyr
