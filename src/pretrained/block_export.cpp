// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/block_export.hpp"

#include <algorithm>
#include <cmath>

#include "src/checkpoint/numbers.hpp"
#include "src/huggingface/block_tensor.hpp"
#include "src/huggingface/mxfp4.hpp"

namespace gyr {

safetensors::Tensor BlockExport::part_of(const TensorReader& values, const std::string& blocks, BlockPart part) const {
  const TensorReader there = like_.open(blocks);
  require(there.shape == values.shape, Exit::config,
          "{}: has shape {}, but {} in this model, so its MXFP4 blocks cannot be copied; give --dtype bf16 to export without 4-bit blocks",
          there.name, text_of(there.shape), text_of(values.shape));
  const std::string& name = part == BlockPart::codes ? blocks : scales_of(blocks);
  return {name, safetensors::Type::u8, like_.tensor(name).shape};
}

std::string BlockExport::packed(const TensorReader& values, const safetensors::Tensor& part, BlockPart which, const Box& rows,
                                const std::byte* data) {
  const bool codes = which == BlockPart::codes;
  Box box = rows;
  box.count.back() /= mxfp4::block_elements;
  std::vector<std::uint8_t> usual(std::size_t(elements(box.count)));
  like_.read(codes ? scales_of(part.name) : part.name, box, usual.data(), box.count, full_box(box.count));
  std::string bytes;
  bytes.reserve(usual.size() * (codes ? mxfp4::bytes : 1));
  for (std::size_t i = 0; i < usual.size(); ++i) {
    std::array<double, mxfp4::block_elements> block;
    convert_values(values.dtype, data + Index(i) * mxfp4::block_elements * size_of(values.dtype), mxfp4::block_elements, block.data(), values.name);
    for (const double x : block)
      require(std::isfinite(x), Exit::data, "{}: contains {}, which MXFP4 blocks cannot represent; give --dtype bf16 to export without 4-bit blocks",
              values.name, x);
    const mxfp4::Packed p = mxfp4::pack(block.data(), usual[i]);
    if (codes) bytes.append(p.codes.begin(), p.codes.end());
    else bytes.push_back(char(p.scale)), ++blocks_, rounded_ += !p.exact;
  }
  return bytes;
}

void BlockExport::log_blocks(const Note& note) const {
  if (rounded_ == 0) return;
  note(
      fmt::format("of {} MXFP4 blocks {} have values that are not exact in 4 bits: these are rounded to nearest with the scale 2^(floor(log2 of the "
                  "largest) - 2) (OCP MX 1.0); --dtype bf16 keeps the values",
                  blocks_, rounded_));
}

}  // namespace gyr
