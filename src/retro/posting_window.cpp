// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/posting_window.hpp"

#include <algorithm>

namespace gyr::retro {

namespace {

constexpr double k1 = 1.2, b = 0.75;

// Codes of the pairs of one window, in the order of their first occurrence.
class PairCodes {
 public:
  PairCodes(PostingWindow& window, std::uint32_t longest, double mean) : window_(window), codes_(256 * (std::size_t(longest) + 1), -1), mean_(mean) {}

  std::uint16_t code(std::uint8_t frequency, std::uint32_t length) {
    std::int32_t& code = codes_[256 * std::size_t(length) + frequency];
    if (code < 0) {
      code = std::int32_t(window_.a.size());
      const double f = frequency;
      window_.a.push_back(f * (k1 + 1));
      window_.d.push_back(f + k1 * (1 - b + b * double(length) / mean_));
    }
    return std::uint16_t(code);
  }

 private:
  PostingWindow& window_;
  std::vector<std::int32_t> codes_;  // [length, frequency]; -1: no code yet
  double mean_;
};

// End of the window that begins at chunk `first` of a block.
std::size_t window_end(const std::vector<std::uint32_t>& lengths, std::size_t first) {
  std::vector<std::uint32_t> seen;
  std::size_t end = first;
  for (; end < std::min(lengths.size(), first + PostingWindow::most_chunks); ++end) {
    const auto at = std::lower_bound(seen.begin(), seen.end(), lengths[end]);
    if (at != seen.end() && *at == lengths[end]) continue;
    if (seen.size() == PostingWindow::most_lengths) break;
    seen.insert(at, lengths[end]);
  }
  return end;
}

// The window of the chunks [first, end). next[list]: the first element of a list that no earlier window has.
PostingWindow window_of(const PostingBlock& block, std::size_t first, std::size_t end, double mean, std::vector<std::uint64_t>& next) {
  PostingWindow window;
  window.first = block.first + std::int64_t(first);
  const auto copied = [&](const std::vector<std::uint32_t>& of) {
    return std::vector(of.begin() + std::ptrdiff_t(first), of.begin() + std::ptrdiff_t(end));
  };
  window.corpora = copied(block.corpora), window.documents = copied(block.documents);
  PairCodes pairs(window, *std::max_element(block.lengths.begin() + std::ptrdiff_t(first), block.lengths.begin() + std::ptrdiff_t(end)), mean);
  for (std::size_t list = 0; list < block.terms.size(); ++list) {
    std::uint64_t& i = next[list];
    if (i == block.offsets[list + 1] || block.ids[i] >= end) continue;
    window.terms.push_back(block.terms[list]), window.offsets.push_back(window.ids.size());
    for (; i < block.offsets[list + 1] && block.ids[i] < end; ++i) {
      window.ids.push_back(std::uint16_t(block.ids[i] - first));
      window.codes.push_back(pairs.code(block.frequencies[i], block.lengths[block.ids[i]]));
    }
  }
  window.offsets.push_back(window.ids.size());
  window.ids.shrink_to_fit(), window.codes.shrink_to_fit();
  return window;
}

}  // namespace

std::int64_t PostingWindow::list_of(std::uint32_t term) const {
  const auto at = std::lower_bound(terms.begin(), terms.end(), term);
  return at == terms.end() || *at != term ? -1 : at - terms.begin();
}

void PostingWindow::contributions(double idf, double* values) const {
  for (std::size_t pair = 0; pair < a.size(); ++pair) values[pair] = idf * a[pair] / d[pair];
}

void PostingWindow::add(std::size_t list, double idf, const double* values, double* scores) const {
  const std::uint16_t* const id = ids.data();
  const std::uint16_t* const code = codes.data();
  const std::uint64_t end = offsets[list + 1];
  if (values)
    for (std::uint64_t i = offsets[list]; i < end; ++i) scores[id[i]] += values[code[i]];
  else
    for (std::uint64_t i = offsets[list]; i < end; ++i) scores[id[i]] += idf * a[code[i]] / d[code[i]];
}

std::vector<PostingWindow> windows_of(const PostingBlock& block, double mean) {
  std::vector<PostingWindow> windows;
  std::vector<std::uint64_t> next(block.offsets.begin(), block.offsets.end());
  for (std::size_t first = 0; first < block.lengths.size(); first = std::size_t(windows.back().first - block.first) + windows.back().chunks())
    windows.push_back(window_of(block, first, window_end(block.lengths, first), mean, next));
  return windows;
}

}  // namespace gyr::retro
