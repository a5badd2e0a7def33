// SPDX-License-Identifier: BSD-3-Clause
// Windows of joined documents, in the orders shuffled and megatron.
#include "src/data/samples.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"

namespace gyr {
namespace {

constexpr std::int64_t max_index = std::int64_t(std::numeric_limits<std::uint32_t>::max()) - 2;

std::int64_t tokens_in(const TokenFile& file, SequenceRange r) { return file.first_token(r.last) - file.first_token(r.first); }

// Number of windows in the range. Exit::data if it is zero.
std::int64_t windows_in(const TokenFile& file, SequenceRange r, std::int64_t L, bool predicts = true) {
  const std::int64_t tokens = tokens_in(file, r);
  require(tokens >= L + predicts, Exit::data,
          "{}: too little data for one sample: the split holds {} (documents {} to {}), and a sample needs {}. Shorten the samples to at most {} "
          "tokens (train.seq_length; --length of eval), give the split a larger proportion (data.split), or add text: {:.1f} times as much. Training "
          "without validation: train.eval_every=0",
          file.prefix().string(), counted(tokens, "token"), r.first, r.last - 1, L + predicts, std::max<std::int64_t>(1, tokens - predicts),
          double(L + predicts) / double(std::max<std::int64_t>(1, tokens)));
  return (tokens - predicts) / L;
}

// Extracts of `count` tokens of joined sequences. sequence_at(i) is the i-th of them; `offset` counts from the start of
// sequence_at(0).
template <class SequenceAt>
std::vector<Extract> extracts_of(const TokenFile& file, SequenceAt&& sequence_at, std::int64_t offset, std::int64_t count) {
  std::vector<Extract> extracts;
  for (std::int64_t i = 0; count > 0; ++i) {
    const std::int64_t sequence = sequence_at(i), length = file.length(sequence);
    const std::int64_t here = std::min(length - offset, count);
    if (here > 0) extracts.push_back({sequence, offset, here});
    count -= std::max<std::int64_t>(here, 0);
    offset = std::max<std::int64_t>(offset - length, 0);
  }
  return extracts;
}

class ShuffledSamples : public Samples {
 public:
  ShuffledSamples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts)
      : file_(file), range_(r), start_(file.first_token(r.first)), seq_length_(L), windows_(windows_in(file, r, L, predicts)), seed_(seed),
        predicts_(predicts) {}

  std::vector<Extract> extracts(std::int64_t number) const override {
    ensure(number >= 0, "sample number {} is out of range; it is 0 or larger", number);
    return window(window_of(number));
  }
  std::int64_t window_of(std::int64_t number) const override {
    const std::int64_t epoch = number / windows_;
    return permuted(number % windows_, windows_, epoch_key(seed_, epoch));
  }
  std::vector<Extract> window(std::int64_t w) const override {
    ensure(w >= 0 && w < windows_, "window {} is out of range; there are {}", w, windows_);
    return extracts_from(start_ + w * seq_length_, seq_length_ + predicts_);
  }
  std::int64_t per_epoch() const override { return windows_; }
  std::int64_t size() const override { return std::numeric_limits<std::int64_t>::max(); }
  std::vector<Extract> rest() const override {
    const std::int64_t begin = start_ + windows_ * seq_length_;
    return extracts_from(begin, file_.first_token(range_.last) - begin);
  }

 private:
  std::vector<Extract> extracts_from(std::int64_t begin, std::int64_t count) const {
    const std::int64_t sequence = sequence_of(begin);
    return extracts_of(
        file_, [&](std::int64_t i) { return sequence + i; }, begin - file_.first_token(sequence), count);
  }
  // The last sequence that begins at or before token `position`, so that empty sequences are skipped.
  std::int64_t sequence_of(std::int64_t position) const {
    std::int64_t low = range_.first, high = range_.last;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (file_.first_token(middle) <= position ? low : high) = middle;
    }
    return low;
  }

  const TokenFile& file_;
  SequenceRange range_;
  std::int64_t start_, seq_length_, windows_;
  std::uint64_t seed_;
  bool predicts_;
};

// Bit-compatible with numpy.random.RandomState(seed).shuffle: Fisher-Yates from the end, with indices drawn by masked
// rejection sampling.
class LegacyShuffle {
 public:
  explicit LegacyShuffle(std::uint32_t seed) : draw_(seed) {}

  template <class T>
  void operator()(std::span<T> x) {
    for (std::size_t i = x.size(); i-- > 1;) std::swap(x[i], x[up_to(std::uint32_t(i))]);
  }

 private:
  std::uint32_t up_to(std::uint32_t largest) {
    const std::uint32_t mask = std::uint32_t(std::bit_ceil(std::uint64_t(largest) + 1) - 1);
    std::uint32_t value;
    do value = std::uint32_t(draw_()) & mask;
    while (value > largest);
    return value;
  }

  std::mt19937 draw_;
};

