// SPDX-License-Identifier: BSD-3-Clause
// Media files that a line of a JSONL file names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyr::media {

// Paths of the images of a line, in order. BadItem unless the line has one of these forms, where the number of <image>
// marks of the last two equals that of the images:
//   {"messages": [{"role": ..., "content": TEXT or [{"type": "image", "path": PATH}, {"type": "text", "text": TEXT}]}]}
//   {"image": PATH or [PATH, ...], "conversations": [{"from": ..., "value": TEXT}]}
//   {"text": TEXT, "images": [PATH, ...]}
std::vector<std::string> images_of_line(std::string_view line);

}  // namespace gyr::media
