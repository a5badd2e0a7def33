// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/stored_place.hpp"

#include <cstring>

namespace gyr {

namespace {

Shape turned(Shape shape) {
  ensure(shape.size() == 2, "a tensor of {} dimensions cannot be transposed", shape.size());
  std::swap(shape[0], shape[1]);
  return shape;
}
Box turned(const Box& box) { return {turned(box.first), turned(box.count)}; }

// to[there] = from', with `from` dense and of the shape `count`.
void put_transposed(const std::byte* from, const Shape& count, Index size, std::byte* to, const Shape& array, const Box& there) {
  for (Index i = 0; i < count[0]; ++i)
    for (Index j = 0; j < count[1]; ++j)
      std::memcpy(to + ((there.first[0] + j) * array[1] + there.first[1] + i) * size, from + (i * count[1] + j) * size, std::size_t(size));
}

// Reads a box of a tensor into `to`, in the other order of dimensions where `transposed`; the boxes are each side's own.
void read_turned(const TensorReader& from, const Box& box, bool transposed, void* to, const Shape& array, const Box& there) {
  if (!transposed) return from.read(box, to, array, there);
  std::vector<std::byte> dense(std::size_t(elements(box.count) * size_of(from.dtype)));
  from.read(box, dense.data(), box.count, whole(box.count));
  put_transposed(dense.data(), box.count, size_of(from.dtype), static_cast<std::byte*>(to), array, there);
}

}  // namespace

TensorReader part_of(const TensorReader& stored, const StoredPlace& place) {
  if (place.transposed && stored.shape.size() != 2) return stored;  // of another model: its shape tells
  TensorReader part = stored;
  if (place.transposed) part.shape = turned(part.shape);
  if (place.stack > 0 && !part.shape.empty() && part.shape[0] == place.stack) part.shape[0] = place.rows.size();
  part.read_parts = [stored, place](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const BoxPair& pair : parts) {
      Box from = pair.from;
      from.first[0] += place.rows.first;
      read_turned(stored, place.transposed ? turned(from) : from, place.transposed, data, array, pair.to);
    }
  };
  return part;
}

TensorReader stack_of(const std::vector<StackedPart>& parts) {
  const StoredPlace& place = parts.front().place;
  TensorReader stack = parts.front().weight;
  if (place.stack > 0) stack.shape[0] = place.stack;
  if (place.transposed) stack.shape = turned(stack.shape);
  for (const StackedPart& part : parts)
    ensure(part.weight.dtype == stack.dtype, "{} is of another type than {}, beside which it is stored", part.weight.name, stack.name);
  stack.read_parts = [parts, transposed = place.transposed](std::span<const BoxPair> boxes, void* data, const Shape& array) {
    for (const BoxPair& pair : boxes)
      for (const auto& [place, weight] : parts) {
        const Box wanted = transposed ? turned(pair.from) : pair.from;
        Box mine = whole(weight.shape);
        mine.first[0] = place.rows.first;
        const auto both = common(wanted, mine);
        if (!both) continue;
        const Box from = moved(*both, mine.first, Shape(mine.first.size(), 0));
        const Box to = transposed ? turned(moved(*both, wanted.first, turned(pair.to.first))) : moved(*both, wanted.first, pair.to.first);
        read_turned(weight, from, transposed, data, array, to);
      }
  };
  return stack;
}

}  // namespace gyr
