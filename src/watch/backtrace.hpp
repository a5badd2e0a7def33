// SPDX-License-Identifier: BSD-3-Clause
// Call stack of another thread of this process, for the diagnosis of a hang.
#pragma once

#include <pthread.h>

#include <filesystem>

namespace gyr {

// Makes `thread` write its call stack to `file` and waits for it, at most a second, because a thread that is stuck in
// the kernel never responds. addr2line -e gyrfalcon resolves the addresses.
void write_backtrace(pthread_t thread, const std::filesystem::path& file);

}  // namespace gyr
