// SPDX-License-Identifier: BSD-3-Clause
// Small models with a vision tower, and micro-batches with random images, for tests.
#pragma once

#include <algorithm>
#include <random>

#include "regression/support/cases.hpp"

namespace gyr::testing {

inline const ValueName<std::uint8_t> image_pixels{"pixels"};
inline constexpr Token image_token = 5;

// A model whose pattern has a tower, for example "*-V*-": images of 4 patches of 2 x 2 pixels, 10 channels, 2 heads.
inline ModelConfig image_model(const std::string& pattern, VisionTower tower, Index images = 2) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern;
  m.vision = vision_defaults(tower);
  m.vision.hidden_size = 12, m.vision.num_heads = 2, m.vision.intermediate_size = 10;
  m.vision.image_size = 4, m.vision.patch_size = 2;
  m.vision.image_token = image_token, m.vision.images = images;
  return m;
}

inline EngineConfig image_config(const ModelConfig& m, Index batch, Index seq_length) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = batch, c.seq_length = seq_length, c.source_length = m.vision.rows_of_sequence();
  return c;
}

// Images of each sequence of a batch, with random pixels. Their image tokens begin at random places and follow each other or not.
inline void add_images(MicroBatch& m, const ModelConfig& c, const std::vector<Index>& counts, std::mt19937_64& random) {
  const VisionConfig& v = c.vision;
  for (Token& token : m.tokens)
    if (token == v.image_token) token = v.image_token + 1;
  m.source = {v.rows_of_sequence(), {}, {}, {}};
  std::vector<std::uint8_t>& pixels = m.source.values[image_pixels];
  pixels.assign(std::size_t(m.batch * v.rows_of_sequence() * v.patch_values()), 0);
  for (Index b = 0; b < m.batch; ++b) {
    const Index count = counts[std::size_t(b) % counts.size()], placed = count * v.rows_in_text();
    m.source.lengths.push_back(count * v.rows());
    for (Index i = 0; i < count * v.rows() * v.patch_values(); ++i)
      pixels[std::size_t(b * v.rows_of_sequence() * v.patch_values() + i)] = std::uint8_t(random());
    std::vector<Index> places(static_cast<std::size_t>(m.seq_length));
    for (Index t = 0; t < m.seq_length; ++t) places[std::size_t(t)] = t;
    std::shuffle(places.begin(), places.end(), random);
    for (Index k = 0; k < placed; ++k) m.tokens[std::size_t(b * m.seq_length + places[std::size_t(k)])] = v.image_token;
  }
  for (std::size_t r = 0; r + 1 < m.tokens.size(); ++r)
    m.labels[r] = m.labels[r] == ignored_label || m.tokens[r + 1] == v.image_token ? ignored_label : m.labels[r];
}

// Bytes of one image, (channel, y, x), as the rows of its patches, after a row of zeros for the class embedding.
template <class Pixels>
std::vector<std::uint8_t> patch_bytes(const VisionConfig& v, const Pixels& pixels) {
  const Index side = v.image_size, p = v.patch_size;
  std::vector<std::uint8_t> bytes(std::size_t(v.has_class_row() ? v.patch_values() : 0), 0);
  for (Index row = 0; row < side / p; ++row)
    for (Index column = 0; column < side / p; ++column)
      for (Index c = 0; c < image_channels; ++c)
        for (Index y = 0; y < p; ++y)
          for (Index x = 0; x < p; ++x) bytes.push_back(std::uint8_t(pixels[std::size_t((c * side + row * p + y) * side + column * p + x)]));
  return bytes;
}

inline MicroBatch image_batch(const EngineConfig& c, const std::vector<Index>& counts, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  MicroBatch m = micro_batch(Index(seed % 1000), c.micro_batch_size, c.seq_length, c.model.vocab_size);
  add_images(m, c.model, counts, random);
  return m;
}

}  // namespace gyr::testing
