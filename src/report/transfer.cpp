// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/transfer.hpp"

#include <chrono>

#include "src/report/progress.hpp"

namespace gyr {

namespace {
constexpr double redraw_seconds = 0.1;
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

Transfer::Transfer(std::FILE* out, std::string what, Index bytes)
    : out_(out), what_(std::move(what)), bytes_(bytes), live_(progress_style(out, 1).live) {}

Transfer::~Transfer() {
  if (!live_ || drawn_at_ == 0) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

void Transfer::add(Index bytes) {
  done_ += bytes;
  if (!live_ || now() - drawn_at_ < redraw_seconds) return;
  drawn_at_ = now();
  std::fprintf(out_, "\r\x1b[K%s %.2f of %.2f GB", what_.c_str(), double(done_) / 1e9, double(bytes_) / 1e9);
  std::fflush(out_);
}

}  // namespace gyr
