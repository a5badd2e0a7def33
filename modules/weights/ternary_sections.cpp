// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/ternary_sections.hpp"

namespace gyr {

namespace {

void append(RowSections& to, const Parameter& p, Index rows, Index elements, const Held& held) {
  ensure(to.count < RowSections::most, "{}: more than {} sections of ternary weights share a GEMM", p.weight.name, RowSections::most);
  to.elements[to.count] = double(elements);
  to.adds[to.count] = held.copies[Axis::tensor].rank == 0;
  to.begin[to.count + 1] = to.begin[to.count] + rows;
  ++to.count;
}

void append(RowSections& to, const Parameter& p) {
  const std::vector<Index> rows = rows_of_sections(p.weight);
  ensure(p.held.boxes.size() == rows.size(), "{}: the rank holds {} of {} sections", p.weight.name, p.held.boxes.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) append(to, p, p.held.boxes[i].box.count[0], rows[i] * p.weight.shape[1], p.held.boxes[i]);
}

}  // namespace

std::vector<Index> rows_of_sections(const Weight& w) {
  const Sharding* const sharding = w.sharding(Axis::tensor);
  if (!sharding || sharding->dim != 0) return {w.shape[0]};
  std::vector<Index> rows;
  for (const Run& run : sharding->runs) rows.push_back(run.extent);
  return rows;
}

RowSections sections_of(const Parameter& p) {
  RowSections sections;
  append(sections, p);
  return sections;
}

RowSections sections_of(std::span<const Parameter* const> weights) {
  RowSections sections;
  for (const Parameter* w : weights)
    if (w) append(sections, *w);
  return sections;
}

}  // namespace gyr
