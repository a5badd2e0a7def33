// SPDX-License-Identifier: BSD-3-Clause
// The host's heap (malloc), where this program and its libraries take their small memory.
#pragma once

namespace gyr {

// From now on blocks of up to 32 MiB that are freed stay with the process, up to 64 MiB of them, where the system's library lets itself be
// told. A copy through HDF5 takes and frees a block for every chunk: each time the pages would go back, and be found and cleared anew.
void keep_freed_blocks();

}  // namespace gyr
