// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/sourced_samples.hpp"

#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

class SourcedSamples : public Samples {
 public:
  SourcedSamples(const TokenFile& file, SequenceRange r, std::int64_t max_source_tokens, std::int64_t max_text_tokens, std::uint64_t seed)
      : file_(file), range_(r), capacities_{max_source_tokens, max_text_tokens}, seed_(seed) {
    for (std::int64_t s = r.first; s < r.last; ++s) {
      require(file.length(s) > 0, Exit::data, "{}: sequence {} is empty; an encoder input and its target text need at least one token each",
              file.prefix().string(), s);
      truncated_[s % 2] += file.length(s) > capacities_[s % 2];
    }
  }

  std::vector<Extract> extracts(std::int64_t number) const override {
    ensure(number >= 0, "sample number {} is out of range; it is 0 or larger", number);
    const std::int64_t source = range_.first + 2 * permuted(number % per_epoch(), per_epoch(), epoch_key(seed_, number / per_epoch()));
    return {extract(source), extract(source + 1)};
  }
  std::int64_t per_epoch() const override { return (range_.last - range_.first) / 2; }
  std::int64_t size() const override { return std::numeric_limits<std::int64_t>::max(); }

  std::string note() const override {
    const auto listed = [](std::int64_t count, const char* what, std::int64_t capacity) {
      return count > 0
                 ? fmt::format("; {} {}{} longer than {} tokens lose{} the end", count, what, count == 1 ? "" : "s", capacity, count == 1 ? "s" : "")
                 : std::string();
    };
    return fmt::format("{}: {} pairs of an encoder input and a target text{}{}", file_.prefix().string(), per_epoch(),
                       listed(truncated_[0], "encoder input", capacities_[0]), listed(truncated_[1], "target text", capacities_[1]));
  }

 private:
  Extract extract(std::int64_t sequence) const { return {sequence, 0, std::min(file_.length(sequence), capacities_[sequence % 2])}; }

  const TokenFile& file_;
  SequenceRange range_;
  std::int64_t capacities_[2], truncated_[2] = {0, 0};  // [0]: encoder inputs, [1]: target texts. Maximum tokens; count of truncated sequences
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Samples> sourced_samples(const TokenFile& file, SequenceRange r, std::int64_t max_source_tokens, std::int64_t max_text_tokens,
                                         std::uint64_t seed) {
  return std::make_unique<SourcedSamples>(file, r, max_source_tokens, max_text_tokens, seed);
}

}  // namespace gyr
