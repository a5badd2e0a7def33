// SPDX-License-Identifier: BSD-3-Clause
// Packed samples of full documents.
#include "src/data/packing.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"

namespace gyr {

std::vector<std::uint32_t> best_fit(const std::vector<std::int64_t>& sizes, std::int64_t capacity) {
  std::map<std::int64_t, std::vector<std::uint32_t>> open;  // open windows by the room that they have left, in tokens
  std::vector<std::uint32_t> window_of;
  window_of.reserve(sizes.size());
  std::uint32_t windows = 0;
  for (const std::int64_t size : sizes) {
    std::int64_t left = capacity;
    std::uint32_t window = windows;
    const auto best = open.lower_bound(size);
    if (best == open.end()) {
      ++windows;
    } else {
      left = best->first;
      window = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    window_of.push_back(window);
    if (left > size) open[left - size].push_back(window);
  }
  return window_of;
}

namespace {

class PackedSamples : public Samples {
 public:
  PackedSamples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts, SampleGrouping grouping,
                std::int64_t reserved)
      : file_(file), capacity_(L + predicts), reserved_(reserved), seed_(seed), texts_(grouping == SampleGrouping::pairs ? 2 : 1) {
    require(r.last <= std::numeric_limits<std::uint32_t>::max(), Exit::config,
            "{}: {} documents exceed the 32-bit indices of the documents order; use the shuffled order", file.prefix().string(), r.last);
    for (std::int64_t s = r.first; s < r.last; s += texts_)
      if (grouping == SampleGrouping::texts ? file.length(s) > 0 : is_full_pair(s)) documents_.push_back(std::uint32_t(s));
    left_out_ = (r.last - r.first) / texts_ - std::int64_t(documents_.size());
    std::stable_sort(documents_.begin(), documents_.end(), [&](std::uint32_t a, std::uint32_t b) { return kept(a) > kept(b); });
    require(texts_ == 1 || !documents_.empty(), Exit::config,
            "{}: none of the {} fits a window of {} tokens; the shortest needs train.seq_length={} or more", file.prefix().string(),
            counted((r.last - r.first) / 2, "pair"), capacity_, shortest_pair(r) - predicts);
    require(!documents_.empty() && kept(documents_.front()) > predicts + reserved_, Exit::data,
            "{}: no document among sequences {} to {} has at least {}, the minimum for one prediction", file.prefix().string(), r.first, r.last,
            predicts ? "two tokens" : "a token");
    pack();
  }

  std::vector<Extract> extracts(std::int64_t number) const override {
    ensure(number >= 0, "sample number {} is out of range; it is 0 or larger", number);
    const std::uint64_t key = epoch_key(seed_, number / per_epoch());
    const auto window = std::size_t(permuted(number % per_epoch(), per_epoch(), key));
    const std::int64_t first = starts_[window], count = starts_[window + 1] - first;
    std::vector<Extract> extracts;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto place = places_[std::size_t(first + permuted(i, count, mixed(key ^ mixed(window))))];
      const std::uint32_t document = document_at(place, key);
      for (std::int64_t text = document; text < document + texts_; ++text)
        extracts.push_back({text, 0, std::min(file_.length(text), capacity_ - reserved_)});
    }
    return extracts;
  }
  std::int64_t per_epoch() const override { return std::int64_t(starts_.size()) - 1; }
  std::int64_t size() const override { return std::numeric_limits<std::int64_t>::max(); }

  std::string note() const override {
    std::int64_t tokens = 0, truncated = 0;
    for (const std::uint32_t document : documents_) {
      tokens += kept(document);
      truncated += texts_ == 1 && file_.length(document) > capacity_ - reserved_;
    }
    return fmt::format(
        "{}: {} in {} of {} tokens, {:.1f} % full{}", file_.prefix().string(), counted(Index(documents_.size()), texts_ == 1 ? "document" : "pair"),
        counted(per_epoch(), "window"), capacity_, 100.0 * double(tokens) / double(capacity_ * per_epoch()),
        truncated > 0 ? fmt::format("; {} longer than a window lose{} the end (train.seq_length)", truncated, truncated == 1 ? "s" : "")
        : texts_ == 2 && left_out_ > 0 ? fmt::format("; {} longer than a window {} left out", left_out_, left_out_ == 1 ? "is" : "are")
                                       : "");
  }

 private:
  // Tokens of a window that a packed unit takes.
  std::int64_t kept(std::uint32_t document) const {
    return std::min(file_.first_token(document + texts_) - file_.first_token(document) + reserved_, capacity_);
  }
  std::int64_t shortest_pair(const SequenceRange& r) const {
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t s = r.first; s + 1 < r.last; s += 2) shortest = std::min<std::int64_t>(shortest, file_.length(s) + file_.length(s + 1));
    return shortest;
  }
  bool is_full_pair(std::int64_t s) const {
    return file_.length(s) > 0 && file_.length(s + 1) > 0 && file_.length(s) + file_.length(s + 1) <= capacity_;
  }

  void pack() {
    std::vector<std::int64_t> sizes;
    for (const std::uint32_t document : documents_) sizes.push_back(kept(document));
    const auto window_of = best_fit(sizes, capacity_);
    starts_.assign(std::size_t(*std::max_element(window_of.begin(), window_of.end())) + 2, 0);
    for (const std::uint32_t window : window_of) ++starts_[window + 1];
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    std::vector<std::uint32_t> next(starts_.begin(), starts_.end() - 1);
    places_.resize(window_of.size());
    for (std::uint32_t place = 0; place < places_.size(); ++place) places_[next[window_of[place]]++] = place;
  }

  // Packing put the document with index `place` in the list sorted by descending length here. An epoch puts another
  // document of equal length here.
  std::uint32_t document_at(std::uint32_t place, std::uint64_t key) const {
    const std::int64_t length = kept(documents_[place]);
    const auto length_of = [&](std::uint32_t d) { return kept(d); };
    const auto begin = std::ranges::lower_bound(documents_, length, std::greater<>(), length_of);
    const std::int64_t count = std::ranges::upper_bound(documents_, length, std::greater<>(), length_of) - begin, first = begin - documents_.begin();
    return documents_[std::size_t(first + permuted(place - first, count, mixed(key ^ mixed(std::uint64_t(length)))))];
  }

  const TokenFile& file_;
  std::int64_t capacity_, reserved_;
  std::uint64_t seed_;
  // Documents per packed unit (1, or 2 for pairs); number of pairs that fit no window.
  std::int64_t texts_, left_out_ = 0;
  std::vector<std::uint32_t> documents_;  // first document of each packed unit, longest unit first
  std::vector<std::uint32_t> starts_;     // first index in places_ of each window, and the end of places_
  std::vector<std::uint32_t> places_;     // indices in documents_, window by window
};

}  // namespace

std::unique_ptr<Samples> packed_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts,
                                        SampleGrouping grouping, std::int64_t reserved) {
  return std::make_unique<PackedSamples>(file, r, L, seed, predicts, grouping, reserved);
}

}  // namespace gyr
