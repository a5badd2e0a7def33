// SPDX-License-Identifier: BSD-3-Clause
// The address sanitizer sees an arena as one allocation. These functions mark which of its bytes currently belong to
// tensors.
#pragma once

#include "kernels/base/sanitizer.hpp"
#include "kernels/base/scalar.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace gyr {

#ifdef __SANITIZE_ADDRESS__
inline void forbid(const char* bytes, Index count) { ASAN_POISON_MEMORY_REGION(bytes, count); }
inline void allow(const char* bytes, Index count) { ASAN_UNPOISON_MEMORY_REGION(bytes, count); }
#else
inline void forbid(const char*, Index) {}
inline void allow(const char*, Index) {}
#endif

}  // namespace gyr
