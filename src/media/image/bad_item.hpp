// SPDX-License-Identifier: BSD-3-Clause
// Error of a single media file or line, which a build refuses or skips.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace gyr::media {

struct BadItem {
  std::string reason;  // a phrase to be put after the name of the file, such as "is an empty file"
};

template <class... Args>
[[noreturn]] void refuse_item(fmt::format_string<Args...> text, Args&&... args) {
  throw BadItem{fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace gyr::media
