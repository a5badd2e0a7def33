// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "kernels/cuda/emulation/streams.hpp"
#include "kernels/error.hpp"

namespace gyr::cuda {

namespace {

constexpr std::size_t range = std::size_t(1) << 38;  // of addresses
constexpr std::size_t page = 4096;
constexpr std::size_t granule = 4;  // bytes that have one memory of who touched them

// Who touched a granule last: at which time of which stream.
struct Mark {
  std::uint32_t written = 0, writer = 0;
  std::array<std::uint32_t, most_streams> read{};
};

char* reserved(std::size_t bytes, int access) {
  void* const p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ensure(p != MAP_FAILED, "{} bytes of addresses for an emulated device are not there", bytes);
  return static_cast<char*>(p);
}

class DeviceMemory {
 public:
  static DeviceMemory& instance() {
    static DeviceMemory& memory = *new DeviceMemory;  // as long as anything may give back
    return memory;
  }

  void* take(std::size_t bytes) {
    bytes = (bytes + page - 1) / page * page;
    std::size_t at = 0;  // the first gap that is large enough, with a page that nobody may touch behind each piece
    for (const auto& [begin, length] : taken_) {
      if (begin >= at + bytes + page) break;
      at = begin + length + page;
    }
    if (bytes > range - at - page || mprotect(host_ + at, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    taken_[at] = bytes;
    if (Machine::instance().checked) std::memset(host_ + at, 0xff, bytes);  // NaN in every format
    return device_ + at;
  }
  void give_back(const void* p) {
    const auto piece = taken_.find(std::size_t(static_cast<const char*>(p) - device_));
    ensure(piece != taken_.end(), "memory is given back to the device that was not taken there");
    forget(piece->first, piece->second);
    mmap(host_ + piece->first, piece->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    taken_.erase(piece);
  }
  bool has(const void* p) const { return place(p) < range; }
  std::size_t place(const void* p) const { return std::size_t(static_cast<const char*>(p) - device_); }
  char* on_host(std::size_t place) const { return host_ + place; }
  bool apart() const { return device_ != host_; }

  Mark* marks(std::size_t place) {
    if (!marks_) marks_ = reinterpret_cast<Mark*>(reserved(range / granule * sizeof(Mark), PROT_READ | PROT_WRITE));
    return marks_ + place / granule;
  }

 private:
  DeviceMemory() : host_(reserved(range, PROT_NONE)), device_(Machine::instance().apart ? reserved(range, PROT_NONE) : host_) {}
  void forget(std::size_t place, std::size_t bytes) {
    if (marks_) std::memset(static_cast<void*>(marks(place)), 0, bytes / granule * sizeof(Mark));
  }

  char *host_, *device_;
  Mark* marks_ = nullptr;
  std::map<std::size_t, std::size_t> taken_;  // bytes by place
};

[[noreturn]] void unordered(const Task& now, Touch touch, int stream, std::uint32_t time, const char* did) {
  throw Violation(fmt::format("{} of stream {} {} what {} of stream {} {}, and nothing orders them", now.name, now.stream,
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
  if (memory.apart() && p) throw Violation("an address of the host is followed on the device");
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
