// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/staged_transport.hpp"
#include "kernels/nccl/transport.hpp"

namespace gyr {

namespace {

// A GPU among those of all machines: the machine's name, and its number there.
using Name = std::array<char, 256>;
Name name_of_device() {
  Name name{};
  gethostname(name.data(), name.size() - sizeof(int));
  const int number = cuda::device_number();
  std::copy_n(reinterpret_cast<const char*>(&number), sizeof number, name.end() - sizeof number);
  return name;
}

bool each_has_its_own(Transport& hosts) {
  const Name mine = name_of_device();
  std::vector<Name> all(static_cast<std::size_t>(hosts.size()));
  const Transport::Ticket ticket = hosts.all_gather(&mine, all.data(), Index(sizeof mine), DType::u8);
  while (!hosts.done(ticket)) hosts.rest();
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) == all.end();
}

}  // namespace

// Ranks that share a GPU have no NCCL between them.
std::unique_ptr<Transport> backend::device_transport(std::unique_ptr<Transport> hosts) {
  if (hosts->size() > 1 && each_has_its_own(*hosts)) return nccl_transport(std::move(hosts));
  return cuda::staged_transport(std::move(hosts));
}

}  // namespace gyr
