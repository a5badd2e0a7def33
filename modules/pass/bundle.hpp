// SPDX-License-Identifier: BSD-3-Clause
// Tensors that one layer passes to the next, and one pipeline stage to the next, as a list by kind. Pipeline messages,
// memory and predictions visit the list, so that a model with a further tensor only declares it (bundle_shapes).
#pragma once

#include <vector>

#include "modules/pass/frame.hpp"

namespace gyr {

// Kind of a tensor that travels through a model, identified by its address: keys of the value and of its gradient at the
// ends of a pipeline stage, and the purposes of their transfers, as traffic reports name them.
struct BundleTensor {
  Key<AnyTensor2> value, gradient;
  const char *purpose, *gradient_purpose;
};

// R rows (tokens) of D channels
inline constexpr BundleTensor residual_stream{
    {"input"}, {"gradient"}, "residual stream: rows x hidden", "gradient of the residual stream: rows x hidden"};
// Residual stream of the encoder; after the encoder, its output. With retrieval: the embedded neighbours; after the first
// layer that reads them, the encoded ones
inline constexpr BundleTensor encoder_stream{
    {"source"}, {"gradient of the source"}, "encoder stream: rows x hidden", "gradient of the encoder stream: rows x hidden"};
// Context parallelism with retrieval: encoded neighbours of the chunk before each block of tokens (neighbour_halo.hpp)
inline constexpr BundleTensor neighbours_before{{"neighbours before blocks"},
                                                {"gradient of the neighbours before blocks"},
                                                "neighbours before blocks: rows x hidden",
                                                "gradient of the neighbours before blocks: rows x hidden"};
// Relative position bias, added to attention scores (buckets, heads of this rank)
inline constexpr BundleTensor position_bias{{"relative position bias"},
                                            {"gradient of the relative position bias"},
                                            "relative position bias: buckets x heads",
                                            "gradient of the relative position bias: buckets x heads"};

// Activations that travel through a model, or their gradients.
class Bundle {
 public:
  Bundle() : Bundle(AnyTensor2()) {}
  explicit Bundle(const AnyTensor2& x) : entries_{{&residual_stream, x}} {}

  AnyTensor2& x() { return entries_.front().tensor; }
  const AnyTensor2& x() const { return entries_.front().tensor; }
  // The tensor of this kind; an empty one is added if there is none.
  AnyTensor2& operator[](const BundleTensor& kind) {
    for (Entry& entry : entries_)
      if (entry.kind == &kind) return entry.tensor;
    return entries_.emplace_back(Entry{&kind, {}}).tensor;
  }
  // The tensor of this kind; empty if there is none.
  AnyTensor2 find(const BundleTensor& kind) const {
    for (const Entry& entry : entries_)
      if (entry.kind == &kind) return entry.tensor;
    return {};
  }
  // Calls body(kind, tensor) for each tensor that is present, in the same order on every rank.
  template <class Body>
  void each(Body&& body) const {
    for (const Entry& entry : entries_)
      if (entry.tensor.rows > 0) body(*entry.kind, entry.tensor);
  }

 private:
  struct Entry {
    const BundleTensor* kind;
    AnyTensor2 tensor;
  };
  std::vector<Entry> entries_;  // the residual stream is the first
};

}  // namespace gyr
