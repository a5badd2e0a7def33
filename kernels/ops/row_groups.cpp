// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/row_groups.hpp"

#include <algorithm>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr {

std::vector<RowGroup> groups_with_rows(Device& dev, const RowGroups& groups) {
  ensure(groups.known.empty() ? !dev.dry_run() : Index(groups.known.size()) == groups.groups(), "row groups: {} known counts for {} groups",
         groups.known.size(), groups.groups());
  std::vector<Index> counts = groups.known;
  if (counts.empty())
    for (const std::int32_t n : to_host(dev, groups.count)) counts.push_back(n);
  std::vector<RowGroup> all;
  Index group = 0, first = 0;
  for (const Index n : counts) {
    if (n > 0) all.push_back({group, first, n});
    ++group, first += n;
  }
  return all;
}

std::vector<RowGroup> largest_groups(const RowGroups& groups, Index group) {
  std::vector<RowGroup> all;
  for (Index n = groups.most; n > few_rows; n /= 2) all.push_back({group, 0, n});
  all.push_back({group, 0, std::min(groups.most, few_rows)});
  return all;
}

}  // namespace gyr
