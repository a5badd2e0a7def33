// SPDX-License-Identifier: BSD-3-Clause
// Shapes of the tensors in a bundle, from the configuration of the model. Chunks allocate them at the ends of a pipeline
// stage, and predictions add up their bytes.
#pragma once

#include "modules/model/model_config.hpp"
#include "modules/pass/bundle.hpp"

namespace gyr {

// Rows of a micro-batch on one rank, on which the shapes depend: of the residual stream and of the encoder's, 0: there is
// no encoder input. `ranks`: number of tensor-parallel ranks. `before`: rows of the encoded neighbours that the blocks of a
// context-parallel rank read of other chunks (retrieval).
struct BundleRows {
  Index text = 0, source = 0, ranks = 1, before = 0;
};

struct BundleShape {
  const BundleTensor* kind;
  DType dtype;
  Index rows, columns;
  Index bytes() const { return rows * columns * size_of(dtype); }
};

// Tensors that layer `layer` of a model in type `dtype` receives, in the order in which they are sent; `layer` may be the
// number of layers. A tensor that layers of one type pass on to each other (LayerTraits::carried) exists between the
// first and the last of them.
std::vector<BundleShape> bundle_shapes(const ModelConfig&, DType, const BundleRows&, Index layer);

}  // namespace gyr
