// SPDX-License-Identifier: BSD-3-Clause
// Exact nearest-neighbour search among the vectors x of the chunks that one rank holds, by squared Euclidean distance to a query q:
//   d2(x, q) = sum over i of (x_i - q_i)^2, in double and in the order of i
// Float inner products give an interval that contains d2 = |x|^2 - 2 x q + |q|^2. Chunks whose interval begins after the K-th smallest end
// are dropped, and the others are compared by d2. The result is that of a loop in double over all chunks.
#pragma once

#include "src/retro/vectors/vector_shard.hpp"

namespace gyr::retro {

class FlatVectorShard final : public VectorShard {
 public:
  explicit FlatVectorShard(std::int64_t width) : width_(width) {}  // width: elements of a vector

  // Adds chunks with consecutive ids from `first` on. `vectors` (chunks, width). Blocks are added in the order of their ids.
  void add(std::int64_t first, std::vector<float> vectors, std::vector<std::uint32_t> corpora, std::vector<std::uint32_t> documents);
  // Scores are -d2.
  std::vector<std::vector<Candidate>> search(std::span<const float> queries, std::int64_t most) const override;

 private:
  struct VectorBlock {
    std::int64_t first;
    std::vector<float> vectors;                     // [chunk, width]
    std::vector<double> squares;                    // [chunk]: |x|^2
    std::vector<std::uint32_t> corpora, documents;  // [chunk]: origin
  };
  struct DistanceRange;
  class Nearest;
  void search(std::span<const float> queries, std::size_t first, std::size_t last, std::int64_t most, std::vector<std::vector<Candidate>>&) const;
  Candidate candidate(const DistanceRange&, std::span<const float> query) const;

  std::int64_t width_;
  std::vector<VectorBlock> blocks_;
};

}  // namespace gyr::retro