class MegatronSamples : public Samples {
 public:
  MegatronSamples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, std::int64_t requested)
      : file_(file), seq_length_(L), windows_(windows_in(file, r, L)) {
    require(seed <= std::numeric_limits<std::uint32_t>::max(), Exit::config, "seed {} does not fit the 32 bits of the megatron order", seed);
    require(requested >= 1 && requested <= max_index, Exit::config,
            "the megatron order needs the number of samples that will be read, from 1 to {}, not {}", max_index, requested);
    const std::int64_t tokens = tokens_in(file, r), documents = r.last - r.first;
    const std::int64_t epochs = std::max<std::int64_t>(1, (requested * L + 1 + tokens - 1) / tokens);
    const std::int64_t total = (epochs * tokens - 1) / L;
    require(total <= max_index && documents <= max_index / epochs && r.last <= max_index, Exit::config,
            "{}: {} samples in {} epochs of {} documents exceed the 32-bit indices of the megatron order; use the "
            "shuffled order",
            file.prefix().string(), total, epochs, documents);
    const std::int64_t in_full_epochs = ((epochs - 1) * tokens - 1) / L;
    const bool last_is_separate = epochs > 1 && requested - in_full_epochs < std::int64_t(0.80 * double(windows_));

    LegacyShuffle shuffle{std::uint32_t(seed)};
    index_documents(r, epochs, last_is_separate, shuffle);
    samples_.resize(std::size_t(total));
    for (std::size_t i = 0; i < samples_.size(); ++i) samples_[i] = std::uint32_t(i);
    const std::size_t head = last_is_separate ? std::size_t(in_full_epochs) : samples_.size();
    shuffle(std::span(samples_).first(head));
    shuffle(std::span(samples_).subspan(head));
  }

  std::vector<Extract> extracts(std::int64_t number) const override {
    require(number >= 0 && number < size(), Exit::config,
            "sample {} is beyond the {} samples of the megatron order; this order cannot be extended during a run", number, size());
    const std::int64_t position = std::int64_t(samples_[std::size_t(number)]) * seq_length_;
    const auto block = std::upper_bound(block_starts_.begin(), block_starts_.end(), position) - block_starts_.begin() - 1;
    const auto first = std::size_t(block) * block_documents;
    return extracts_of(
        file_, [&](std::int64_t i) { return documents_[first + std::size_t(i)]; }, position - block_starts_[std::size_t(block)], seq_length_ + 1);
  }
  std::int64_t per_epoch() const override { return windows_; }
  std::int64_t size() const override { return std::int64_t(samples_.size()); }

 private:
  static constexpr std::size_t block_documents = 64;

  void index_documents(SequenceRange r, std::int64_t epochs, bool last_is_separate, LegacyShuffle& shuffle) {
    documents_.reserve(std::size_t(epochs * (r.last - r.first)));
    for (std::int64_t e = 0; e < epochs; ++e)
      for (std::int64_t s = r.first; s < r.last; ++s) documents_.push_back(std::uint32_t(s));
    const std::size_t head = documents_.size() - (last_is_separate ? std::size_t(r.last - r.first) : 0);
    shuffle(std::span(documents_).first(head));
    shuffle(std::span(documents_).subspan(head));
    std::int64_t position = 0;
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      if (i % block_documents == 0) block_starts_.push_back(position);
      position += file_.length(documents_[i]);
    }
  }

  const TokenFile& file_;
  std::int64_t seq_length_, windows_;
  std::vector<std::uint32_t> documents_;    // sequence ids in the order in which their tokens are joined
  std::vector<std::int64_t> block_starts_;  // joined tokens before documents 0, 64, 128, ... of documents_
  std::vector<std::uint32_t> samples_;      // [number]: index of the sample's window among the joined tokens
};

}  // namespace

std::vector<Extract> Samples::window(std::int64_t) const { fail(Exit::internal, "only the order shuffled has the same windows in every epoch"); }
std::int64_t Samples::window_of(std::int64_t) const { fail(Exit::internal, "only the order shuffled numbers its windows"); }

SampleOrder parse_sample_order(std::string_view name) {
  if (name == "shuffled") return SampleOrder::shuffled;
  if (name == "megatron") return SampleOrder::megatron;
  if (name == "documents") return SampleOrder::documents;
  fail(Exit::config, "'{}' is not a sample order; the orders are shuffled, megatron and documents", name);
}

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch) { return mixed(seed) ^ mixed(std::uint64_t(epoch)); }

std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t key) {
  const int half = (std::bit_width(std::uint64_t(n - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t(1) << half) - 1;
  auto x = std::uint64_t(i);
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint64_t round = 0; round < 8; ++round) {
      const std::uint64_t next = left ^ (mixed(key ^ mixed(right + (round << 56))) & mask);
      left = std::exchange(right, next);
    }
    x = left << half | right;
  } while (x >= std::uint64_t(n));
  return std::int64_t(x);
}

std::unique_ptr<Samples> shuffled_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts) {
  return std::make_unique<ShuffledSamples>(file, r, L, seed, predicts);
}

std::unique_ptr<Samples> megatron_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, std::int64_t requested) {
  return std::make_unique<MegatronSamples>(file, r, L, seed, requested);
}

}  // namespace gyr
