// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/safetensors.hpp"

#include <algorithm>

namespace gyr::safetensors {

Reader::Reader(const std::filesystem::path& file) : file_(file), name_(file.string()) {
  std::string text(std::size_t(std::min<Index>(length_bytes, file_.size())), '\0');
  read_bytes(0, Index(text.size()), text.data());
  text.resize(std::size_t(header_length(text, file_.size(), name_)));
  read_bytes(length_bytes, Index(text.size()), text.data());
  header_ = parse_header(text, file_.size(), name_);
  bytes_read_ = 0;
}

void Reader::read_bytes(Index offset, Index count, void* to) const {
  bytes_read_ += count;
  const Index got = Index(file_.read(offset, static_cast<char*>(to), std::size_t(count)));
  require(got == count, Exit::io, "{}: ends at byte {}: the file shrank while it was being read", name_, offset + got);
}

void Reader::read(const Tensor& tensor, const Box& box, void* data, const Shape& array, const Box& there) const {
  ensure(fits_within(box, tensor.shape) && fits_within(there, array) && box.count == there.count, "{}: a box outside of {}", name_, tensor.name);
  const Index size = size_of(tensor.type), begin = header_.data_begin + tensor.begin;
  box_runs(tensor.shape, box, array, there,
           [&](Index from, Index to, Index count) { read_bytes(begin + from * size, count * size, static_cast<char*>(data) + to * size); });
}

Writer::Writer(const std::filesystem::path& file, std::vector<Tensor> tensors) : output_(file) {
  header_.tensors = std::move(tensors);
  header_.metadata["format"] = "pt";
  output_.append(write_header(header_));
  end_ = header_.tensors.empty() ? 0 : header_.tensors.back().end;
}

void Writer::write(const void* data, Index bytes) { output_.append({static_cast<const char*>(data), std::size_t(bytes)}); }

void Writer::commit() {
  ensure(output_.appended() == header_.data_begin + end_, "{} bytes of data were written, but the header declares {}",
         output_.appended() - header_.data_begin, end_);
  output_.commit();
}

bool precedes_in_file(const Tensor& a, const Tensor& b) {
  return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.name < b.name;
}

}  // namespace gyr::safetensors
