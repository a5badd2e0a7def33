// SPDX-License-Identifier: BSD-3-Clause
// True if the program is built with the address sanitizer.
#pragma once

#ifdef __has_feature  // for Clang; GCC defines the address sanitizer's macro itself
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

namespace gyr {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif

}  // namespace gyr
