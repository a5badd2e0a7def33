// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/stored_place.hpp"

#include <algorithm>
#include <cstring>

namespace gyr {

namespace {

Shape swap_axes(Shape shape) {
  ensure(shape.size() == 2, "a tensor of {} dimensions cannot be transposed", shape.size());
  std::swap(shape[0], shape[1]);
  return shape;
}
Box swap_axes(const Box& box) { return {swap_axes(box.first), swap_axes(box.count)}; }

// to[there] = transpose(from), where `from` is dense with the shape `count`.
void put_transposed(const std::byte* from, const Shape& count, Index size, std::byte* to, const Shape& array, const Box& there) {
  for (Index i = 0; i < count[0]; ++i)
    for (Index j = 0; j < count[1]; ++j)
      std::memcpy(to + ((there.first[0] + j) * array[1] + there.first[1] + i) * size, from + (i * count[1] + j) * size, std::size_t(size));
}

// Reads a box of a tensor into `to`, transposed if `transposed`. `box` is in the order of dimensions of `from`, and
// `there` in that of `to`.
void read_maybe_transposed(const TensorReader& from, const Box& box, bool transposed, void* to, const Shape& array, const Box& there) {
  if (!transposed) return from.read(box, to, array, there);
  std::vector<std::byte> dense(std::size_t(elements(box.count) * size_of(from.dtype)));
  from.read(box, dense.data(), box.count, full_box(box.count));
  put_transposed(dense.data(), box.count, size_of(from.dtype), static_cast<std::byte*>(to), array, there);
}

// Reader of one member along the first dimension.
TensorReader member_of(const TensorReader& all, Index member) {
  TensorReader one = all;
  one.shape.erase(one.shape.begin());
  one.read_parts = [all, member](std::span<const BoxPair> parts, void* data, const Shape& array) {
    const auto prepended = [](Index first, Shape shape) {
      shape.insert(shape.begin(), first);
      return shape;
    };
    for (const auto& [from, to] : parts)
      all.read({prepended(member, from.first), prepended(1, from.count)}, data, prepended(1, array),
               {prepended(0, to.first), prepended(1, to.count)});
  };
  return one;
}

TensorReader transpose_of(const TensorReader& stored) {
  TensorReader other = stored;
  other.shape = swap_axes(stored.shape);
  other.read_parts = [stored](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const auto& [from, to] : parts) read_maybe_transposed(stored, swap_axes(from), true, data, array, to);
  };
  return other;
}

Index columns_of(const Shape& count) { return count.size() > 1 ? count[1] : 1; }

// Index of element (row, column) in an array of two dimensions, or of element `row` in an array of one.
Index offset_of(const Shape& array, Index row, Index column) { return array.size() > 1 ? row * array[1] + column : row; }

// Reader of the weight's rows of a stack.
TensorReader rows_of(const TensorReader& stack, const StoredPlace& place) {
  TensorReader some = stack;
  some.shape[0] = place.row_count();
  some.read_parts = [stack, place](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const auto& [from, to] : parts) {
      Box all = from;
      all.first[0] = place.stack_row(from.first[0]);
      all.count[0] = place.stack_row(from.first[0] + from.count[0] - 1) + 1 - all.first[0];
      if (place.step == 1) {
        stack.read(all, data, array, to);
        continue;
      }
      const Index size = size_of(stack.dtype), row = columns_of(all.count) * size;
      std::vector<std::byte> dense(std::size_t(elements(all.count) * size));
      stack.read(all, dense.data(), all.count, full_box(all.count));
      for (Index i = 0; i < from.count[0]; ++i)
        std::memcpy(static_cast<std::byte*>(data) + offset_of(array, to.first[0] + i, to.first.size() > 1 ? to.first[1] : 0) * size,
                    dense.data() + (place.stack_row(from.first[0] + i) - all.first[0]) * row, std::size_t(row));
    }
  };
  return some;
}

