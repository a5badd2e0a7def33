// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/transfer.hpp"

#include <chrono>

#include "src/report/progress.hpp"

namespace gyr {

namespace {
constexpr double redraw_interval = 0.1, line_seconds = 30;
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

StatusLine::StatusLine(std::FILE* out, double seconds_between_lines)
    : out_(out), live_(progress_style(out, 1).live), interval_(live_ ? redraw_interval : seconds_between_lines), begun_(now()), drawn_at_(begun_) {}

StatusLine::~StatusLine() {
  if (!live_ || !drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

bool StatusLine::due() const { return now() - drawn_at_ >= interval_; }
double StatusLine::seconds() const { return now() - begun_; }

void StatusLine::show(const std::string& text) {
  drawn_at_ = now(), drawn_ = true;
  std::fprintf(out_, live_ ? "\r\x1b[K%s" : "%s\n", text.c_str());
  std::fflush(out_);
}

Transfer::Transfer(std::FILE* out, std::string what, Index bytes) : line_(out, line_seconds), what_(std::move(what)), bytes_(bytes) {}

void Transfer::reach(Index done) {
  done_ = done;
  if (!line_.due()) return;
  const double left = done_ > 0 ? line_.seconds() * double(bytes_ - done_) / double(done_) : 0;
  line_.show(fmt::format("{} {:.2f} of {:.2f} GB, {} left", what_, double(done_) / 1e9, double(bytes_) / 1e9, duration(left)));
}

}  // namespace gyr
