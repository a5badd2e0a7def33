// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/coded_shard.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace gyr::retro {

CodedShard::CodedShard(std::shared_ptr<const ListQuantizer> quantizer, std::int64_t probes)
    : quantizer_(std::move(quantizer)), probes_(probes), codes_(std::size_t(quantizer_->lists())), origins_(codes_.size()) {}

void CodedShard::add(std::int64_t first, const ListQuantizer::Encoded& e, const std::vector<std::uint32_t>& corpora,
                     const std::vector<std::uint32_t>& documents) {
  const std::ptrdiff_t bytes = quantizer_->code_bytes();
  for (std::size_t i = 0; i < e.lists.size(); ++i) {
    const auto code = e.codes.begin() + std::ptrdiff_t(i) * bytes;
    codes_[e.lists[i]].insert(codes_[e.lists[i]].end(), code, code + bytes);
    origins_[e.lists[i]].push_back({first + std::int64_t(i), corpora[i], documents[i]});
  }
}

std::vector<Candidate> CodedShard::nearest(std::span<const float> query, std::int64_t most) const {
  std::vector<Candidate> best;
  std::size_t limit = std::size_t(4 * most) + 64;
  double bound = -INFINITY;  // score of the candidate number `most` so far
  quantizer_->probe(
      query, probes_, [&](std::uint32_t list) { return std::span<const std::uint8_t>(codes_[list]); },
      [&](std::uint32_t list, std::span<const float> distances) {
        for (std::size_t i = 0; i < distances.size(); ++i) {
          const Origin& chunk = origins_[list][i];
          require(std::isfinite(distances[i]), Exit::numeric, "chunk {}: its distance to a query is not finite; choose another encoder", chunk.id);
          // Rounding can make a distance between equal vectors negative.
          const double score = -double(std::max(0.0f, distances[i]));
          if (score < bound) continue;
          best.push_back({score, chunk.id, chunk.corpus, chunk.document});
          if (best.size() < limit) continue;
          keep_best(best, most);
          bound = best.back().score;
        }
      });
  keep_best(best, most);
  return best;
}

std::vector<std::vector<Candidate>> CodedShard::search(std::span<const float> queries, std::int64_t most) const {
  std::vector<std::vector<Candidate>> found;
  const auto width = std::size_t(quantizer_->width());
  for (std::size_t at = 0; at < queries.size(); at += width) found.push_back(nearest(queries.subspan(at, width), most));
  return found;
}

}  // namespace gyr::retro
