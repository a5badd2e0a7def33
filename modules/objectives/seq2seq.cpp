// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/seq2seq.hpp"

#include <algorithm>

#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

namespace {

template <class T>
using PairHead = FrontedHead<T, FinalNorm>;

class Seq2SeqObjective final : public Objective {
 public:
  explicit Seq2SeqObjective(const Seq2Seq& s) : s_(s) {}
  const char* name() const override { return "seq2seq"; }
  Labelled label(const SampleView& s) const override { return label_pair(s_, s); }
  std::vector<Figure> figures(const ObjectiveScores& scores) const override { return {accuracy_of_rows("accuracy", scores.rows)}; }
  TextLengths lengths(Index tokens) const override { return {tokens, s_.source_length > 0 ? s_.source_length : tokens}; }
  bool has_source() const override { return true; }
  bool reads_pairs() const override { return true; }
  std::optional<Token> end_token() const override { return s_.end_token; }
  std::shared_ptr<const Objective> within(Index vocab_size) const override {
    Seq2Seq small = s_;
    small.end_token = std::min(small.end_token, Token(vocab_size - 1));
    return seq2seq(small);
  }
  void check_model(const ModelConfig& c) const override {
    require(s_.end_token < c.vocab_size, Exit::config, "train.seq2seq.end_token = {} must be below model.vocab_size = {}", s_.end_token,
            c.vocab_size);
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, PairHead>(parameters.dtype(), c, output_of_tokens(c, table), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }
  const Seq2Seq& settings() const { return s_; }

 private:
  Seq2Seq s_;
};

std::shared_ptr<const Objective> read_seq2seq(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("seq2seq", "encoder-decoder training on pairs of an encoder input and a text");
  Seq2Seq c;
  if (const auto* const before = dynamic_cast<const Seq2SeqObjective*>(&otherwise)) c = before->settings();
  c.end_token = otherwise.end_token().value_or(c.end_token);
  c.source_length =
      s.get("source_length", c.source_length, "maximum encoder input length, end token included; longer inputs are truncated; 0: train.seq_length")
          .unit("tokens")
          .at_least(0)
          .at_most(longest);
  c.end_token = s.get("end_token", c.end_token, "end token of encoder input and text (Hugging Face: eos_token_id)").at_least(0).at_most(most_tokens);
  return seq2seq(c);
}

const RegisteredObjective registered_seq2seq({"seq2seq", "encoder-decoder training on pairs", read_seq2seq});

// At most `capacity` tokens, the last of which is the end token.
std::vector<Token> ended(std::span<const Token> tokens, Index capacity, Token end) {
  std::vector<Token> all(tokens.begin(), tokens.begin() + std::min(Index(tokens.size()), capacity));
  if (!all.empty() && all.back() == end) return all;
  all.resize(std::min(Index(all.size()), capacity - 1));
  all.push_back(end);
  return all;
}

}  // namespace

Labelled label_pair(const Seq2Seq& c, const SampleView& s) {
  ensure(s.texts.size() == 1, "{} texts for one encoder input", s.texts.size());
  const Index capacity = Index(s.tokens.size()) - 1, given = s.texts[0].count;
  const std::vector<Token> text = ended(s.tokens.first(given), capacity, c.end_token);
  Labelled l;
  l.source = ended(s.source, c.source_length > 0 ? c.source_length : capacity, c.end_token);
  l.tokens.push_back(s.start);
  for (Index t = 0; t < Index(text.size()); ++t) {
    const bool predicted = t < given && s.tokens[t] == text[t];  // false for an end token that was appended
    l.labels.push_back(!predicted || s.learned[t] ? text[t] : ignored_label);
    l.tokens.push_back(text[t]);
  }
  l.tokens.resize(text.size());  // the last token is only a label, not an input
  l.tokens.resize(capacity, 0), l.labels.resize(capacity, ignored_label);
  return l;
}

std::shared_ptr<const Objective> seq2seq(const Seq2Seq& s) { return std::make_shared<const Seq2SeqObjective>(s); }

}  // namespace gyr
