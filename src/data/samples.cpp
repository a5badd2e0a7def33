// SPDX-License-Identifier: BSD-3-Clause
// Training samples of a corpus, in two orders.
#include "src/data/samples.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <utility>

#include "kernels/error.hpp"

namespace gyr {
namespace {

constexpr std::int64_t max_index = std::int64_t(std::numeric_limits<std::uint32_t>::max()) - 2;

// Mixes 64 bits: the finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::int64_t tokens_in(const TokenFile& file, SequenceRange r) {
  return file.first_token(r.last) - file.first_token(r.first);
}

// W, checked to be at least one.
std::int64_t windows_in(const TokenFile& file, SequenceRange r, std::int64_t L) {
  const std::int64_t tokens = tokens_in(file, r);
  require(tokens > L, Exit::data,
          "{}: sequences {} to {} hold {} tokens, and one sample needs {}; take a shorter sequence length, a larger "
          "share for this "
          "split, or more data",
          file.prefix().string(), r.first, r.last, tokens, L + 1);
  return (tokens - 1) / L;
}

class ShuffledSamples : public Samples {
 public:
  ShuffledSamples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed)
      : file_(file), start_(file.first_token(r.first)), length_(L), windows_(windows_in(file, r, L)), seed_(seed) {}

  void read(std::int64_t number, std::span<std::int32_t> out, std::int64_t vocab_size) const override {
    ensure(number >= 0 && std::int64_t(out.size()) == length_ + 1, "sample {} of {} tokens was asked for", number,
           out.size());
    const std::int64_t epoch = number / windows_;
    const std::int64_t window = permuted(number % windows_, windows_, mixed(seed_) ^ mixed(std::uint64_t(epoch)));
    file_.read_stream(start_ + window * length_, out, vocab_size);
  }
  std::int64_t per_epoch() const override { return windows_; }
  std::int64_t size() const override { return std::numeric_limits<std::int64_t>::max(); }

 private:
  const TokenFile& file_;
  std::int64_t start_, length_, windows_;
  std::uint64_t seed_;
};

// numpy.random.RandomState(seed).shuffle, bit for bit: Fisher-Yates from the back, with indices drawn by masked
// rejection.
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
      : file_(file), length_(L), windows_(windows_in(file, r, L)) {
    require(seed <= std::numeric_limits<std::uint32_t>::max(), Exit::config,
            "seed {} does not fit the 32 bits of the megatron order", seed);
    require(requested >= 1 && requested <= max_index, Exit::config,
            "the megatron order needs to know how many samples will be read: from 1 to {}, not {}", max_index,
            requested);
    const std::int64_t tokens = tokens_in(file, r), documents = r.last - r.first;
    const std::int64_t epochs = std::max<std::int64_t>(1, (requested * L + 1 + tokens - 1) / tokens);
    const std::int64_t total = (epochs * tokens - 1) / L;
    require(total <= max_index && documents <= max_index / epochs && r.last <= max_index, Exit::config,
            "{}: {} samples in {} epochs of {} documents pass the 32-bit indices of the megatron order; use the "
            "shuffled order",
            file.prefix().string(), total, epochs, documents);
    const std::int64_t in_full_epochs = ((epochs - 1) * tokens - 1) / L;
    const bool last_apart = epochs > 1 && requested - in_full_epochs < std::int64_t(0.80 * double(windows_));

    LegacyShuffle shuffle{std::uint32_t(seed)};
    index_documents(r, epochs, last_apart, shuffle);
    samples_.resize(std::size_t(total));
    for (std::size_t i = 0; i < samples_.size(); ++i) samples_[i] = std::uint32_t(i);
    const std::size_t head = last_apart ? std::size_t(in_full_epochs) : samples_.size();
    shuffle(std::span(samples_).first(head));
    shuffle(std::span(samples_).subspan(head));
  }

  void read(std::int64_t number, std::span<std::int32_t> out, std::int64_t vocab_size) const override {
    ensure(std::int64_t(out.size()) == length_ + 1, "a sample of {} tokens was asked for", out.size());
    require(
        number >= 0 && number < size(), Exit::config,
        "sample {} was asked for, and the megatron order was made for {}; it cannot be extended in the middle of a run",
        number, size());
    const std::int64_t position = std::int64_t(samples_[std::size_t(number)]) * length_;
    const auto block =
        std::upper_bound(block_starts_.begin(), block_starts_.end(), position) - block_starts_.begin() - 1;
    auto document = std::size_t(block) * block_documents;
    std::int64_t offset = position - block_starts_[std::size_t(block)];
    for (std::int64_t n; offset >= (n = file_.length(documents_[document])); ++document) offset -= n;
    while (!out.empty()) {
      const std::int64_t here = std::min(file_.length(documents_[document]) - offset, std::int64_t(out.size()));
      file_.read(documents_[document++], offset, out.first(std::size_t(here)), vocab_size);
      out = out.subspan(std::size_t(here));
      offset = 0;
    }
  }
  std::int64_t per_epoch() const override { return windows_; }
  std::int64_t size() const override { return std::int64_t(samples_.size()); }

 private:
  static constexpr std::size_t block_documents = 64;

  void index_documents(SequenceRange r, std::int64_t epochs, bool last_apart, LegacyShuffle& shuffle) {
    documents_.reserve(std::size_t(epochs * (r.last - r.first)));
    for (std::int64_t e = 0; e < epochs; ++e)
      for (std::int64_t s = r.first; s < r.last; ++s) documents_.push_back(std::uint32_t(s));
    const std::size_t head = documents_.size() - (last_apart ? std::size_t(r.last - r.first) : 0);
    shuffle(std::span(documents_).first(head));
    shuffle(std::span(documents_).subspan(head));
    std::int64_t position = 0;
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      if (i % block_documents == 0) block_starts_.push_back(position);
      position += file_.length(documents_[i]);
    }
  }

  const TokenFile& file_;
  std::int64_t length_, windows_;
  std::vector<std::uint32_t> documents_;    // sequence ids in the order in which their tokens are joined
  std::vector<std::int64_t> block_starts_;  // tokens before every 64th of them
  std::vector<std::uint32_t> samples_;      // [number]: which window of the joined tokens
};

}  // namespace

SampleOrder parse_sample_order(std::string_view name) {
  if (name == "shuffled") return SampleOrder::shuffled;
  if (name == "megatron") return SampleOrder::megatron;
  fail(Exit::config, "'{}' is no order of samples; there are shuffled and megatron", name);
}

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

std::unique_ptr<Samples> shuffled_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed) {
  return std::make_unique<ShuffledSamples>(file, r, L, seed);
}

std::unique_ptr<Samples> megatron_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed,
                                          std::int64_t requested) {
  return std::make_unique<MegatronSamples>(file, r, L, seed, requested);
}

}  // namespace gyr
