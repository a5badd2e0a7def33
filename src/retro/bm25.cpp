// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/bm25.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gyr::retro {

namespace {

constexpr double k1 = 1.2, b = 0.75;
constexpr std::uint64_t most_without_dropping = 1000;  // chunks

}  // namespace

void keep_best(std::vector<Candidate>& candidates, std::int64_t most) {
  if (std::int64_t(candidates.size()) > most) {
    std::nth_element(candidates.begin(), candidates.begin() + most, candidates.end(), better);
    candidates.resize(std::size_t(most));
  }
  std::sort(candidates.begin(), candidates.end(), better);
}

double TermStatistics::idf(std::uint64_t chunks_with_term) const {
  return std::log(1 + (double(size) - double(chunks_with_term) + 0.5) / (double(chunks_with_term) + 0.5));
}

bool TermStatistics::is_dropped(std::uint64_t chunks_with_term) const {
  return size > most_without_dropping && double(chunks_with_term) > common * double(size);
}

std::uint64_t TermStatistics::chunks_with(std::uint32_t term) const {
  const auto at = std::lower_bound(terms.begin(), terms.end(), term);
  return at == terms.end() || *at != term ? 0 : chunks[std::size_t(at - terms.begin())];
}

void Shard::add(PostingBlock block) {
  scores_.resize(std::max(scores_.size(), block.lengths.size()));
  blocks_.push_back(std::move(block));
}

void Shard::search(std::span<const std::int32_t> terms, std::int64_t most, std::vector<Candidate>& found) {
  std::vector<Candidate> mine;
  for (const PostingBlock& block : blocks_) {
    search(block, terms, mine);
    keep_best(mine, most);
  }
  found.insert(found.end(), mine.begin(), mine.end());
}

void Shard::search(const PostingBlock& block, std::span<const std::int32_t> terms, std::vector<Candidate>& found) {
  const double mean = statistics_.mean();
  for (const std::int32_t term : terms) {
    const auto at = std::lower_bound(block.terms.begin(), block.terms.end(), std::uint32_t(term));
    if (at == block.terms.end() || *at != std::uint32_t(term)) continue;
    const double idf = statistics_.idf(statistics_.chunks_with(std::uint32_t(term)));
    const auto list = std::size_t(at - block.terms.begin());
    for (std::uint64_t i = block.offsets[list]; i < block.offsets[list + 1]; ++i) {
      const std::uint32_t id = block.ids[i];
      const double f = block.frequencies[i];
      if (scores_[id] == 0) touched_.push_back(id);
      scores_[id] += idf * (f * (k1 + 1)) / (f + k1 * (1 - b + b * double(block.lengths[id]) / mean));
    }
  }
  for (const std::uint32_t id : touched_) {
    found.push_back({scores_[id], block.first + id, block.corpora[id], block.documents[id]});
    scores_[id] = 0;
  }
  touched_.clear();
}

}  // namespace gyr::retro
