// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/flat_shard.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gyr::retro {

namespace {

constexpr std::int64_t lanes = 16;           // partial sums of an inner product
constexpr std::size_t tile = 4;              // queries and chunks of a register tile
constexpr std::size_t queries_at_once = 64;  // queries that share a pass over the vectors

double square_of(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += double(value) * double(value);
  return sum;
}

double distance(std::span<const float> x, std::span<const float> q) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = double(x[i]) - double(q[i]);
    sum += difference * difference;
  }
  return sum;
}

// products[i][j] = x_i q_j. The order of these sums is fixed, because error_bound needs it: a library's GEMM states no bound of its
// error, and on processors with narrower matrix units it may round the operands. Rows of both matrices are `width` elements apart.
void inner_products(const float* x, const float* q, std::int64_t width, float products[tile][tile]) {
  float sums[tile][tile][lanes] = {};
  std::int64_t k = 0;
  for (; k + lanes <= width; k += lanes)
    for (std::size_t i = 0; i < tile; ++i)
      for (std::size_t j = 0; j < tile; ++j)
        for (std::int64_t l = 0; l < lanes; ++l) sums[i][j][l] += x[std::int64_t(i) * width + k + l] * q[std::int64_t(j) * width + k + l];
  for (std::size_t i = 0; i < tile; ++i)
    for (std::size_t j = 0; j < tile; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < lanes; ++l) sum += sums[i][j][l];
      for (std::int64_t rest = k; rest < width; ++rest) sum += x[std::int64_t(i) * width + rest] * q[std::int64_t(j) * width + rest];
      products[i][j] = sum;
    }
}

// Bound of the error of |x|^2 - 2 x q + |q|^2 with a float inner product, whose error is at most (width + lanes) u |x| |q|, u = 2^-24. The
// last term covers rounding in double and products below the smallest normal float.
double error_bound(double square_of_x, double square_of_q, std::int64_t width) {
  constexpr double u = 0x1p-24, slack = 1.01;
  return slack * 2 * double(width + 2 * lanes) * u * std::sqrt(square_of_x * square_of_q) + 1e-12 * (square_of_x + square_of_q) +
         double(width) * 0x1p-125;
}

}  // namespace

// DistanceRange [least, most] of the distance of a chunk of a block.
struct FlatVectorShard::DistanceRange {
  double least, most;
  std::uint32_t block, chunk;
};

// Chunks that may be among the K nearest to one query.
class FlatVectorShard::Nearest {
 public:
  explicit Nearest(std::int64_t most) : most_(std::size_t(most)), limit_(4 * most_ + 64) {}

  void add(const DistanceRange& c) {
    if (c.least > bound_) return;
    found_.push_back(c);
    if (found_.size() >= limit_) drop();
  }
  const std::vector<DistanceRange>& take() {
    drop();
    return found_;
  }

 private:
  void drop() {
    if (found_.size() <= most_) return;
    const auto end = found_.begin() + std::ptrdiff_t(most_ - 1);
    std::nth_element(found_.begin(), end, found_.end(), [](const DistanceRange& x, const DistanceRange& y) { return x.most < y.most; });
    bound_ = end->most;
    std::erase_if(found_, [&](const DistanceRange& c) { return c.least > bound_; });
    limit_ = std::max(limit_, 2 * found_.size());  // many equal vectors leave more than most_ chunks
  }

  std::size_t most_, limit_;
  double bound_ = std::numeric_limits<double>::infinity();
  std::vector<DistanceRange> found_;
};

void FlatVectorShard::add(std::int64_t first, std::vector<float> vectors, std::vector<std::uint32_t> corpora, std::vector<std::uint32_t> documents) {
  VectorBlock block{first, std::move(vectors), {}, std::move(corpora), std::move(documents)};
  for (std::size_t c = 0; c < block.corpora.size(); ++c)
    block.squares.push_back(square_of(std::span(block.vectors).subspan(c * std::size_t(width_), std::size_t(width_))));
  // Tiles read whole groups of rows.
  block.vectors.resize((block.corpora.size() + tile - 1) / tile * tile * std::size_t(width_));
  blocks_.push_back(std::move(block));
}

std::vector<std::vector<Candidate>> FlatVectorShard::search(std::span<const float> queries, std::int64_t most) const {
  std::vector<std::vector<Candidate>> found;
  const std::size_t count = queries.size() / std::size_t(width_);
  for (std::size_t first = 0; first < count; first += queries_at_once) search(queries, first, std::min(count, first + queries_at_once), most, found);
  return found;
}

void FlatVectorShard::search(std::span<const float> queries, std::size_t first, std::size_t last, std::int64_t most,
                             std::vector<std::vector<Candidate>>& found) const {
  const auto width = std::size_t(width_);
  std::vector<float> q(queries.begin() + std::ptrdiff_t(first * width), queries.begin() + std::ptrdiff_t(last * width));
  q.resize((last - first + tile - 1) / tile * tile * width);
  std::vector<double> squares;
  for (std::size_t i = 0; i < last - first; ++i) squares.push_back(square_of(std::span(q).subspan(i * width, width)));
  std::vector<Nearest> nearest(last - first, Nearest(most));
  float products[tile][tile];
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    for (std::size_t chunk = 0; chunk < blocks_[b].squares.size(); chunk += tile)
      for (std::size_t query = 0; query < last - first; query += tile) {
        inner_products(blocks_[b].vectors.data() + chunk * width, q.data() + query * width, width_, products);
        for (std::size_t c = chunk; c < std::min(chunk + tile, blocks_[b].squares.size()); ++c)
          for (std::size_t i = query; i < std::min(query + tile, last - first); ++i) {
            const double square = blocks_[b].squares[c], middle = square - 2 * double(products[c - chunk][i - query]) + squares[i];
            const double error = error_bound(square, squares[i], width_);
            nearest[i].add({middle - error, middle + error, std::uint32_t(b), std::uint32_t(c)});
          }
      }
  for (std::size_t i = 0; i < last - first; ++i) {
    std::vector<Candidate> best;
    for (const DistanceRange& c : nearest[i].take()) best.push_back(candidate(c, std::span<const float>(q).subspan(i * width, width)));
    keep_best(best, most);
    found.push_back(std::move(best));
  }
}

Candidate FlatVectorShard::candidate(const DistanceRange& c, std::span<const float> query) const {
  const VectorBlock& block = blocks_[c.block];
  const double d2 = distance(std::span(block.vectors).subspan(c.chunk * std::size_t(width_), std::size_t(width_)), query);
  return {-d2, block.first + c.chunk, block.corpora[c.chunk], block.documents[c.chunk]};
}

}  // namespace gyr::retro
