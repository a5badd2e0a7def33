// SPDX-License-Identifier: BSD-3-Clause
// Where another thread of this process is, for those who look into a hang.
#pragma once

#include <pthread.h>

#include <filesystem>

namespace gyr {

// Has `thread` write its call stack to `file` and waits for it, a second at most: a thread that is stuck in the kernel never will.
// Addresses are resolved by addr2line -e gyrfalcon.
void write_backtrace(pthread_t thread, const std::filesystem::path& file);

}  // namespace gyr
