// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/terminal.hpp"

#include <sys/ioctl.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace gyr {

int output_width(std::FILE* out, int of_files) {
  constexpr int least = 20;
  const char* const set = std::getenv("COLUMNS");
  const std::string_view text = set ? set : "";
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error == std::errc() && end == text.data() + text.size() && columns >= least) return columns;
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= least ? size.ws_col : of_files;
}

}  // namespace gyr
