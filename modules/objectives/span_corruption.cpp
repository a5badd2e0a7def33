// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/span_corruption.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/device/random.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

SpanCounts::SpanCounts(const SpanCorruption& s, Index tokens) {
  require(tokens >= 2, Exit::config, "a sample of {} token: no span can be left out of it; take 2 or more (train.seq_length, or --length)", tokens);
  corrupted = std::clamp<Index>(std::llround(double(tokens) * s.share), 1, tokens - 1);
  spans = std::clamp<Index>(std::llround(double(corrupted) / s.mean_length), 1, std::min(corrupted, tokens - corrupted));
}

namespace {

// n tokens in so many pieces of at least one, any such partition as likely as any other: the lengths.
std::vector<Index> partition(Index n, Index pieces, const Stream& stream) {
  std::vector<Index> cuts(n - 1);
  std::iota(cuts.begin(), cuts.end(), 1);
  for (Index i = 0; i < pieces - 1; ++i) {
    const Index rest = n - 1 - i;
    std::swap(cuts[i], cuts[i + std::min(rest - 1, Index(stream.uniform(i) * double(rest)))]);
  }
  cuts.resize(pieces - 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(n);
  for (Index i = pieces - 1; i > 0; --i) cuts[i] -= cuts[i - 1];
  return cuts;
}

template <class T>
using SpansHead = FrontedHead<T, FinalNorm>;

class SpanCorruptionObjective final : public Objective {
 public:
  explicit SpanCorruptionObjective(const SpanCorruption& s) : s_(s) {}
  const char* name() const override { return "span_corruption"; }
  Labelled label(const SampleView& s) const override { return corrupt_spans(s_, s, s.start); }
  std::vector<Figure> figures(const ObjectiveScores& said) const override { return {accuracy_of_rows("accuracy", said.rows)}; }
  TextLengths lengths(Index tokens) const override { return SpanCounts(s_, tokens).lengths(tokens); }
  bool has_source() const override { return true; }
  std::optional<Token> end_token() const override { return s_.end_token; }
  std::shared_ptr<const Objective> within(Index vocab_size) const override {
    SpanCorruption small = s_;
    small.end_token = std::min<Token>(small.end_token, 1);
    if (small.first_sentinel >= vocab_size) small.first_sentinel = -1;
    return std::make_shared<const SpanCorruptionObjective>(small);
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, SpansHead>(parameters.dtype(), c, output_of_tokens(c, table), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }
  const SpanCorruption& spans() const { return s_; }

 private:
  SpanCorruption s_;
};

std::shared_ptr<const Objective> read_span_corruption(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("span_corruption", "spans that an encoder does not see and a decoder writes (T5)");
  SpanCorruption c;
  c.end_token = otherwise.end_token().value_or(c.end_token);
  if (const SpanCorruption* const before = span_corruption_of(otherwise)) c.first_sentinel = before->first_sentinel;
  c.share = s.get("share", c.share, "of the tokens of a sample that are in spans").positive().at_most(1);
  c.mean_length = s.get("mean_length", c.mean_length, "of a span").unit("tokens").at_least(1).at_most(longest);
  c.end_token = s.get("end_token", c.end_token, "token that ends source and text").at_least(0).at_most(most_tokens);
  c.first_sentinel = s.get("first_sentinel", c.first_sentinel,
                           "token that stands for the first span, the next being one less, of a folder its tokenizer's <extra_id_0>; -1: the last "
                           "one of model.vocab_size")
                         .at_least(-1)
                         .at_most(most_tokens);
  c.seed = std::uint64_t(Index(s.get("seed", Index(c.seed), "seed of the spans").at_least(0)));
  return span_corruption(c);
}

const RegisteredObjective registered_span_corruption({"span_corruption", "spans left out of what an encoder reads", read_span_corruption});

}  // namespace

Labelled corrupt_spans(const SpanCorruption& c, const SampleView& s, Token start) {
  const Index tokens = Index(s.tokens.size()) - 1;
  const SpanCounts count(c, tokens);
  const Token first = c.first_sentinel >= 0 ? c.first_sentinel : Token(s.vocab_size - 1);
  require(first < s.vocab_size && first - (count.spans - 1) > std::max(c.end_token, start), Exit::config,
          "train.span_corruption: {} spans in a sample take the sentinels {} to {}, of {} tokens, of which {} ends a text and {} begins one; set "
          "first_sentinel, or take shorter samples (train.seq_length)",
          count.spans, first - (count.spans - 1), first, s.vocab_size, c.end_token, start);
  const Stream of_seen(c.seed, fmt::format("what is seen of sample {}", s.number)), of_spans(c.seed, fmt::format("spans of sample {}", s.number));
  const std::vector<Index> seen = partition(tokens - count.corrupted, count.spans, of_seen),
                           spans = partition(count.corrupted, count.spans, of_spans);
  Labelled l;
  const auto write = [&](Token token, bool learned) { l.labels.push_back(learned ? token : ignored_label), l.tokens.push_back(token); };
  for (Index i = 0, t = 0; i < count.spans; ++i) {
    l.source.insert(l.source.end(), s.tokens.begin() + t, s.tokens.begin() + t + seen[i]);
    l.source.push_back(first - Token(i));
    write(first - Token(i), true);
    t += seen[i];
    for (const Index end = t + spans[i]; t < end; ++t) write(s.tokens[t], s.learned[t]);
  }
  l.source.push_back(c.end_token);
  write(c.end_token, true);
  l.tokens.pop_back();  // read one place behind
  l.tokens.insert(l.tokens.begin(), start);
  return l;
}

const SpanCorruption* span_corruption_of(const Objective& objective) {
  const auto* const spans = dynamic_cast<const SpanCorruptionObjective*>(&objective);
  return spans ? &spans->spans() : nullptr;
}
std::shared_ptr<const Objective> span_corruption(const SpanCorruption& s) { return std::make_shared<const SpanCorruptionObjective>(s); }

}  // namespace gyr
