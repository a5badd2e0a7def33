// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>

namespace gyr {

// Width of output in columns: COLUMNS if it is set, the width of the terminal, or `of_files` for files and pipes.
int output_width(std::FILE* out, int of_files = 100);

}  // namespace gyr
