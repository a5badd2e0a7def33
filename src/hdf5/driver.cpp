// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/driver.hpp"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gyr::hdf5 {

namespace {

constexpr haddr_t largest = haddr_t(1) << 62;
constexpr haddr_t stretch = haddr_t(16) << 20;  // bytes of dataset content between write-back hints to the kernel

struct OpenFile {
  H5FD_t base;  // HDF5's base class must be the first member
  int descriptor;
  haddr_t end_of_addresses, end_of_file, handed_over;
  std::shared_ptr<Condition> condition = std::make_shared<Condition>();  // outlives the file if a caller still holds it
};

OpenFile& file_of(H5FD_t* base) { return *reinterpret_cast<OpenFile*>(base); }
const OpenFile& file_of(const H5FD_t* base) { return *reinterpret_cast<const OpenFile*>(base); }

H5FD_t* open_file(const char* name, unsigned flags, hid_t, haddr_t) {
  int how = flags & H5F_ACC_RDWR ? O_RDWR : O_RDONLY;
  if (flags & H5F_ACC_CREAT) how |= O_CREAT;
  if (flags & H5F_ACC_EXCL) how |= O_EXCL;
  if (flags & H5F_ACC_TRUNC) how |= O_TRUNC | O_NOFOLLOW;                   // a symbolic link placed here by another user may point to any file
  const int descriptor = ::open(name, how | O_CLOEXEC | O_NONBLOCK, 0666);  // O_NONBLOCK: opening a pipe must not wait
  struct stat status;
  if (descriptor < 0) return nullptr;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return nullptr;
  }
  return &(new OpenFile{{}, descriptor, 0, haddr_t(status.st_size), 0})->base;
}

herr_t close_file(H5FD_t* base) {
  OpenFile& file = file_of(base);
  const bool closed = ::close(file.descriptor) == 0;  // network file systems report an exceeded quota here, and then not in fsync
  if (!closed && file.condition->failure.empty()) file.condition->failure = std::strerror(errno);
  delete &file;
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_eoa(const H5FD_t* base, H5FD_mem_t) { return file_of(base).end_of_addresses; }
herr_t set_eoa(H5FD_t* base, H5FD_mem_t, haddr_t address) {
  file_of(base).end_of_addresses = address;
  return 0;
}
haddr_t get_eof(const H5FD_t* base, H5FD_mem_t) { return file_of(base).end_of_file; }

herr_t get_handle(H5FD_t* base, hid_t, void** handle) {
  *handle = &file_of(base).condition;
  return 0;
}

// Addresses past the end of the file read as zeros, as HDF5 expects.
herr_t read(H5FD_t* base, H5FD_mem_t kind, hid_t, haddr_t at, size_t size, void* to) {
  OpenFile& file = file_of(base);
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = pread(file.descriptor, bytes, std::min<size_t>(size, 1 << 30), off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      file.condition->failure = std::strerror(errno);
      return -1;
    }
    if (n == 0) {
      std::memset(bytes, 0, size);
      break;
    }
    bytes += n, at += haddr_t(n), size -= size_t(n);
    if (kind == H5FD_MEM_DRAW) file.condition->bytes_read += n;
  }
  return 0;
}

// Starts write-back while more is written, so that a later fsync waits less. This is only a hint: it may fail and
// guarantees nothing.
void hand_over(OpenFile& file, haddr_t end) {
  if (end < file.handed_over + stretch) return;
#ifdef SYNC_FILE_RANGE_WRITE
  sync_file_range(file.descriptor, off_t(file.handed_over), off_t(end - file.handed_over), SYNC_FILE_RANGE_WRITE);
#endif
  file.handed_over = end;
}

herr_t write(H5FD_t* base, H5FD_mem_t kind, hid_t, haddr_t at, size_t size, const void* from) {
  OpenFile& file = file_of(base);
  const auto* bytes = static_cast<const char*>(from);
  const haddr_t end = at + size;
  while (size > 0 && file.condition->failure.empty()) {
    const ssize_t n = pwrite(file.descriptor, bytes, std::min<size_t>(size, 1 << 30), off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      file.condition->failure = std::strerror(n < 0 ? errno : ENOSPC);
      break;
    }
    bytes += n, at += haddr_t(n), size -= size_t(n);
  }
  file.end_of_file = std::max(file.end_of_file, end);
  if (kind == H5FD_MEM_DRAW) hand_over(file, end);
  return 0;
}

herr_t truncate(H5FD_t* base, hid_t, hbool_t) {
  OpenFile& file = file_of(base);
  if (file.end_of_file == file.end_of_addresses) return 0;
  if (file.condition->failure.empty() && ftruncate(file.descriptor, off_t(file.end_of_addresses)) != 0)
    file.condition->failure = std::strerror(errno);
  file.end_of_file = file.end_of_addresses;
  return 0;
}

}  // namespace

namespace {

hid_t registered() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = H5FD_class_value_t(511);  // a value that HDF5 reserves for external drivers
#endif
  driver.name = "gyrfalcon";
  driver.maxaddr = largest;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_eoa;
  driver.set_eoa = set_eoa;
  driver.get_eof = get_eof;
  driver.get_handle = get_handle;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), driver.fl_map);
  return H5FDregister(&driver);
}

}  // namespace

hid_t driver() {
  static const hid_t once = registered();  // never unregistered: HDF5 1.10 still uses the driver while it closes a file
  return once;
}

std::shared_ptr<const Condition> condition_of(hid_t file) {
  void* handle = nullptr;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0 || !handle) return std::make_shared<Condition>();
  return *static_cast<std::shared_ptr<Condition>*>(handle);
}

}  // namespace gyr::hdf5
