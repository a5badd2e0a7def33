// SPDX-License-Identifier: BSD-3-Clause
// Objective reward: a reward model, whose scalar head values a text at its last token, learns from pairs (reward_loss.hpp). A
// pair is two consecutive texts of the data, the chosen one first.
#include <algorithm>
#include <cmath>

#include "modules/objectives/objective.hpp"
#include "modules/objectives/reward_loss.hpp"

namespace gyr {

namespace {

template <class T>
using RewardHead = FrontedHead<T, FinalNorm, RewardLoss>;

class Reward final : public Objective {
 public:
  explicit Reward(double center) : center_(center) {}
  const char* name() const override { return "reward"; }
  bool gives_values() const override { return true; }
  double center() const { return center_; }

  Labelled label(const SampleView& s) const override {
    const Index length = Index(s.tokens.size()) - 1;
    Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, std::vector<Token>(std::size_t(length), ignored_label)};
    l.values[text_of_row].assign(std::size_t(length), -1);
    Token texts = 0;
    for (std::size_t i = 0; i + 1 < s.texts.size(); ++i) {
      if (!is_pair(s, i) || last_row(s.texts[i + 1], length) < s.texts[i + 1].first) continue;
      for (const TextSpan& text : {s.texts[i], s.texts[i + 1]}) l.values[text_of_row][std::size_t(last_row(text, length))] = texts++;
      l.values[label_of_pair].push_back(0);
    }
    return l;
  }
  std::vector<Figure> figures(const ObjectiveScores& scores) const override { return preferred(scores.margins); }
  bool predicts() const override { return true; }
  std::vector<Record> predict(const SampleView& s, const Labelled& l, std::span<const RowScore> rows) const override {
    std::vector<double> values(2 * l.values.at(label_of_pair).size());
    const std::vector<Token>& texts = l.values.at(text_of_row);
    for (std::size_t r = 0; r < texts.size(); ++r)
      if (texts[r] >= 0) values[std::size_t(texts[r])] = rows[r].loss;
    std::vector<Record> records;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < s.texts.size() && at < values.size(); ++i)
      if (is_pair(s, i)) {
        const double chosen = values[at], rejected = values[at + 1], margin = chosen - rejected;
        at += 2;
        records.push_back({{"pair", Index(s.texts[i].number / 2)},
                           {"chosen", chosen},
                           {"rejected", rejected},
                           {"margin", margin},
                           {"accuracy", double(margin > 0)},
                           {"reward_loss", std::max(-margin, 0.0) + std::log1p(std::exp(-std::abs(margin)))}});
      }
    return records;
  }
  std::vector<std::string> metrics() const override { return {"reward_loss", "accuracy", "margin", "chosen", "rejected"}; }
  Index most_pairs(Index seq_length) const override { return std::max<Index>(1, seq_length / 2); }
  std::vector<NamedField> fields(const ModelConfig&, Index seq_length) const override {
    const Index P = most_pairs(seq_length);
    return {ValueField<Token>{text_of_row, -1, 0, 2 * P}, ValueField<Token>{label_of_pair, ignored_label, P}};
  }
  std::vector<LossSum> losses() const override { return {{label_of_pair}}; }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    Output output = output_of_values;
    output.pair_scale = center_;
    return make_typed<Head, RewardHead>(parameters.dtype(), c, output, parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size); }

 private:
  static bool is_pair(const SampleView& s, std::size_t i) { return s.texts[i].number % 2 == 0 && s.texts[i + 1].number == s.texts[i].number + 1; }
  static Index last_row(const TextSpan& text, Index length) { return std::min(text.first + text.count, length) - 1; }

  double center_;
};

std::shared_ptr<const Objective> read_reward(Section& train, const ModelConfig&, const Objective& otherwise) {
  const auto* const before = dynamic_cast<const Reward*>(&otherwise);
  Section& s = train.section("reward", "reward models, trained on pairs of texts");
  return reward(s.get("center", before ? before->center() : 0, "weight of (s_chosen + s_rejected)^2 in the loss, which centers the rewards at 0")
                    .at_least(0)
                    .finite());
}

const RegisteredObjective registered_reward({"reward", "reward model: a value of each text, learnt from pairs", read_reward});

}  // namespace

std::shared_ptr<const Objective> reward(double center) { return std::make_shared<const Reward>(center); }

}  // namespace gyr
