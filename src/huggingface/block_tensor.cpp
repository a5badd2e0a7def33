// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/block_tensor.hpp"

#include <algorithm>

#include "src/checkpoint/numbers.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/mxfp4.hpp"

namespace gyr {

namespace {

using safetensors::Reader, safetensors::Tensor;

std::string label_of(const Reader& reader, const Tensor& tensor) { return reader.name() + ":" + shown(tensor.name); }

// Coordinates of the i-th element of a box, as text: "[1, 7, 0]".
std::string place_of(Index i, const Box& box) {
  std::string text = "]";
  for (std::size_t d = box.count.size(); d-- > 0; i /= box.count[d])
    text.insert(0, fmt::format("{}{}", d == 0 ? "[" : ", ", box.first[d] + i % box.count[d]));
  return text;
}

// Unpacks all elements of the blocks whose scales lie in `box`.
std::vector<bf16> unpacked(const Reader& of_blocks, const Tensor& blocks, const Reader& of_scales, const Tensor& scales, const Box& box) {
  Box codes_box = box;
  codes_box.first.push_back(0), codes_box.count.push_back(mxfp4::bytes);
  const Index count = elements(box.count);
  std::vector<std::uint8_t> codes(std::size_t(count * mxfp4::bytes)), factors(std::size_t(count), 0);
  of_blocks.read(blocks, codes_box, codes.data(), codes_box.count, full_box(codes_box.count));
  of_scales.read(scales, box, factors.data(), box.count, full_box(box.count));
  std::vector<bf16> values(std::size_t(count * mxfp4::block_elements));
  for (Index i = 0; i < count; ++i) {
    const std::uint8_t scale = factors[std::size_t(i)];
    const bool finite = mxfp4::unpack(codes.data() + i * mxfp4::bytes, scale, values.data() + i * mxfp4::block_elements);
    require(scale != mxfp4::nan_scale, Exit::data, "{}: scale {} is NaN, at block {}", label_of(of_scales, scales), scale, place_of(i, box));
    require(finite, Exit::data, "{}: scale {} at block {} makes a value overflow bf16", label_of(of_scales, scales), scale, place_of(i, box));
  }
  return values;
}

}  // namespace

bool is_blocks(const Tensor& tensor) { return tensor.type == safetensors::Type::u8 && tensor.name.ends_with(blocks_end); }

std::string scales_of(std::string blocks) { return blocks.replace(blocks.size() - blocks_end.size(), blocks_end.size(), scales_end); }

TensorReader open_blocks(const Reader& of_blocks, const Tensor& blocks, const Reader& of_scales, const Tensor& scales) {
  Shape shape = blocks.shape;
  require(shape.size() >= 2 && shape.back() == mxfp4::bytes, Exit::data,
          "{}: has shape {}; an MXFP4 block of {} elements has {} bytes, which must be the last dimension", label_of(of_blocks, blocks),
          text_of(shape), mxfp4::block_elements, mxfp4::bytes);
  shape.pop_back();
  require(scales.type == safetensors::Type::u8 && scales.shape == shape, Exit::data, "{}: is {} {}; blocks of shape {} need scales of U8 {}",
          label_of(of_scales, scales), name_of(scales.type), text_of(scales.shape), text_of(blocks.shape), text_of(shape));
  shape.back() *= mxfp4::block_elements;
  const auto read = [&](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const auto& [from, to] : parts) {
      if (elements(from.count) == 0) continue;
      Box groups = from, mine = full_box(from.count);
      groups.first.back() = from.first.back() / mxfp4::block_elements;
      groups.count.back() = (from.first.back() + from.count.back() - 1) / mxfp4::block_elements + 1 - groups.first.back();
      const std::vector<bf16> values = unpacked(of_blocks, blocks, of_scales, scales, groups);
      mine.first.back() = from.first.back() % mxfp4::block_elements;
      Shape dense = groups.count;
      dense.back() *= mxfp4::block_elements;
      box_runs(dense, mine, array, to, [&](Index i, Index j, Index count) { std::copy_n(values.begin() + i, count, static_cast<bf16*>(data) + j); });
    }
  };
  return {label_of(of_blocks, blocks), DType::bf16, shape, read};
}

}  // namespace gyr
