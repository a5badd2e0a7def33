// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/rope.hpp"

#include "kernels/backend.hpp"
#include "kernels/instances.hpp"

namespace gyr {

// Made once, this is no step's work.
template <class A>
void rope_table(Device& dev, double rope_theta, const RopeScaling& scaling, const Rotation<A>& table) {
  if (!dev.dry_run()) backend::rope_table<A>(dev, rope_theta, scaling, table);
}

template <class S, class T>
void rope(Device& dev, Rotate turn, Index num_heads, double scale, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
          Matrix<const S> x, Matrix<T> y) {
  const Index R = x.rows, half = table.cosine.extent(1), width = x.columns / num_heads;
  ensure(x.columns == width * num_heads && width >= 2 * half && y.columns == x.columns && y.rows == R && Index(positions.extent(0)) == R,
         "rope of ({},{}) at {} positions into ({},{}) with {} heads, of which {} channels turn", R, x.columns, positions.extent(0), y.rows,
         y.columns, num_heads, 2 * half);
  if (const auto run = dev.launch("rope", 7.0 * R * num_heads * half, double(R) * (x.columns * (sizeof(S) + sizeof(T)) + 2 * half * sizeof(Acc<T>))))
    backend::rope<S, T>(dev, turn, num_heads, scale, table, positions, x, y);
}

GYR_ALL_ROPE

}  // namespace gyr
