// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/expert_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gyr {

namespace {

Index sum(const std::vector<Index>& x) { return std::accumulate(x.begin(), x.end(), Index(0)); }

}  // namespace

ExpertExchange::ExpertExchange(Communicator& ranks, std::vector<Index> chosen) : ranks_(ranks), chosen_(std::move(chosen)) {
  for (int r = 0; r < ranks.size(); ++r) sent_.push_back(rows_for(ranks.rank(), r)), received_.push_back(rows_for(r, ranks.rank()));
  total_ = sum(received_);
}

// The remainder of rows / experts is assigned to the experts in turn, continuing from rank to rank.
ExpertExchange ExpertExchange::even(Communicator& ranks, Index experts, Index rows) {
  std::vector<Index> all(std::size_t(ranks.size() * experts), rows / experts);
  Index next = 0;
  for (int r = 0; r < ranks.size(); ++r)
    for (Index i = 0; i < rows % experts; ++i) ++all[r * experts + next++ % experts];
  return {ranks, std::move(all)};
}

ExpertExchange ExpertExchange::ask(Communicator& ranks, const std::vector<std::int32_t>& count) {
  const std::vector<double> here(count.begin(), count.end()), all = ranks.gather(here);
  return {ranks, {all.begin(), all.end()}};
}

std::vector<Index> ExpertExchange::received_counts() const {
  std::vector<Index> counts(std::size_t(each()), 0);
  for (int from = 0; from < ranks_.size(); ++from)
    for (Index e = 0; e < each(); ++e) counts[e] += chosen_[(from * ranks_.size() + ranks_.rank()) * each() + e];
  return counts;
}

Index ExpertExchange::capacity(const ExpertRanks& to, Index rows, Index top_k, Index experts) {
  const Index ranks = to.ranks->size(), most = ranks * rows * std::min(top_k, experts / ranks);
  return to.capacity_factor > 0 ? std::min(most, Index(std::ceil(to.capacity_factor * double(rows * top_k))) + experts / ranks) : most;
}

Index ExpertExchange::rows_for(int from, int to) const {
  const auto first = chosen_.begin() + (from * ranks_.size() + to) * each();
  return std::accumulate(first, first + each(), Index(0));
}

std::vector<std::int32_t> ExpertExchange::experts() const {
  std::vector<std::int32_t> all;
  for (int from = 0; from < ranks_.size(); ++from)
    for (Index e = 0; e < each(); ++e)
      all.insert(all.end(), std::size_t(chosen_[(from * ranks_.size() + ranks_.rank()) * each() + e]), std::int32_t(e));
  return all;
}

void ExpertExchange::check(Index capacity, double capacity_factor) const {
  for (int to = 0; to < ranks_.size(); ++to) {
    Index rows = 0;
    for (int from = 0; from < ranks_.size(); ++from) rows += rows_for(from, to);
    require(rows <= capacity, Exit::config,
            "expert-parallel rank {} of {} receives {} rows, but has memory for {} (parallel.expert_room = {}); raise parallel.expert_room, or "
            "set it to 0 for memory that suffices for any routing",
            to, ranks_.size(), rows, capacity, capacity_factor);
  }
}

}  // namespace gyr
