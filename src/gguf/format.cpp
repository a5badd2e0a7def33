// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/format.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace gyr::gguf {

namespace {

static_assert(std::endian::native == std::endian::little, "values are written in memory order, and GGUF is little-endian");

// GGUF's codes of value types.
enum ValueKind : std::uint32_t { kind_u32 = 4, kind_i32 = 5, kind_f32 = 6, kind_bool = 7, kind_string = 8, kind_array = 9 };

template <class T>
ValueKind kind_of(const T&) {
  if constexpr (std::is_same_v<T, std::uint32_t>) return kind_u32;
  else if constexpr (std::is_same_v<T, std::int32_t>) return kind_i32;
  else if constexpr (std::is_same_v<T, float>) return kind_f32;
  else if constexpr (std::is_same_v<T, bool>) return kind_bool;
  else if constexpr (std::is_same_v<T, std::string>) return kind_string;
  else return kind_array;
}

template <class T>
void put(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put(std::string& out, bool x) { out += char(x); }
void put(std::string& out, const std::string& text) {
  put(out, std::uint64_t(text.size()));
  out += text;
}
template <class T>
void put(std::string& out, const std::vector<T>& list) {
  put(out, std::uint32_t(kind_of(T())));
  put(out, std::uint64_t(list.size()));
  for (const T& x : list) put(out, x);
}

Index aligned(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }

std::string header_of(const std::vector<KeyValue>& values, const std::vector<Tensor>& tensors) {
  std::string out = "GGUF";
  put(out, std::uint32_t(3));
  put(out, std::uint64_t(tensors.size()));
  put(out, std::uint64_t(values.size()));
  for (const auto& [key, value] : values) {
    put(out, key);
    std::visit(
        [&](const auto& x) {
          put(out, std::uint32_t(kind_of(x)));
          put(out, x);
        },
        value);
  }
  Index offset = 0;
  for (const Tensor& t : tensors) {
    put(out, t.name);
    put(out, std::uint32_t(t.shape.size()));
    for (auto extent = t.shape.rbegin(); extent != t.shape.rend(); ++extent) put(out, std::uint64_t(*extent));
    put(out, std::uint32_t(t.type));
    put(out, std::uint64_t(offset));
    offset += aligned(t.bytes());
  }
  out.resize(std::size_t(aligned(Index(out.size()))));
  return out;
}

}  // namespace

Index values_per_block(Type type) { return type == Type::q8_0 ? block_size : is_ternary(type) ? ternary_block_size : 1; }

Index bytes_of(Type type, Index count) {
  const Index blocks = count / values_per_block(type);
  ensure(count % values_per_block(type) == 0, "{} values are not a multiple of the block size", count);
  switch (type) {
    case Type::f32: return 4 * count;
    case Type::q8_0: return 34 * blocks;
    case Type::tq1_0: return 54 * blocks;
    case Type::tq2_0: return 66 * blocks;
    default: return 2 * count;
  }
}

Writer::Writer(const std::filesystem::path& file, const std::vector<KeyValue>& values, std::vector<Tensor> tensors)
    : output_(file), tensors_(std::move(tensors)) {
  output_.append(header_of(values, tensors_));
  data_begin_ = output_.appended();
  for (const Tensor& t : tensors_) data_bytes_ += aligned(t.bytes());
}

void Writer::write(std::string_view data) {
  ensure(at_ < tensors_.size() && written_ + Index(data.size()) <= tensors_[at_].bytes(), "more data than the shape of the tensor has");
  output_.append(data);
  written_ += Index(data.size());
  if (written_ < tensors_[at_].bytes()) return;
  output_.append(std::string(std::size_t(aligned(written_) - written_), '\0'));
  written_ = 0, ++at_;
}

void Writer::commit() {
  ensure(at_ == tensors_.size(), "{} of {} tensors were written", at_, tensors_.size());
  output_.commit();
}

}  // namespace gyr::gguf
