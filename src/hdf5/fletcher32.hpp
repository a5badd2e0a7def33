// SPDX-License-Identifier: BSD-3-Clause
// Fletcher-32 checksum as HDF5 stores it after the bytes of a chunk. Let w_1 ... w_n be the 16-bit words, first byte
// high; a last odd byte is followed by a zero byte. The low half is the sum of all w_i, the high half the sum of all (n
// + 1 - i) w_i, both modulo 65535. A remainder of zero is stored as 65535 unless all words are zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gyr::hdf5 {

std::uint32_t fletcher32(const void* bytes, std::size_t count);

}  // namespace gyr::hdf5
