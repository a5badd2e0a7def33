// SPDX-License-Identifier: BSD-3-Clause
// Recognises files that are not the expected model file: Git LFS pointers, web pages, archives of torch.save, GGUF.
#pragma once

#include <string_view>

namespace gyr {

// Second half of an error message, with the remedy, chosen by the first bytes of the file; empty if the file is none of
// these.
std::string_view foreign_file(std::string_view first_bytes);

}  // namespace gyr
