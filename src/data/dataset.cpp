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
  check_layout();
  if (options.fill_in_middle) check_filling();
  const bool megatron = options.order == SampleOrder::megatron;
  require(!megatron || options.samples >= 1, Exit::config, "the megatron order needs the number of samples that will be read");
  require(!megatron || options.corpora.size() == 1 || !weights.empty(), Exit::config, "the megatron order needs a weight for each of the {} corpora",
          options.corpora.size());
  require(!megatron || (options.stages.empty() && options.max_epochs.empty()), Exit::config, "the megatron order has neither stages nor epoch caps");
  for (const Corpus& corpus : options.corpora) open(corpus);
  check_fingerprints(files_, options.vocab_size);
  mix(weights);
}

// Checks which documents may share a sample.
void Dataset::check_layout() const {
  const bool documents = options_.order == SampleOrder::documents;
  require(options_.classes.empty() || (documents && options_.separate), Exit::config,
          "texts with a class must not be split or joined: set data.order: documents and data.documents: separate");
  require(options_.pairs == Pairs::none || (documents && options_.separate), Exit::config,
          "preference pairs must not be split or joined: set data.order: documents and data.documents: separate");
  require(options_.source_length == 0 || (documents && !options_.separate), Exit::config,
          "an encoder input and its target text form one sample: set data.order: documents and data.documents: joined");
}

void Dataset::check_filling() const {
  require(options_.predicts && options_.classes.empty() && !has_document_pairs() && !options_.words, Exit::config,
          "data.fim: only a model that predicts the next token of plain text learns to fill gaps; set data.fim.rate: 0");
  require(options_.order != SampleOrder::documents || options_.seq_length > FillInMiddle::sentinels, Exit::config,
          "data.fim: a window of {} tokens has no room for a document and the {} tokens around its parts; raise train.seq_length",
          options_.seq_length, FillInMiddle::sentinels);
}

// Sets the proportions of the corpora: `weights`, or if they are empty the number of windows of each.
void Dataset::mix(std::vector<double> weights) {
  std::vector<std::int64_t> limits;
  const bool by_size = weights.empty();
  ensure(options_.max_epochs.empty() || options_.max_epochs.size() == files_.size(), "{} epoch caps for {} corpora", options_.max_epochs.size(),
         files_.size());
  for (std::int64_t c = 0; c < corpora(); ++c) {
    if (by_size) weights.push_back(double(per_epoch(c)));
    if (options_.max_epochs.empty()) continue;
    const std::int64_t most = options_.max_epochs[std::size_t(c)];
    limits.push_back(most > 0 ? most * per_epoch(c) : Mixture::endless);
  }
  mixture_ = std::make_unique<Mixture>(mixture_stages(options_.stages, options_.seq_length, weights), std::move(limits));
}

namespace {

// Refuses token files that `data build` has not made of pairs, whose neighbours would count as chosen and rejected.
void require_pairs(const std::filesystem::path& prefix) {
  const auto fingerprint = fingerprint_of(prefix);
  if (!fingerprint) return;
  const auto& given = fingerprint->options;
  require(std::any_of(given.begin(), given.end(), [](const auto& option) { return option.first == "--pairs"; }), Exit::data,
          "{}: holds no pairs of a chosen and a rejected response; build it with gyrfalcon data build FILE {} --pairs", prefix.string(),
          prefix.string());
}

}  // namespace

