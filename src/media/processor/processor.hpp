// SPDX-License-Identifier: BSD-3-Clause
// Image processor of a vision-language model: the settings of preprocessor_config.json in a Hugging Face folder.
#pragma once

#include <array>
#include <filesystem>
#include <string>

#include "src/media/image/resample.hpp"

namespace gyr::media {

// Sizes are in pixels.
struct Processor {
  // fixed: one picture of a fixed size (CLIP, SigLIP, Gemma 3). tiles: square tiles and the complete picture (Idefics3,
  // SmolVLM). native: a size close to that of the file, a multiple of patch * merge (Qwen2-VL, Qwen2.5-VL).
  enum class Geometry { fixed, tiles, native };

  std::string type;  // image_processor_type without "Fast" or "Pil"
  Geometry geometry = Geometry::fixed;
  Filter filter = Filter::bicubic;
  Index height = 0, width = 0;              // fixed: size after resizing; 0: the shortest side becomes `shortest`
  Index shortest = 0;                       // fixed
  Index crop_height = 0, crop_width = 0;    // fixed: size of the central crop; 0: none
  Index longest = 0, tile = 0;              // tiles: longest side before the split, and side of a tile
  bool split = true;                        // tiles: false: only the complete picture, in one tile
  Index patch = 0, merge = 0;               // native: side of a patch, and patches that are merged along each axis
  Index least_pixels = 0, most_pixels = 0;  // native: pixels of the resized picture
  std::array<double, 3> mean{}, std{};      // normalisation of channels in [0, 1], applied when a model reads the pixels

  // All settings as JSON with sorted keys. Two processors are equal if these texts are.
  std::string json() const;
};

// `path` is a preprocessor_config.json or a folder that holds one. Missing keys take the defaults of the class in
// transformers. Exit::missing, and Exit::data naming file and key for unknown keys, values and classes.
Processor read_processor(const std::filesystem::path& path);
Processor parse_processor(const std::string& text, const std::string& origin);

}  // namespace gyr::media
