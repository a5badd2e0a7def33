// SPDX-License-Identifier: BSD-3-Clause
// Plan that moves a model's weights from one layout to another: which rank sends which part of which weight to which
// ranks. The layouts may be on different ranks, shard weights (ZeRO-3) and store them in different precision.
#pragma once

#include <map>

#include "src/parallel/layout.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr {

// A weight on a pipeline stage, or its optimizer state.
struct PlacedTensor {
  Weight weight;
  int stage;  // pipeline stage: coordinate on the pipeline axis
  bool trained = true;
  FlatShard flat_shard = {};  // position of the tensor-parallel shard in a ZeRO-sharded run
  Content content = Content::weight;
  DType dtype = DType::f32;  // dtype in which the tensor is stored
  bool tied = false;         // true: another stage stores the weight too (tied embedding), and counts it
  bool in_int8 = false;      // true: the weight is loaded in `dtype`, without any other weight, and then quantized
};

// Boxes that the rank at a position holds; none if the weight is on another stage. Copies are counted along all axes
// except the pipeline.
std::vector<Held> held_at(const PlacedTensor&, const Layout&, int position);
// Boxes of the ZeRO part of its shard that the rank keeps.
std::vector<Held> kept_at(const PlacedTensor&, const Layout&, int position);
// Boxes that the rank stores of the tensor's content: its ZeRO part if the layout shards this content, otherwise all
// that it holds.
std::vector<Held> stored_at(const PlacedTensor&, const Layout&, int position);

// Weights of a model on a mesh: rank r of the layout is rank mesh.ranks[r] of the world.
struct PlacedWeights {
  std::vector<PlacedTensor> weights;  // in the order of the model; a tied weight once for each stage that stores it
  Layout layout;
  Mesh mesh;
  bool masters = false;  // true: trained weights have master weights, if they are stored in a lower precision

  // Content that is converted to another dtype: the master weight if there is one, otherwise the weight.
  Content most_exact(const PlacedTensor& weight, DType wanted) const;
};

// A box of a tensor that one rank sends to others.
struct Move {
  std::size_t tensor;  // index in a list of tensors; in a plan: in the receiver's list
  Box box;
  int from;
  std::vector<int> to = {};  // receiving ranks, ascending; empty: not decided yet

  Index elements_sent() const { return elements(box.count) * Index(to.size()); }
};

struct MovePlan {
  PlacedWeights from, to;
  std::vector<Content> contents;  // content that is converted, for each weight of `to`
  std::vector<Move> sent;         // between world ranks
  std::vector<Move> kept;         // boxes that a rank converts from its own memory: `to` is the rank itself

  std::map<std::pair<int, int>, Index> bytes() const;  // bytes by sender and receiver, in the dtype of the receiver
  std::string text() const;                            // both layouts, total, and a line for each sender and receiver
};

// Moves after which every rank of `to` stores its part of the weights, if every rank of `from` stores its own. The sender
// converts, so that the bytes are those of the receiver's dtype: a weight of the same dtype is copied, any other comes
// from the master weight if there is one. No rank receives elements that it stores in that form. The sender of each box
// is one of its holders: preferably on the same node, then the one that has sent least so far, then the lowest rank. Every
// rank computes the same plan without communication. Exit::config if the models differ, or a mesh does not fit its layout.
MovePlan moves(PlacedWeights from, PlacedWeights to, int ranks_per_node);

// Elements that one rank sends to another in one message, box after box in row-major order. from == to: copied locally.
struct MoveBucket {
  struct Part {
    std::size_t tensor;  // index in the receiver's list of weights
    Box box;
  };
  int from, to;
  DType dtype;
  Index elements = 0;
  std::vector<Part> parts = {};
};

// Messages of a plan, of at most `bucket_bytes` each, or of one element. If every rank starts its messages in this order,
// with any number of them in flight, no rank waits for ever. A weight in int8 has messages of its own, and those of one
// such weight come before those of the next.
std::vector<MoveBucket> buckets_of(const MovePlan&, Index bucket_bytes);

}  // namespace gyr
