// SPDX-License-Identifier: BSD-3-Clause
// Dataset: one split of one or several weighted corpora.
#include "src/data/dataset.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/base/error.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/packing.hpp"
#include "src/data/sourced_samples.hpp"

namespace gyr {
namespace {

// As in Megatron-LM, each corpus of a blend provides 0.5 % more samples than its weight requires, because the greedy
// blending rule rounds.
constexpr double surplus = 0.005;

}  // namespace

std::optional<std::array<double, 3>> split_fractions(std::string_view text) {
  std::array<double, 3> fractions{};
  std::size_t count = 0;
  const char *at = text.data(), *end = at + text.size();
  for (bool more = true; more;) {
    double fraction = -1;
    const auto [next, error] = std::from_chars(at, end, fraction);
    const bool good = error == std::errc() && std::isfinite(fraction) && fraction >= 0 && (next == end || *next == ',');
    if (!good || count == 3) return {};
    fractions[count++] = fraction;
    more = next != end;
    at = next + (more ? 1 : 0);
  }
  const double sum = fractions[0] + fractions[1] + fractions[2];
  if (!(sum > 0) || !std::isfinite(sum)) return {};
  for (double& fraction : fractions) fraction /= sum;
  return fractions;
}

std::string_view name_of(Split split) { return split == Split::train ? "train" : split == Split::validation ? "validation" : "test"; }

SequenceRange split_range(std::string_view fractions, Split which, std::int64_t N) {
  const auto fraction = split_fractions(fractions);
  require(fraction.has_value(), Exit::config, "'{}' is not a valid split; give the proportions of train, validation and test, such as 949,50,1",
          fractions);
  SequenceRange range{0, 0};
  double sum = 0;
  for (std::size_t i = 0; i <= std::size_t(which); ++i) {
    range.first = range.last;
    sum += (*fraction)[i];
    range.last = std::clamp<std::int64_t>(std::int64_t(std::nearbyint(sum * double(N))), range.first, N);
  }
  return range;
}

Dataset::Dataset(const DatasetOptions& options) : options_(options) {
  require(!options.corpora.empty(), Exit::config, "no corpus is given");
  require(options.seq_length >= 1 && options.seq_length <= (std::int64_t(1) << 30), Exit::config,
          "sequence length {} is out of range; it is 1 to 2^30", options.seq_length);
  require(options.vocab_size >= 1 && options.vocab_size <= TokenFile::max_vocab, Exit::config,
          "vocab_size {} is out of range; it is 1 to the limit of the token file format", options.vocab_size);
  const auto weights = given_weights();
  const auto count = options.corpora.size();
  require(options.classes.empty() || (options.order == SampleOrder::documents && options.separate), Exit::config,
          "texts with a class must not be split or joined: set data.order: documents and data.documents: separate");
  require(options.pairs == Pairs::none || (options.order == SampleOrder::documents && options.separate), Exit::config,
          "preference pairs must not be split or joined: set data.order: documents and data.documents: separate");
  require(options.source_length == 0 || (options.order == SampleOrder::documents && !options.separate), Exit::config,
          "an encoder input and its target text form one sample: set data.order: documents and data.documents: joined");
  const bool megatron = options.order == SampleOrder::megatron;
  require(!megatron || options.samples >= 1, Exit::config, "the megatron order needs the number of samples that will be read");
  require(!megatron || count == 1 || !weights.empty(), Exit::config, "the megatron order needs a weight for each of the {} corpora", count);
  if (!weights.empty()) blend_ = std::make_unique<Blend>(weights);

  std::vector<double> windows;
  for (const Corpus& corpus : options.corpora) {
    open(corpus);
    windows.push_back(double(samples_.back()->per_epoch()));
  }
  check_fingerprints(files_, options.vocab_size);
  if (!blend_) blend_ = std::make_unique<Blend>(windows);
}

void Dataset::open(const Corpus& corpus) {
  files_.push_back(std::make_unique<TokenFile>(corpus.prefix));
  const TokenFile& file = *files_.back();
  masks_.push_back(LossMask::next_to(file));
  if (!options_.classes.empty()) labels_.push_back(std::make_unique<ClassLabels>(file, options_.classes));
  if (options_.pairs != Pairs::none)
    references_.emplace_back(file, options_.pairs == Pairs::with_reference      ? References::required
                                   : options_.pairs == Pairs::without_reference ? References::none
                                                                                : References::optional);
  require(options_.source_length == 0 || (masks_.back() && file.sequences() % 2 == 0), Exit::data,
          "{}: {} sequences{} are not pairs of an encoder input and a target text; build them with `gyrfalcon data build --source`",
          file.prefix().string(), file.sequences(), masks_.back() ? "" : " without a loss mask");
  const SequenceRange range = range_of(file);
  const bool has_examples = masks_.back() || options_.pairs != Pairs::none || !options_.classes.empty();  // conversations, pairs, labelled texts
  require(range.first < range.last, Exit::data,
          "{}: the {} split is empty: proportions {} of {} document{} round to none; enlarge the proportion, {}, or set train.eval_every=0 to train "
          "without validation",
          file.prefix().string(), name_of(options_.which), options_.split, file.sequences(), file.sequences() == 1 ? "" : "s",
          has_examples ? "build token files of more examples" : "divide the text into more documents (data build --documents page)");
  samples_.push_back(samples_of(files_.size() - 1, range));
}

// A split contains both texts of a pair or neither.
SequenceRange Dataset::range_of(const TokenFile& file) const {
  if (!has_document_pairs()) return split_range(options_.split, options_.which, file.sequences());
  const SequenceRange pairs = split_range(options_.split, options_.which, file.sequences() / 2);
  return {2 * pairs.first, 2 * pairs.last};
}

std::unique_ptr<Samples> Dataset::samples_of(std::size_t c, SequenceRange range) const {
  const TokenFile& file = *files_[c];
  if (options_.order == SampleOrder::megatron) {
    const bool single = options_.corpora.size() == 1;
    const double fraction = single ? 1.0 : std::ceil(double(options_.samples) * blend_->weights()[c]);
    return megatron_samples(file, range, options_.seq_length, options_.seed,
                            single ? options_.samples : std::int64_t(std::ceil(fraction * (1 + surplus))));
  }
  // Each corpus has its own seed, so that corpora of equal size are not permuted in the same way.
  const std::uint64_t seed = options_.seed + (std::uint64_t(c) << 32);
  if (options_.order == SampleOrder::shuffled) return shuffled_samples(file, range, options_.seq_length, seed, options_.predicts);
  if (options_.source_length > 0) return sourced_samples(file, range, options_.source_length, options_.seq_length, seed);
  return packed_samples(file, range, options_.seq_length, seed, options_.predicts,
                        options_.pairs == Pairs::none ? SampleGrouping::texts : SampleGrouping::pairs);
}

std::vector<double> Dataset::given_weights() const {
  std::vector<double> weights;
  for (const Corpus& corpus : options_.corpora)
    if (corpus.weight) weights.push_back(*corpus.weight);
  require(weights.empty() || weights.size() == options_.corpora.size(), Exit::config,
          "{} of {} corpora have a weight; give one to all of them or to none", weights.size(), options_.corpora.size());
  return weights;
}

// Reads an encoder input. None of its tokens may be a target token of the loss mask.
std::vector<std::int32_t> Dataset::source_of(std::size_t c, const Extract& extract) const {
  std::vector<std::int32_t> source(std::size_t(extract.count));
  std::vector<std::uint8_t> learned(source.size());
  files_[c]->read(extract.sequence, extract.offset, source, options_.vocab_size);
  masks_[c]->read(extract.sequence, extract.offset, learned);
  require(std::count(learned.begin(), learned.end(), 1) == 0, Exit::data,
          "{}: sequence {} is an encoder input, but its loss mask marks target tokens; build pairs with `gyrfalcon data build --source`",
          files_[c]->prefix().string(), extract.sequence);
  return source;
}

Blend::Pick Dataset::pick_of(std::int64_t number) const { return samples_.size() == 1 ? Blend::Pick{0, number} : blend_->at(number); }

std::pair<std::int64_t, std::vector<Extract>> Dataset::extracts(std::int64_t number) const {
  const Blend::Pick pick = pick_of(number);
  return {pick.corpus, samples_[std::size_t(pick.corpus)]->extracts(pick.number)};
}

std::pair<std::int64_t, std::int64_t> Dataset::place(std::int64_t number) const {
  const auto [corpus, parts] = extracts(number);
  return {corpus, parts.front().sequence};
}

Sample Dataset::sample(std::int64_t number) const {
  const auto [corpus, parts] = extracts(number);
  return sample_of(std::size_t(corpus), parts, std::size_t(options_.seq_length) + 1);
}

Sample Dataset::rest(std::int64_t corpus) const {
  const std::vector<Extract> extracts = samples_[std::size_t(corpus)]->rest();
  if (extracts.empty()) return {};
  const auto length =
      std::accumulate(extracts.begin(), extracts.end(), std::int64_t(0), [](std::int64_t sum, const Extract& e) { return sum + e.count; });
  return sample_of(std::size_t(corpus), extracts, std::size_t(length));
}

// Builds a sample from its extracts, padded to `length` tokens.
Sample Dataset::sample_of(std::size_t c, const std::vector<Extract>& extracts, std::size_t length) const {
  Sample s{std::vector<std::int32_t>(length), {}, std::vector<std::uint8_t>(length), {}};
  if (!labels_.empty()) s.classes.assign(length, ignored_label);
  if (options_.separate) s.positions.resize(length);
  const auto separate = [&](std::size_t first, std::size_t count) {
    if (!options_.separate || count == 0) return;
    std::iota(s.positions.begin() + std::ptrdiff_t(first), s.positions.begin() + std::ptrdiff_t(first + count), 0);
    s.learned[first] = 0;
  };
  if (options_.source_length > 0) s.source = source_of(c, extracts.front());
  std::size_t first = 0;
  for (const Extract& extract : std::span(extracts).subspan(options_.source_length > 0 ? 1 : 0)) {
    const auto count = std::size_t(extract.count);
    const auto learned = std::span(s.learned).subspan(first, count);
    files_[c]->read(extract.sequence, extract.offset, std::span(s.tokens).subspan(first, count), options_.vocab_size);
    if (masks_[c]) masks_[c]->read(extract.sequence, extract.offset, learned);
    else std::fill(learned.begin(), learned.end(), 1);
    if (!labels_.empty()) labels_[c]->read(extract.sequence, extract.offset, std::span(s.classes).subspan(first, count));
    separate(first, count);
    if (options_.order == SampleOrder::documents)
      s.texts.push_back({Index(first), Index(count), extract.sequence, references_.empty() ? 0 : references_[c].of(extract.sequence)});
    first += count;
  }
  separate(first, length - first);  // the padding counts as one document with positions of its own
  if (options_.words) s.begins = word_begins(*options_.words, s.tokens, s.learned);
  return s;
}

std::vector<std::string> Dataset::notes() const {
  std::vector<std::string> notes;
  for (const auto& samples : samples_)
    if (const std::string note = samples->note(); !note.empty()) notes.push_back(note);
  for (const TextReferences& references : references_)
    if (const std::string note = references.note(); !note.empty()) notes.push_back(note);
  return notes;
}

}  // namespace gyr
