// SPDX-License-Identifier: BSD-3-Clause
// Rows that come in groups, one behind the other, as those of experts do (expert_rows.hpp): where kernels run it is known how many each has, on the
// host it may not be.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

struct RowGroups {
  Tensor1<const std::int32_t> count;  // (G): rows of each, on the device
  Index even, most;                   // of one group: where all have as many, and at most
  std::vector<Index> known = {};      // the counts where the host knows them, as it must in a dry run; else empty

  Index groups() const { return count.extent(0); }
};

// Rows [first, first + rows) are those of a group.
struct RowGroup {
  Index group, first, rows;
};
// Those that have rows. A host that does not know the counts waits for the device.
std::vector<RowGroup> groups_with_rows(Device&, const RowGroups&);
// What takes most scratch memory of work that is told group by group: all rows in one of them, halves of these, and few. `group`: which.
std::vector<RowGroup> largest_groups(const RowGroups&, Index group);

// f(group, first, rows) of every group that has rows, told by the host. Which group has how many decides over the scratch memory of their work: a dry
// run also goes through what takes most, with a group that stands for all, without counting that.
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
