// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/rope.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/instances.hpp"

namespace gyr {

RopeFrequencies::RopeFrequencies(double theta, const RopeScaling& scaling, Index half) : theta_(theta), scaling_(scaling), half_(half) {
  if (scaling.type == RopeScaling::llama3) first_ = scaling.low_freq_factor, last_ = scaling.high_freq_factor;
  if (scaling.type != RopeScaling::yarn) return;
  const auto pair = [&](double rotations) {
    return double(half) * std::log(double(scaling.original_positions) / (rotations * 2 * M_PI)) / std::log(theta);
  };
  const double first = pair(scaling.high_freq_factor), last = pair(scaling.low_freq_factor);
  first_ = std::max(scaling.truncate ? std::floor(first) : first, 0.0);
  last_ = std::min(scaling.truncate ? std::ceil(last) : last, double(2 * half - 1));
  if (first_ == last_) last_ += 0.001;
  amplitude_ = scaling.attention_factor > 0 ? scaling.attention_factor : scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
}

// The table is computed once, so it is not counted as work of a step.
template <class A>
void rope_table(Device& dev, double rope_theta, const RopeScaling& scaling, const Rotation<A>& table) {
  if (!dev.dry_run()) backend::rope_table<A>(dev, RopeFrequencies(rope_theta, scaling, table.cosine.extent(1)), table);
}

template <class A>
void rope_table_of_rows(Device& dev, double rope_theta, const RopeScaling& scaling, const RotaryPositions& positions,
                        Tensor1<const std::int32_t> lengths, const Rotation<A>& table) {
  const Index R = table.cosine.extent(0), half = table.cosine.extent(1);
  const RotarySections& s = positions.sections;
  const bool fits = Index(lengths.extent(0)) == R || (lengths.extent(0) == 0 && scaling.type != RopeScaling::dynamic);
  ensure(Index(positions.values.extent(0)) == R * s.count && fits,
         "rope_table_of_rows: {} positions and {} lengths do not fit {} rows of {} components", positions.values.extent(0), lengths.extent(0), R,
         s.count);
  for (int i = 0; s.count > 1 && i < s.count; ++i) {
    const Index begin = i == 0 ? 0 : s.ends[i - 1], end = s.ends[i];
    ensure(s.count <= s.most && begin < end && (i + 1 < s.count || end == half) && (!s.restarts || end - begin <= s.ends[0]),
           "rope_table_of_rows: section {} of {} has pairs {} to {} of {}", i, s.count, begin, end, half);
  }
  if (const auto run = dev.launch("rope_table_of_rows", 4.0 * R * half, double(R) * half * 2 * sizeof(A)))
    backend::rope_table_of_rows<A>(dev, RopeFrequencies(rope_theta, scaling, s.frequencies(half)), positions, lengths, table);
}

template <class S, class T>
void rope(Device& dev, Rotate direction, Index num_heads, double scale, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
          Matrix<const S> x, Matrix<T> y) {
  const Index R = x.rows, half = table.cosine.extent(1), width = x.columns / num_heads;
  ensure(x.columns == width * num_heads && width >= 2 * half && y.columns == x.columns && y.rows == R && Index(positions.extent(0)) == R,
         "rope: x ({},{}) and {} positions do not fit y ({},{}), {} heads and {} rotary channels", R, x.columns, positions.extent(0), y.rows,
         y.columns, num_heads, 2 * half);
  if (const auto run = dev.launch("rope", 7.0 * R * num_heads * half, double(R) * (x.columns * (sizeof(S) + sizeof(T)) + 2 * half * sizeof(Acc<T>))))
    backend::rope<S, T>(dev, direction, num_heads, scale, table, positions, x, y);
}

GYR_ALL_ROPE

}  // namespace gyr
