// SPDX-License-Identifier: BSD-3-Clause
// Rows in consecutive groups, such as the rows of each expert (expert_rows.hpp). The number of rows per group is in
// device memory; the host may not know it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

struct RowGroups {
  Tensor1<const std::int32_t> count;  // (G): number of rows of each group, on the device
  Index even, most;                   // even: rows per group if evenly distributed; most: largest possible number of rows of a group
  std::vector<Index> known = {};      // the counts if the host knows them, which a dry run requires; else empty

  Index groups() const { return count.extent(0); }
};

// Rows [first, first + rows) belong to `group`.
struct RowGroup {
  Index group, first, rows;
};
// Groups that have rows. If the host does not know the counts, it waits for the device.
std::vector<RowGroup> groups_with_rows(Device&, const RowGroups&);
// Row counts that need the most scratch memory if the host launches the work group by group: all rows in one group,
// repeated halves of that, and at most few_rows rows. `group`: index of that group.
std::vector<RowGroup> largest_groups(const RowGroups&, Index group);

// Calls f(group, first, rows) for every group that has rows; the host launches the work of each group. The scratch
// memory that is needed depends on the distribution of the rows. A dry run therefore also calls f with the row counts
// that need the most, for group `stands_for_all`, without counting the work.
template <class F>
void for_groups(Device& dev, const RowGroups& groups, const F& f, Index stands_for_all = 0) {
  const Workspace workspace(dev.scratch, "work on groups of rows");
  if (dev.dry_run()) {
    const Device::Repeat uncounted(dev, 0);
    for (const RowGroup& g : largest_groups(groups, stands_for_all)) f(g.group, g.first, g.rows);
  }
  for (const RowGroup& g : groups_with_rows(dev, groups)) f(g.group, g.first, g.rows);
}

}  // namespace gyr
