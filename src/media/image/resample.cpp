// SPDX-License-Identifier: BSD-3-Clause
// Resizing along an axis from n to m samples: s = n / m, S = max(s, 1), support = S * support of the filter f. Output i is
// the sum over inputs j in [from, to) of w_j x_j, where c = (i + 1/2) s, from = max(0, int(c - support + 1/2)),
// to = min(n, int(c + support + 1/2)) and w_j = f((j - c + 1/2) / S), divided by their sum. Weights are rounded to 22 bits
// after the point, and sums to 8-bit integers, also between the passes over the two axes (Pillow's Resample.c).
#include "src/media/image/resample.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gyr::media {

namespace {

constexpr int weight_bits = 22;

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double support_of(Filter filter) {
  switch (filter) {
    case Filter::lanczos: return 3;
    case Filter::bilinear: return 1;
    case Filter::bicubic: return 2;
    case Filter::box: return 0.5;
    case Filter::hamming: return 1;
  }
  return 1;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double hamming(double x) {
  if (x == 0) return 1;
  if (x >= 1) return 0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

double value_of(Filter filter, double x) {
  const double magnitude = std::fabs(x);
  switch (filter) {
    case Filter::lanczos: return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Filter::bilinear: return magnitude < 1 ? 1 - magnitude : 0;
    case Filter::bicubic: return bicubic(magnitude);
    case Filter::box: return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::hamming: return hamming(magnitude);
  }
  return 0;
}

// Inputs of one output sample and their weights.
struct Taps {
  Index from;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(Index inputs, Index outputs, Filter filter) {
  const double scale = double(inputs) / double(outputs), stretch = std::max(scale, 1.0), support = support_of(filter) * stretch;
  const double shrink = 1 / stretch;
  std::vector<Taps> all;
  for (Index i = 0; i < outputs; ++i) {
    const double center = (double(i) + 0.5) * scale;
    const Index from = std::max<Index>(0, Index(center - support + 0.5)), to = std::min(inputs, Index(center + support + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (Index j = 0; j < to - from; ++j) {
      weights.push_back(value_of(filter, (double(j + from) - center + 0.5) * shrink));
      sum += weights.back();
    }
    Taps taps{from, {}};
    for (double w : weights) {
      if (sum != 0) w /= sum;
      taps.weights.push_back(std::int32_t((w < 0 ? -0.5 : 0.5) + w * double(1 << weight_bits)));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t sample(std::int32_t sum) { return std::uint8_t(std::clamp(sum >> weight_bits, 0, 255)); }

Image resized_along_rows(const Image& image, Index width, Filter filter) {
  const std::vector<Taps> all = taps_of(image.width, width, filter);
  Image result = Image::black(image.height, width);
  for (Index i = 0; i < image.height; ++i)
    for (Index j = 0; j < width; ++j) {
      const Taps& taps = all[std::size_t(j)];
      const std::uint8_t* from = image.row(i) + 3 * taps.from;
      std::int32_t sums[3] = {1 << (weight_bits - 1), 1 << (weight_bits - 1), 1 << (weight_bits - 1)};
      for (const std::int32_t w : taps.weights)
        for (int c = 0; c < 3; ++c) sums[c] += w * *from++;
      for (int c = 0; c < 3; ++c) result.row(i)[3 * j + c] = sample(sums[c]);
    }
  return result;
}

Image resized_along_columns(const Image& image, Index height, Filter filter) {
  const std::vector<Taps> all = taps_of(image.height, height, filter);
  Image result = Image::black(height, image.width);
  std::vector<std::int32_t> sums(std::size_t(3 * image.width));
  for (Index i = 0; i < height; ++i) {
    const Taps& taps = all[std::size_t(i)];
    std::fill(sums.begin(), sums.end(), 1 << (weight_bits - 1));
    for (std::size_t t = 0; t < taps.weights.size(); ++t) {
      const std::uint8_t* const from = image.row(taps.from + Index(t));
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += taps.weights[t] * from[k];
    }
    for (std::size_t k = 0; k < sums.size(); ++k) result.row(i)[k] = sample(sums[k]);
  }
  return result;
}

}  // namespace

Image resized(const Image& image, Index height, Index width, Filter filter) {
  const bool along_rows = width != image.width, along_columns = height != image.height;
  // Pillow 13 begins with the columns if that saves work. The order changes results by rounding.
  const bool columns_first = height < image.height && 2 * (image.width - width) < image.height - height;
  if (along_rows && along_columns)
    return columns_first ? resized_along_rows(resized_along_columns(image, height, filter), width, filter)
                         : resized_along_columns(resized_along_rows(image, width, filter), height, filter);
  if (along_rows) return resized_along_rows(image, width, filter);
  if (along_columns) return resized_along_columns(image, height, filter);
  return image;
}

}  // namespace gyr::media
