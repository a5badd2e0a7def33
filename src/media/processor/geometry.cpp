// SPDX-License-Identifier: BSD-3-Clause
// Sizes are computed in double, in the order of operations of transformers, because a rounded size depends on it.
#include "src/media/processor/geometry.hpp"

#include <algorithm>
#include <cmath>

#include "src/media/image/bad_item.hpp"

namespace gyr::media {

namespace {

constexpr Index longest_of_tiles = 4096;     // of Idefics3, whatever its settings ask for
constexpr Index most_prepared = 89'478'485;  // pixels of a picture between two steps
constexpr double most_ratio = 200;           // of Qwen2-VL, longest side to shortest

Index floor_half(Index x) { return (x - (x < 0 && x % 2 != 0)) / 2; }

Extent2 fixed_extent(const Processor& p, Extent2 file) {
  if (p.height > 0) return {p.height, p.width};
  const Index shortest = std::min(file.height, file.width), longest = std::max(file.height, file.width);
  const Index other = Index(double(p.shortest * longest) / double(shortest));
  return file.width <= file.height ? Extent2{other, p.shortest} : Extent2{p.shortest, other};
}

Index next_even(Index x) { return x + x % 2; }
Index next_multiple(Index x, Index of) { return (x + of - 1) / of * of; }

// The longest side becomes `longest`, and the other one keeps the ratio.
Extent2 with_longest(Extent2 from, Index longest, Index (*round)(Index)) {
  const double ratio = double(from.width) / double(from.height);
  if (from.width >= from.height) return {std::max<Index>(1, round(Index(double(longest) / ratio))), longest};
  return {longest, std::max<Index>(1, round(Index(double(longest) * ratio)))};
}

Extent2 tiled_extent(const Processor& p, Extent2 file) {
  Extent2 size = with_longest(file, p.longest, next_even);
  if (std::max(size.height, size.width) > longest_of_tiles) size = with_longest(size, longest_of_tiles, [](Index x) { return x; });
  return size;
}

// Both sides become multiples of the tile.
Extent2 extent_of_grid(Extent2 size, Index tile) {
  const double ratio = double(size.width) / double(size.height);
  if (size.width >= size.height) {
    const Index width = next_multiple(size.width, tile);
    return {next_multiple(Index(double(width) / ratio), tile), width};
  }
  const Index height = next_multiple(size.height, tile);
  return {height, next_multiple(Index(double(height) * ratio), tile)};
}

Extent2 native_extent(const Processor& p, Extent2 file) {
  const double h = double(file.height), w = double(file.width), factor = double(p.patch * p.merge);
  if (std::max(h, w) / std::min(h, w) > most_ratio)
    refuse_item("has {} x {} pixels (height x width); the longest side may be {} times the shortest", file.height, file.width, most_ratio);
  double height = std::nearbyint(h / factor) * factor, width = std::nearbyint(w / factor) * factor;  // halves to even, as in Python
  if (height * width > double(p.most_pixels)) {
    const double shrink = std::sqrt(h * w / double(p.most_pixels));
    height = std::max(factor, std::floor(h / shrink / factor) * factor), width = std::max(factor, std::floor(w / shrink / factor) * factor);
  } else if (height * width < double(p.least_pixels)) {
    const double grow = std::sqrt(double(p.least_pixels) / (h * w));
    height = std::ceil(h * grow / factor) * factor, width = std::ceil(w * grow / factor) * factor;
  }
  return {Index(height), Index(width)};
}

void require_extent(Extent2 e, Extent2 file) {
  if (e.height < 1 || e.width < 1 || e.height > most_prepared / std::max<Index>(1, e.width))
    refuse_item("has {} x {} pixels (height x width), which the processor would resize to {} x {}", file.height, file.width, e.height, e.width);
}

Image resized_within(const Image& image, Extent2 to, Filter filter) {
  require_extent(to, {image.height, image.width});
  return resized(image, to.height, to.width, filter);
}

void split_into_tiles(const Processor& p, const Image& image, PreparedImage& result) {
  const Image grid = resized_within(image, extent_of_grid({image.height, image.width}, p.tile), p.filter);
  if (grid.height <= p.tile && grid.width <= p.tile) {
    result.items.push_back(grid);
    return;
  }
  result.tile_rows = grid.height / p.tile, result.tile_columns = grid.width / p.tile;
  for (Index r = 0; r < result.tile_rows; ++r)
    for (Index c = 0; c < result.tile_columns; ++c) result.items.push_back(cropped(grid, r * p.tile, c * p.tile, p.tile, p.tile));
  result.items.push_back(resized(grid, p.tile, p.tile, p.filter));
}

}  // namespace

Extent2 resized_extent(const Processor& p, Extent2 file) {
  switch (p.geometry) {
    case Processor::Geometry::fixed: return fixed_extent(p, file);
    case Processor::Geometry::tiles: return p.split ? extent_of_grid(tiled_extent(p, file), p.tile) : Extent2{p.tile, p.tile};
    case Processor::Geometry::native: return native_extent(p, file);
  }
  return file;
}

PreparedImage prepared(const Processor& p, const Image& file) {
  PreparedImage result;
  if (p.geometry == Processor::Geometry::tiles) {
    const Image image = resized_within(file, tiled_extent(p, {file.height, file.width}), p.filter);
    if (p.split) split_into_tiles(p, image, result);
    else result.items.push_back(resized(image, p.tile, p.tile, p.filter));
    return result;
  }
  Image image = resized_within(file, resized_extent(p, {file.height, file.width}), p.filter);
  if (p.crop_height > 0)
    image = cropped(image, floor_half(image.height - p.crop_height), floor_half(image.width - p.crop_width), p.crop_height, p.crop_width);
  if (p.geometry == Processor::Geometry::native) result.grid_height = image.height / p.patch, result.grid_width = image.width / p.patch;
  result.items.push_back(std::move(image));
  return result;
}

}  // namespace gyr::media
