// SPDX-License-Identifier: BSD-3-Clause
// Settings of the host's heap (malloc), from which the program and its libraries allocate small memory.
#pragma once

namespace gyr {

// From now on the process keeps freed blocks of up to 32 MiB, and up to 64 MiB of free memory, if the C library
// supports these settings. HDF5 allocates and frees a block for every chunk that it copies. With the default settings,
// its pages would each time be returned to the system, mapped and cleared again.
void keep_freed_blocks();

}  // namespace gyr
