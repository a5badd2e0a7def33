// SPDX-License-Identifier: BSD-3-Clause
// Approximate nearest-neighbour search among the codes of the chunks that one rank holds. All ranks have the same centroids and probe the
// same lists, so the merged results are those of one rank with all chunks.
#pragma once

#include "src/retro/vectors/list_quantizer.hpp"
#include "src/retro/vectors/vector_shard.hpp"

namespace gyr::retro {

class CodedShard final : public VectorShard {
 public:
  CodedShard(std::shared_ptr<const ListQuantizer> quantizer, std::int64_t probes);

  // Adds chunks with consecutive ids from `first` on. Blocks are added in the order of their ids, before the first search.
  void add(std::int64_t first, const ListQuantizer::Encoded&, const std::vector<std::uint32_t>& corpora, const std::vector<std::uint32_t>& documents);
  // Scores are the negative squared distances to the codes.
  std::vector<std::vector<Candidate>> search(std::span<const float> queries, std::int64_t most) const override;

 private:
  struct Origin {
    std::int64_t id;
    std::uint32_t corpus, document;
  };
  std::vector<Candidate> nearest(std::span<const float> query, std::int64_t most) const;

  std::shared_ptr<const ListQuantizer> quantizer_;
  std::int64_t probes_;
  std::vector<Codes> codes_;                  // [list]
  std::vector<std::vector<Origin>> origins_;  // [list]: chunk of each code
};

}  // namespace gyr::retro
