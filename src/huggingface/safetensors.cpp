// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gyr::safetensors {

Reader::Reader(const std::filesystem::path& file) : name_(file.string()) {
  descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a pipe must not block
  if (descriptor_ < 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(absent ? Exit::missing : Exit::io, "{}: cannot be opened: {}", name_, std::strerror(error));
  }
  try {
    struct stat info {};
    require(::fstat(descriptor_, &info) == 0, Exit::io, "{}: {}", name_, std::strerror(errno));
    require(S_ISREG(info.st_mode), Exit::data, "{}: is not a regular file", name_);
    std::string text(std::size_t(std::min<Index>(length_bytes, info.st_size)), '\0');
    read_bytes(0, Index(text.size()), text.data());
    text.resize(std::size_t(header_length(text, info.st_size, name_)));
    read_bytes(length_bytes, Index(text.size()), text.data());
    header_ = parse_header(text, info.st_size, name_);
    bytes_read_ = 0;
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Reader::Reader(Reader&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(std::exchange(other.descriptor_, -1)), header_(std::move(other.header_)),
      bytes_read_(other.bytes_read_) {}

Reader::~Reader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Reader::read_bytes(Index offset, Index count, void* to) const {
  char* at = static_cast<char*>(to);
  bytes_read_ += count;
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, at, std::size_t(count), offset);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, Exit::io, "{}: reading failed at byte {}: {}", name_, offset, std::strerror(errno));
    require(got > 0, Exit::io, "{}: ends at byte {}: the file shrank while it was being read", name_, offset);
    at += got, offset += got, count -= got;
  }
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