// Rows of a weight that lie among the requested rows of the fused tensor.
struct Wanted {
  Index first, count;
};
Wanted wanted_rows(const StoredPlace& place, Index rows, Index first, Index count) {
  const auto rows_before = [&](Index row) {
    const Index at = std::max<Index>(0, row - place.rows.first);
    return std::min(rows, at / place.step * place.run + std::min(at % place.step, place.run));
  };
  const Index begin = rows_before(first), end = rows_before(first + count);
  return {begin, end - begin};
}

// Copies the elements that a weight contributes to a box of the fused tensor. Box and array are without the dimension
// of members.
void put_part(const StackedPart& part, const Box& from, std::byte* data, const Shape& array, const Box& to) {
  const auto& [place, weight] = part;
  Box mine = place.transposed ? swap_axes(from) : from;
  const Wanted rows = wanted_rows(place, weight.shape[0], mine.first[0], mine.count[0]);
  if (rows.count <= 0) return;
  const auto offset = [&, asked = mine.first[0]](Index i) {
    return place.stack_row(rows.first + i) - asked;
  };  // distance from the first requested row
  mine.first[0] = rows.first, mine.count[0] = rows.count;
  const std::size_t row_dim = place.transposed ? 1 : 0;
  if (place.step == 1) {
    Box there = to;
    there.first[row_dim] += offset(0), there.count[row_dim] = rows.count;
    return read_maybe_transposed(weight, mine, place.transposed, data, array, there);
  }
  const Index size = size_of(weight.dtype), columns = columns_of(mine.count);
  std::vector<std::byte> dense(std::size_t(elements(mine.count) * size));
  weight.read(mine, dense.data(), mine.count, full_box(mine.count));
  for (Index i = 0; i < rows.count; ++i)
    for (Index c = 0; c < columns; ++c) {
      const Index row = offset(i), first = to.first[0], second = to.first.size() > 1 ? to.first[1] : 0;
      const Index at = place.transposed ? offset_of(array, first + c, second + row) : offset_of(array, first + row, second + c);
      std::memcpy(data + at * size, dense.data() + (i * columns + c) * size, std::size_t(size));
    }
}

Shape without_first_dimension(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

}  // namespace

// A tensor without the shape that its place expects belongs to another model. It is returned unchanged, so that the
// caller's shape check reports it.
TensorReader part_of(const TensorReader& stored, const StoredPlace& place) {
  TensorReader part = stored;
  if (place.members > 0) {
    if (part.shape.size() < 2 || part.shape.size() > 3 || part.shape[0] != place.members) return stored;
    part = member_of(part, place.member);
  }
  if (place.transposed) {
    if (part.shape.size() != 2) return stored;
    part = transpose_of(part);
  }
  if (place.stack > 0 && !part.shape.empty() && part.shape[0] == place.stack) part = rows_of(part, place);
  return part;
}

TensorReader stack_of(const std::vector<StackedPart>& parts) {
  const StoredPlace& place = parts.front().place;
  TensorReader stack = parts.front().weight;
  if (place.stack > 0) stack.shape[0] = place.stack;
  if (place.transposed) stack.shape = swap_axes(stack.shape);
  if (place.members > 0) stack.shape.insert(stack.shape.begin(), place.members);
  for (const StackedPart& part : parts)
    ensure(part.weight.dtype == stack.dtype, "{} has another type than {}, with which it is stored in one tensor", part.weight.name, stack.name);
  stack.read_parts = [parts](std::span<const BoxPair> boxes, void* data, const Shape& array) {
    for (const auto& [from, to] : boxes)
      for (const StackedPart& part : parts) {
        auto* const bytes = static_cast<std::byte*>(data);
        if (part.place.members == 0) {
          put_part(part, from, bytes, array, to);
          continue;
        }
        const Index number = part.place.member - from.first[0];
        if (number < 0 || number >= from.count[0]) continue;
        const Shape inner = without_first_dimension(array);
        put_part(part, {without_first_dimension(from.first), without_first_dimension(from.count)},
                 bytes + (to.first[0] + number) * elements(inner) * size_of(part.weight.dtype), inner,
                 {without_first_dimension(to.first), without_first_dimension(to.count)});
      }
  };
  return stack;
}

}  // namespace gyr
