// SPDX-License-Identifier: BSD-3-Clause
// Plan of the exchange that gives whole matrices to their owners: rules such as Muon transform a matrix of which each
// rank holds a part. In each round, every rank owns at most one matrix, receives the parts that it does not hold, and
// sends the transformed parts back. All ranks compute their own part of the same plan without communication.
#pragma once

#include "src/parallel/moves.hpp"

namespace gyr {

// A matrix: a box of a weight, and the cost of its transform.
struct WholeMatrix {
  std::size_t weight;  // index in the list of weights
  Box box;
  double cost;
};

// Matrices of a round, and the rank that owns each: an index among the holders.
struct OwnedMatrix {
  std::size_t matrix;
  int owner;
};

// Rounds of matrices, the most expensive ones first. The most expensive matrix of a round goes to the rank with the least
// cost so far, and so on. A round has at most one matrix per rank, and at most `elements` elements unless it has a
// single matrix.
std::vector<std::vector<OwnedMatrix>> owner_rounds(const std::vector<WholeMatrix>& matrices, int ranks, Index elements);

// Elements of this rank's part of a weight that belong to a matrix: rows of `columns` elements in row-major memory.
struct MatrixPart {
  std::size_t matrix;
  Index rows, columns;
  Index row, column;            // of the first element in the matrix
  Index first = 0, stride = 0;  // of the first element in the rank's shard of the weight; row stride of that shard
  Index at = 0;                 // first element in the buffer of the exchange
};

// One exchange of a round, in the order of the buffers: elements to and from each holder.
struct MatrixExchange {
  std::vector<Index> sent, received;
  std::vector<MatrixPart> out, in;
  Index sent_size() const;
  Index received_size() const;
};

struct MatrixRound {
  std::vector<std::size_t> mine;  // matrices that this rank transforms: one or none
  std::vector<MatrixPart> held;   // parts of them that this rank has itself
  MatrixExchange there, back;     // parts to the owners, transformed parts from them
};

// Rounds of the rank at `position`. `weights`: those that these holders have, in the same order on all of them.
// `on_all_ranks`: every holder transforms every matrix, and nothing is sent back.
std::vector<MatrixRound> matrix_rounds(const std::vector<PlacedTensor>& weights, const std::vector<WholeMatrix>& matrices, const Layout&, HeldBy,
                                       int position, Index elements, bool on_all_ranks);

// Upper bounds over all ranks that hold the matrices, the same on each of them: elements of one rank's parts of a round's
// matrices, and elements of one matrix that its owner sends or receives.
struct LargestRound {
  Index parts = 0, whole = 0;
};
LargestRound largest_round(const std::vector<PlacedTensor>& weights, const std::vector<WholeMatrix>& matrices, const Layout&, HeldBy, int position,
                           Index elements, bool on_all_ranks);

}  // namespace gyr
