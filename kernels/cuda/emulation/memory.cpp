// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "kernels/base/error.hpp"
#include "kernels/cuda/emulation/registrations.hpp"
#include "kernels/cuda/emulation/streams.hpp"

namespace gyr::cuda {

namespace {

constexpr std::size_t range = std::size_t(1) << 38;  // bytes of the device's address range
constexpr std::size_t page = 4096;
constexpr std::size_t ones = 4 << 20;  // bytes of the file whose bytes are all 0xff
constexpr std::size_t granule = 4;     // bytes that share one record of their last accesses

// Last accesses to a granule: the writing stream and its time, and the last read time of each stream.
struct Mark {
  std::uint32_t written = 0, writer = 0;
  std::array<std::uint32_t, most_streams> read{};
};

char* reserved(std::size_t bytes, int access) {
  void* const p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ensure(p != MAP_FAILED, "cannot reserve {} bytes of address space for an emulated device", bytes);
  return static_cast<char*>(p);
}

class DeviceMemory {
 public:
  static DeviceMemory& instance() {
    static DeviceMemory& memory = *new DeviceMemory;  // never destroyed, because memory may be freed late
    return memory;
  }

  void* take(std::size_t bytes) {
    bytes = (bytes + page - 1) / page * page;
    std::size_t at = 0;  // first gap that is large enough; an inaccessible page follows each allocation
    for (const auto& [begin, length] : taken_) {
      if (begin >= at + bytes + page) break;
      at = begin + length + page;
    }
    if (bytes > range - at - page) return nullptr;
    if (!(Machine::instance().checked ? map_unwritten(at, bytes) : let_in(at, bytes))) return nullptr;
    taken_[at] = bytes;
    return device_ + at;
  }
  void give_back(const void* p) {
    const auto piece = taken_.find(std::size_t(static_cast<const char*>(p) - device_));
    ensure(piece != taken_.end(), "device memory is freed that was not allocated");
    Registrations::instance().judge_return(p, piece->second);
    forget(piece->first, piece->second);
    mmap(host_ + piece->first, piece->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    taken_.erase(piece);
  }
  bool has(const void* p) const { return place(p) < range; }
  std::size_t place(const void* p) const { return std::size_t(static_cast<const char*>(p) - device_); }
  char* on_host(std::size_t place) const { return host_ + place; }
  bool separate() const { return device_ != host_; }

  Mark* marks(std::size_t place) {
    if (!marks_) marks_ = reinterpret_cast<Mark*>(reserved(range / granule * sizeof(Mark), PROT_READ | PROT_WRITE));
    return marks_ + place / granule;
  }

 private:
  DeviceMemory() : host_(reserved(range, PROT_NONE)), device_(Machine::instance().separate ? reserved(range, PROT_NONE) : host_) {}
  bool let_in(std::size_t place, std::size_t bytes) { return mprotect(host_ + place, bytes, PROT_READ | PROT_WRITE) == 0; }
  // Maps memory that reads as NaN in every format until it is written: private pages of a file of ones, copied on the
  // first write.
  bool map_unwritten(std::size_t place, std::size_t bytes) {
    static const int unwritten = file_of_ones();
    for (std::size_t done = 0; done < bytes; done += ones) {
      void* const from = host_ + place + done;
      if (mmap(from, std::min(ones, bytes - done), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, unwritten, 0) != from)
        return false;
    }
    return true;
  }
  static int file_of_ones() {
    const int file = memfd_create("unwritten", MFD_CLOEXEC);
    const std::string bytes(ones, char(0xff));
    ensure(file >= 0 && write(file, bytes.data(), ones) == ssize_t(ones), "cannot create the memory of an emulated device");
    return file;
  }
  // An empty mark is all zeros, as fresh pages are, so only touched pages are discarded.
  void forget(std::size_t place, std::size_t bytes) {
    static_assert(page / granule * sizeof(Mark) % page == 0);
    if (marks_) madvise(marks(place), bytes / granule * sizeof(Mark), MADV_DONTNEED);
  }

  char *host_, *device_;
  Mark* marks_ = nullptr;
  std::map<std::size_t, std::size_t> taken_;  // allocations: size in bytes by offset in the address range
};

[[noreturn]] void unordered(const Task& now, Touch touch, int stream, std::uint32_t time, const char* did) {
  throw Violation(fmt::format("{} in stream {} {} memory that {} in stream {} {}, without synchronisation between the two", now.name, now.stream,
                              touch == Touch::read ? "reads" : "writes", Streams::instance().name_of(stream, time), stream, did));
}

}  // namespace

void* take_device_memory(std::size_t bytes) { return DeviceMemory::instance().take(bytes); }
void return_device_memory(void* p) {
  if (p) DeviceMemory::instance().give_back(p);
}
bool is_device_memory(const void* p) { return DeviceMemory::instance().has(p); }
std::size_t device_memory_bytes() { return range; }

char* resolved(const void* p) {
  DeviceMemory& memory = DeviceMemory::instance();
  if (memory.has(p)) return memory.on_host(memory.place(p));
  if (memory.separate() && p) throw Violation("the device accesses a host address");
  return static_cast<char*>(const_cast<void*>(p));
}

void touch(const void* p, std::size_t bytes, Touch how) {
  const Task* const now = Streams::instance().running();
  DeviceMemory& memory = DeviceMemory::instance();
  if (!Machine::instance().checked || !now || now->stream >= most_streams || !memory.has(p) || bytes == 0) return;
  const std::uint32_t time = now->clock[std::size_t(now->stream)];
  const std::size_t first = memory.place(p);
  for (std::size_t at = first / granule * granule; at < first + bytes; at += granule) {
    Mark& mark = *memory.marks(at);
    if (mark.written && !now->follows(int(mark.writer), mark.written)) unordered(*now, how, int(mark.writer), mark.written, "writes");
    if (how == Touch::write)
      for (int s = 0; s < most_streams; ++s)
        if (!now->follows(s, mark.read[std::size_t(s)])) unordered(*now, how, s, mark.read[std::size_t(s)], "reads");
    if (how == Touch::write) mark.written = time, mark.writer = std::uint32_t(now->stream);
    else mark.read[std::size_t(now->stream)] = time;
  }
}

}  // namespace gyr::cuda
