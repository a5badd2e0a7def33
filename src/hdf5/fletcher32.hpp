// SPDX-License-Identifier: BSD-3-Clause
// Fletcher's sum of 32 bits as HDF5 keeps it behind the bytes of a chunk: with the 16-bit words w_1 ... w_n, first byte high and an odd
// last byte followed by zero, its low half is the sum of all w_i and its high half the sum of all (n + 1 - i) w_i, both modulo 65535.
// Where a remainder is zero, 65535 stands for it unless all words are zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gyr::hdf5 {

std::uint32_t fletcher32(const void* bytes, std::size_t count);

}  // namespace gyr::hdf5
