// SPDX-License-Identifier: BSD-3-Clause
// Sections of the rows of ternary weights (kernels/ops/ternary/ternary.hpp) on this rank. A weight that is sharded by rows has one section for
// each of its runs, such as z, x, B, C and dt of Mamba-2's in_proj. Any other weight is one section.
#pragma once

#include <span>

#include "kernels/ops/ternary/ternary.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Rows of each section of the full weight.
std::vector<Index> rows_of_sections(const Weight&);

RowSections sections_of(const Parameter&);
// Sections of adjacent weights, one weight after the other. Null entries are skipped.
RowSections sections_of(std::span<const Parameter* const>);

}  // namespace gyr
