// SPDX-License-Identifier: BSD-3-Clause
// Divides a list of tensors into parts of nearly equal bytes at row boundaries: a row belongs to the part whose byte
// range contains the row's first byte.
#pragma once

#include <algorithm>

#include "kernels/base/box.hpp"

namespace gyr {

struct FileSplit {
  Index bytes;  // bytes of all tensors
  Index parts;

  Index begin(Index part) const { return bytes * part / parts; }
  Index part_of(Index byte) const {
    Index part = std::min(parts - 1, Index(__int128(byte) * parts / std::max<Index>(bytes, 1)));
    while (part + 1 < parts && begin(part + 1) <= byte) ++part;
    return part;
  }
  // For a box that starts at byte `offset`: the number of its rows whose first byte is before byte `bound`.
  static Index rows_before(Index bound, Index offset, Index row_bytes, Index rows) {
    return bound <= offset ? 0 : std::min(rows, (bound - offset + row_bytes - 1) / row_bytes);
  }
  // Rows [first, last) of a box that belong to `part`.
  std::pair<Index, Index> rows_in(Index part, Index offset, Index row_bytes, Index rows) const {
    return {rows_before(begin(part), offset, row_bytes, rows), rows_before(begin(part + 1), offset, row_bytes, rows)};
  }
};

}  // namespace gyr
