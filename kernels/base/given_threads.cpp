// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/given_threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr {

int most_threads() { return int(std::max(1024L, ::sysconf(_SC_NPROCESSORS_CONF))); }

int given_threads(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  std::string_view text = given ? given : "";
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (text.empty()) return otherwise;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const std::string_view rest = text.substr(std::size_t(end - text.data()));
  const bool complete = error == std::errc() && (rest.empty() || rest[0] == ',' || rest[0] == ' ');
  require(complete && threads >= 1 && threads <= most_threads(), Exit::usage,
          "the environment variable {} is {}, but a process can have 1 to {} threads; correct or unset it", variable, printable(text.substr(0, 80)),
          most_threads());
  return threads;
}

void check_thread_variables() {
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KOKKOS_NUM_THREADS"}) given_threads(name, 1);
  for (const char* name : {"KOKKOS_NUM_THREADS", "KOKKOS_NUMA", "KOKKOS_DEVICE_ID", "KOKKOS_NUM_DEVICES", "KOKKOS_SKIP_DEVICE"}) {
    const char* const given = std::getenv(name);
    const std::string_view text = given ? given : "0";
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    require(error == std::errc() && end == text.data() + text.size(), Exit::usage,
            "the environment variable {} is '{}', not an integer; correct or unset it", name, printable(text.substr(0, 80)));
  }
}

}  // namespace gyr
