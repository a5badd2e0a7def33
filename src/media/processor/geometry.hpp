// SPDX-License-Identifier: BSD-3-Clause
// Pictures of the sizes that a model expects, made from a decoded file as its image processor does.
#pragma once

#include "src/media/processor/processor.hpp"

namespace gyr::media {

struct Extent2 {
  Index height, width;
  bool operator==(const Extent2&) const = default;
};

struct PreparedImage {
  std::vector<Image> items;               // one picture; of tiles: row by row, then the complete picture
  Index tile_rows = 0, tile_columns = 0;  // 0: not split
  Index grid_height = 0, grid_width = 0;  // native: patches of the picture
};

// Size after resizing, and for tiles before the split. BadItem: the processor accepts no picture of this shape.
Extent2 resized_extent(const Processor&, Extent2 file);
PreparedImage prepared(const Processor&, const Image&);

}  // namespace gyr::media
