// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/bm25.hpp"

#include <algorithm>
#include <cmath>

namespace gyr::retro {

namespace {

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

}  // namespace gyr::retro
