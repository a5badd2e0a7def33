// SPDX-License-Identifier: BSD-3-Clause
// Objective preference: direct preference optimization (DPO, paired_loss.hpp). A pair is two consecutive texts, the chosen one first.
#include <cmath>

#include "modules/objectives/objective.hpp"
#include "modules/objectives/paired_loss.hpp"

namespace gyr {

namespace {

template <class T>
using PreferenceHead = FrontedHead<T, FinalNorm, PairedLoss>;
class Preference final : public Objective {
 public:
  explicit Preference(double beta) : beta_(beta) {}
  const char* name() const override { return "preference"; }
  bool writes_next_token() const override { return true; }
  double beta() const { return beta_; }

  Labelled label(const SampleView& s) const override {
    Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, next_tokens(s.tokens, s.learned)};
    l.values[text_of_row].assign(l.tokens.size(), -1);
    for (std::size_t i = 0; i + 1 < s.texts.size(); ++i)
      if (is_pair(s, i)) add(s.texts[i], s.texts[i + 1], l);
    return l;
  }
  std::vector<Figure> figures(const ObjectiveScores& scores) const override { return preferred(scores.margins); }
  bool predicts() const override { return true; }
  std::vector<Record> predict(const SampleView& s, const Labelled& l, std::span<const RowScore> scores) const override {
    NamedHostValues values = l.values;
    std::vector<double>&references = values[reference_of_text], log_probs(references.size(), 0);
    for (std::size_t r = 0; r < l.labels.size(); ++r)
      if (const Token text = values[text_of_row][r]; text >= 0) log_probs[text] -= scores[r].loss;
    std::vector<Record> records;
    for (std::size_t i = 0; i + 1 < s.texts.size(); ++i)
      if (const Token text = is_pair(s, i) ? text_of(s.texts[i], l) : -1; text >= 0) {
        const double margin = beta_ * (log_probs[text] - references[text] - (log_probs[text + 1] - references[text + 1]));
        records.push_back({{"pair", Index(s.texts[i].number / 2)},
                           {"chosen", log_probs[text]},
                           {"rejected", log_probs[text + 1]},
                           {"margin", margin},
                           {"accuracy", double(margin > 0)},
                           {"preference_loss", std::max(-margin, 0.0) + std::log1p(std::exp(-std::abs(margin)))}});
      }
    return records;
  }
  std::vector<std::string> metrics() const override { return {"preference_loss", "accuracy", "margin"}; }
  Index most_pairs(Index seq_length) const override { return std::max<Index>(1, (seq_length + 1) / 4); }  // a pair has 4 tokens or more
  std::vector<NamedField> fields(const ModelConfig&, Index seq_length) const override { return pair_fields(most_pairs(seq_length)); }
  std::vector<ScoringModel> scoring_models() const override { return {{"reference", preference(1), reference_of_text}}; }  // log-probabilities
  std::vector<LossSum> losses() const override { return {{label_of_pair}}; }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    Output output = output_of_tokens(c, table);
    output.pair_scale = beta_, output.terms = {};
    return make_typed<Head, PreferenceHead>(parameters.dtype(), c, output, parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }

 private:
  static bool is_pair(const SampleView& s, std::size_t i) { return s.texts[i].number % 2 == 0 && s.texts[i + 1].number == s.texts[i].number + 1; }

  // Text index of the rows of a text; -1 if no row has a target.
  static Token text_of(const TextSpan& text, const Labelled& l) {
    Token number = -1;
    for (Index t = text.first; t + 1 < text.first + text.count; ++t) number = std::max(number, l.values.at(text_of_row)[t]);
    return number;
  }

  // Adds a pair if both texts have target tokens.
  static void add(const TextSpan& chosen, const TextSpan& rejected, Labelled& l) {
    const auto mark = [&](const TextSpan& text, Token number) {
      for (Index t = text.first; t + 1 < text.first + text.count; ++t)
        if (l.labels[t] != ignored_label) l.values[text_of_row][t] = number;
    };
    const Token number = Token(l.values[reference_of_text].size());
    mark(chosen, number), mark(rejected, number + 1);
    if (text_of(chosen, l) < 0 || text_of(rejected, l) < 0) return mark(chosen, -1), mark(rejected, -1);
    l.values[label_of_pair].push_back(0);
    for (const TextSpan& text : {chosen, rejected}) l.values[reference_of_text].push_back(text.reference);
  }

  double beta_;
};

std::shared_ptr<const Objective> read_preference(Section& train, const ModelConfig&, const Objective& otherwise) {
  const auto* const before = dynamic_cast<const Preference*>(&otherwise);
  Section& s = train.section("preference", "direct preference optimization (DPO) on pairs of texts");
  const double beta = before ? before->beta() : 0.1;
  return preference(s.get("beta", beta, "DPO beta: scale of the log-ratio margin between chosen and rejected response").positive().finite());
}

const RegisteredObjective registered_preference({"preference", "direct preference optimization, DPO", read_preference});

}  // namespace

std::shared_ptr<const Objective> preference(double beta) { return std::make_shared<const Preference>(beta); }

}  // namespace gyr
