// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checksum.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace gyr {

namespace {
constexpr Index block_bytes = Index(4) << 20;
}

Checksum::Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }
void Checksum::add(const void* bytes, Index count) { XXH3_64bits_update(state_.get(), bytes, std::size_t(count)); }
std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::uint64_t checksum(const void* bytes, Index count) { return XXH3_64bits(bytes, std::size_t(count)); }

std::string hex(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

std::uint64_t sum_of_hex(const std::string& digits, const std::string& origin) {
  std::uint64_t sum = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, sum, 16);
  require(digits.size() == 16 && error == std::errc() && rest == end && hex(sum) == digits, Exit::data,
          "{}: holds a checksum that is not 16 hexadecimal digits", origin);
  return sum;
}

SummedFile::SummedFile(const std::filesystem::path& file)
    : name_(file.string()), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  const int why = errno;
  require(descriptor_ >= 0, why == ENOENT || why == ENOTDIR ? Exit::missing : Exit::io, "{}: cannot be opened: {}", name_, std::strerror(why));
  struct stat status;
  if (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) bytes_ = Index(status.st_size);
}

SummedFile::~SummedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t SummedFile::sum() const {
  const hdf5::Extent whole{0, bytes_};
  return sum({&whole, 1});
}

std::uint64_t SummedFile::sum(std::span<const hdf5::Extent> parts) const {
  Checksum sum;
  Index most = 0;
  for (const hdf5::Extent& part : parts) most = std::max(most, part.bytes);
  const std::size_t size = std::size_t(std::min(block_bytes, most));
  const std::unique_ptr<char[]> block(new char[size + 1]);
  for (const hdf5::Extent& part : parts)
    for (Index done = 0; done < part.bytes;) {
      const ssize_t n = ::pread(descriptor_, block.get(), std::min<std::size_t>(size, std::size_t(part.bytes - done)), part.offset + done);
      if (n < 0 && errno == EINTR) continue;
      require(n >= 0, Exit::io, "{}: cannot be read: {}", name_, std::strerror(errno));
      if (n == 0) break;
      sum.add(block.get(), n);
      done += n;
    }
  return sum.value();
}

}  // namespace gyr
