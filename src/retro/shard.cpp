// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/shard.hpp"

#include <algorithm>
#include <limits>

namespace gyr::retro {

namespace {

constexpr std::size_t absent = std::numeric_limits<std::size_t>::max();
constexpr std::size_t scan = 64;  // scores that are compared with a bound at once

}  // namespace

// Candidates of one query. Ids ascend, so a chunk with the score of the last of `most` candidates is not better than it.
class Shard::Best {
 public:
  explicit Best(std::int64_t most) : most_(most) {}

  double bound() const { return bound_; }  // chunks with at most this score are not among the best
  void add(const Candidate& c) {
    found_.push_back(c);
    if (std::int64_t(found_.size()) >= 2 * most_) drop();
  }
  std::vector<Candidate> take() {
    drop();
    return std::move(found_);
  }

 private:
  void drop() {
    if (std::int64_t(found_.size()) < most_) return;
    std::nth_element(found_.begin(), found_.begin() + (most_ - 1), found_.end(), better);
    found_.resize(std::size_t(most_));
    bound_ = found_.back().score;
  }

  std::int64_t most_;
  double bound_ = 0;
  std::vector<Candidate> found_;
};

void Shard::add(const PostingBlock& block) {
  for (PostingWindow& window : windows_of(block, statistics_.mean())) {
    scores_.resize(std::max(scores_.size(), (window.chunks() + scan - 1) / scan * scan));
    windows_.push_back(std::move(window));
  }
}

std::vector<std::vector<Candidate>> Shard::search(std::span<const std::vector<std::int32_t>> queries, std::int64_t most) {
  std::vector<Best> best(queries.size(), Best(most));
  for (const PostingWindow& window : windows_) search(window, queries, best);
  std::vector<std::vector<Candidate>> found;
  for (Best& b : best) found.push_back(b.take());
  return found;
}

// Contributions of all pairs to the scores of a term, computed for the first query of a batch that has the term.
const double* Shard::shared_contributions(const PostingWindow& window, std::size_t list, double idf) {
  if (begins_[list] == absent) {
    begins_[list] = values_.size();
    values_.resize(values_.size() + window.a.size());
    window.contributions(idf, values_.data() + begins_[list]);
  }
  return values_.data() + begins_[list];
}

void Shard::search(const PostingWindow& window, std::span<const std::vector<std::int32_t>> queries, std::vector<Best>& best) {
  values_.clear(), begins_.assign(window.terms.size(), absent);
  const std::size_t scanned = (window.chunks() + scan - 1) / scan * scan;
  for (std::size_t q = 0; q < queries.size(); ++q) {
    for (const std::int32_t term : queries[q]) {
      const std::int64_t list = window.list_of(std::uint32_t(term));
      if (list < 0) continue;
      const double idf = statistics_.idf(statistics_.chunks_with(std::uint32_t(term)));
      const bool is_long = window.offsets[std::size_t(list) + 1] - window.offsets[std::size_t(list)] >= window.a.size();
      window.add(std::size_t(list), idf, is_long ? shared_contributions(window, std::size_t(list), idf) : nullptr, scores_.data());
    }
    for (std::size_t begin = 0; begin < scanned; begin += scan) {
      int above = 0;
      for (std::size_t i = begin; i < begin + scan; ++i) above += scores_[i] > best[q].bound();
      for (std::size_t i = begin; above > 0 && i < begin + scan; ++i)
        if (scores_[i] > best[q].bound()) best[q].add({scores_[i], window.first + std::int64_t(i), window.corpora[i], window.documents[i]});
    }
    std::fill_n(scores_.begin(), scanned, 0.0);
  }
}

}  // namespace gyr::retro
