// SPDX-License-Identifier: BSD-3-Clause
// Runs code that uses neither MPI nor a device. An Error is printed to standard error and becomes its exit code, and so
// does a failed write to standard output.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr {

// Exit code of an exception that is not an Error.
inline Exit code_of(const std::exception& error) {
  return dynamic_cast<const std::filesystem::filesystem_error*>(&error) ? Exit::io : Exit::internal;
}

template <class Body>
int guarded(Body&& body) {
  try {
    body();
    require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, Exit::io, "standard output cannot be written: {}", std::strerror(errno));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "gyrfalcon: %s\n", printable_lines(error.what()).c_str());
    return int(error.code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gyrfalcon: %s\n", printable_lines(error.what()).c_str());
    return int(code_of(error));
  }
}

}  // namespace gyr