void Dataset::open(const Corpus& corpus) {
  files_.push_back(std::make_unique<TokenFile>(corpus.prefix));
  const TokenFile& file = *files_.back();
  masks_.push_back(LossMask::next_to(file));
  if (!options_.classes.empty()) labels_.push_back(std::make_unique<ClassLabels>(file, options_.classes));
  if (options_.pairs != Pairs::none) {
    require_pairs(corpus.prefix);
    references_.emplace_back(file, options_.pairs == Pairs::with_reference      ? References::required
                                   : options_.pairs == Pairs::without_reference ? References::none
                                                                                : References::optional);
  }
  require(options_.source_length == 0 || (masks_.back() && file.sequences() % 2 == 0), Exit::data,
          "{}: {} sequences{} are not pairs of an encoder input and a target text; build them with `gyrfalcon data build --source`",
          file.prefix().string(), file.sequences(), masks_.back() ? "" : " without a loss mask");
  const SequenceRange range = range_of(file);
  const bool has_examples = masks_.back() || options_.pairs != Pairs::none || !options_.classes.empty();  // conversations, pairs, labelled texts
  require(range.first < range.last, Exit::data,
          "{}: the {} split is empty: proportions {} of {} document{} round to none; enlarge the proportion, {}{}", file.prefix().string(),
          name_of(options_.which), options_.split, file.sequences(), file.sequences() == 1 ? "" : "s",
          has_examples ? "build token files of more examples" : "divide the text into more documents (data build --documents page)",
          options_.which == Split::validation ? ", or set train.eval_every=0 to train without validation" : ", or name another split");
  require(!options_.fill_in_middle || !masks_.back(), Exit::config,
          "data.fim: {} has a loss mask, as conversations have; only plain text is rearranged; set data.fim.rate: 0", file.prefix().string());
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
    const double fraction = single ? 1.0 : std::ceil(double(options_.samples) * Blend(given_weights()).weights()[c]);
    return megatron_samples(file, range, options_.seq_length, options_.seed,
                            single ? options_.samples : std::int64_t(std::ceil(fraction * (1 + surplus))));
  }
  // Each corpus has its own seed, so that corpora of equal size are not permuted in the same way.
  const std::uint64_t seed = options_.seed + (std::uint64_t(c) << 32);
  if (options_.order == SampleOrder::shuffled) return shuffled_samples(file, range, options_.seq_length, seed, options_.predicts);
  if (options_.source_length > 0) return sourced_samples(file, range, options_.source_length, options_.seq_length, seed);
  return packed_samples(file, range, options_.seq_length, seed, options_.predicts,
                        options_.pairs == Pairs::none ? SampleGrouping::texts : SampleGrouping::pairs,
                        options_.fill_in_middle ? FillInMiddle::sentinels : 0);
}

std::vector<double> Dataset::given_weights() const {
  std::vector<double> weights;
  for (const Corpus& corpus : options_.corpora)
    if (corpus.weight) weights.push_back(*corpus.weight);
  require(weights.empty() || weights.size() == options_.corpora.size(), Exit::config,
          "{} of {} corpora have a weight; give one to all of them or to none", weights.size(), options_.corpora.size());
  if (!weights.empty()) Blend{weights};  // checks the weights
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

std::pair<std::int64_t, std::vector<Extract>> Dataset::extracts(std::int64_t number) const {
  const Blend::Pick pick = mixture_->at(number);
  return {pick.corpus, samples_[std::size_t(pick.corpus)]->extracts(pick.number)};
}

std::pair<std::int64_t, std::int64_t> Dataset::place(std::int64_t number) const {
  const auto [corpus, parts] = extracts(number);
  return {corpus, parts.front().sequence};
}

Sample Dataset::sample(std::int64_t number) const {
  const Blend::Pick pick = mixture_->at(number);
  const Samples& samples = *samples_[std::size_t(pick.corpus)];
  Sample s =
      sample_of(std::size_t(pick.corpus), samples.extracts(pick.number), std::size_t(options_.seq_length) + 1, pick.number / samples.per_epoch());
  if (complete_) complete_(*this, number, s);
  return s;
}

Sample Dataset::rest(std::int64_t corpus) const {
  const std::vector<Extract> extracts = samples_[std::size_t(corpus)]->rest();
  if (extracts.empty()) return {};
  const auto length =
      std::accumulate(extracts.begin(), extracts.end(), std::int64_t(0), [](std::int64_t sum, const Extract& e) { return sum + e.count; });
  return sample_of(std::size_t(corpus), extracts, std::size_t(length), 0);
}

// Reads an extract and rearranges it for fill-in-the-middle. Returns the number of tokens, at most those of `tokens`.
std::size_t Dataset::read_filled(std::size_t c, const Extract& extract, std::int64_t epoch, std::span<std::int32_t> tokens) const {
  std::vector<std::int32_t> document(std::size_t(extract.count));
  files_[c]->read(extract.sequence, extract.offset, document, options_.vocab_size);
  const FillInMiddle& fill = options_.fill_in_middle;
  const auto filled = fill(document, fill.draws(std::int64_t(c), extract.sequence, extract.offset, epoch));
  const std::size_t count = std::min(filled.size(), tokens.size());
  std::copy_n(filled.begin(), count, tokens.begin());
  return count;
}

// Builds a sample from its extracts in this epoch of the corpus, padded to `length` tokens.
Sample Dataset::sample_of(std::size_t c, const std::vector<Extract>& extracts, std::size_t length, std::int64_t epoch) const {
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
    auto count = std::size_t(extract.count);
    if (options_.fill_in_middle) count = read_filled(c, extract, epoch, std::span(s.tokens).subspan(first));
    else files_[c]->read(extract.sequence, extract.offset, std::span(s.tokens).subspan(first, count), options_.vocab_size);
    const auto learned = std::span(s.learned).subspan(first, count);
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
