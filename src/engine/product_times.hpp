// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <vector>

#include "kernels/device.hpp"

namespace gyr {

// How long a product takes by each library, in seconds; infinity where this build has not got it.
struct ProductTime {
  ProductShape shape;
  Index calls;  // in a step
  double cblas, onednn;
  ProductLibrary chosen;  // by processor and extents

  double flops() const { return 2.0 * double(shape.m) * double(shape.n) * double(shape.k); }
  double of(ProductLibrary library) const { return library == ProductLibrary::onednn ? onednn : cblas; }
  double least() const { return cblas < onednn ? cblas : onednn; }
};

// Times each of these, a few milliseconds long, on operands of its own that stay in cache where they fit. `done`, if given, is told after each how
// many are done.
std::vector<ProductTime> time_products(const ProductCounts&, const std::function<void(std::size_t)>& done = {});

}  // namespace gyr
