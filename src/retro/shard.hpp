// SPDX-License-Identifier: BSD-3-Clause
// The part of a BM25 index that one rank holds, and its exact search. A search visits one window of chunks after another, and for each of them
// all queries: the scores of a window stay in the cache, and queries share the lists and their contributions.
#pragma once

#include "src/retro/posting_window.hpp"

namespace gyr::retro {

class Shard {
 public:
  explicit Shard(const TermStatistics& statistics) : statistics_(statistics) {}  // which must outlive the shard

  // Blocks are added in the order of their ids.
  void add(const PostingBlock& block);
  // The best `most` chunks of this shard with a score above 0 for each query, in any order. Terms of a query: distinct and
  // ascending, so that a score is the same sum on every rank.
  std::vector<std::vector<Candidate>> search(std::span<const std::vector<std::int32_t>> queries, std::int64_t most);

 private:
  class Best;
  void search(const PostingWindow&, std::span<const std::vector<std::int32_t>> queries, std::vector<Best>& best);
  const double* shared_contributions(const PostingWindow&, std::size_t list, double idf);

  const TermStatistics& statistics_;
  std::vector<PostingWindow> windows_;
  std::vector<double> scores_;       // [chunk of a window]; 0 between two queries
  std::vector<double> values_;       // contributions of lists of one window that several queries may use
  std::vector<std::size_t> begins_;  // [list]: begin of its contributions in `values_`; `absent` if they are not there yet
};

}  // namespace gyr::retro
