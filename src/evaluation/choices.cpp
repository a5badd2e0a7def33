// SPDX-License-Identifier: BSD-3-Clause
// Multiple choice: the choice with the largest log-likelihood, in total, per byte and per token.
#include <algorithm>

#include "src/evaluation/examples.hpp"
#include "src/evaluation/mean.hpp"

namespace gyr {

namespace {

// Index of the largest element, the first of equal ones.
std::size_t best(const std::vector<double>& x) { return std::size_t(std::max_element(x.begin(), x.end()) - x.begin()); }

class ChoicesEvaluation : public Evaluation {
 public:
  ChoicesEvaluation(const std::filesystem::path& file, const std::string& delimiter, const TextSettings& settings) {
    visit_examples(file, settings.limit, [&](const Json& object, const std::string& place) { add(object, delimiter, settings, place); });
    passages_.make = [this](Index i) { return choices_[i].passage; };
  }
  const Passages& passages() const override { return passages_; }

  Conclusion conclude(const std::vector<PassageScore>& scores) const override {
    Conclusion c;
    Mean plain, by_byte, by_token;
    std::size_t at = 0;
    Index truncated = 0;
    for (std::size_t e = 0; e < questions_.size(); ++e) {
      const Question& q = questions_[e];
      std::vector<double> sum, per_byte, per_token;
      Json tokens = Json::array();
      for (std::size_t i = 0; i < q.bytes.size(); ++i, ++at) {
        sum.push_back(-scores[at].loss);
        per_byte.push_back(sum.back() / double(q.bytes[i]));
        per_token.push_back(sum.back() / double(choices_[at].tokens));
        tokens.push_back(choices_[at].tokens);
        truncated += choices_[at].truncated;
      }
      plain.add(best(sum) == q.answer), by_byte.add(best(per_byte) == q.answer), by_token.add(best(per_token) == q.answer);
      c.records.push_back({{"example", e},
                           {"answer", q.answer},
                           {"chosen", best(sum)},
                           {"chosen_norm", best(per_byte)},
                           {"chosen_token", best(per_token)},
                           {"log_likelihoods", sum},
                           {"bytes", q.bytes},
                           {"tokens", tokens}});
    }
    c.text = fmt::format(
        "accuracy {:.4f} ± {:.4f} | per byte {:.4f} ± {:.4f} | per token {:.4f} ± {:.4f} | {} examples, {} choices, {} truncated to the window",
        plain.value(), plain.error(), by_byte.value(), by_byte.error(), by_token.value(), by_token.error(), questions_.size(), choices_.size(),
        truncated);
    c.results = {{"acc", plain.value()},
                 {"acc_stderr", plain.error()},
                 {"acc_norm", by_byte.value()},
                 {"acc_norm_stderr", by_byte.error()},
                 {"acc_token", by_token.value()},
                 {"acc_token_stderr", by_token.error()},
                 {"examples", questions_.size()},
                 {"choices", choices_.size()},
                 {"cut", truncated}};
    return c;
  }

 private:
  struct Question {
    std::size_t answer;
    std::vector<std::size_t> bytes;  // length of each choice in bytes, without the delimiter
  };

  void add(const Json& object, const std::string& delimiter, const TextSettings& settings, const std::string& place) {
    const std::string& context = text_under(object, "context", place);
    const auto choices = object.find("choices"), answer = object.find("answer");
    require(choices != object.end() && choices->is_array() && choices->size() >= 2, Exit::data,
            "{}: 'choices' must be an array of at least two strings", place);
    require(answer != object.end() && answer->is_number_unsigned() && answer->get<std::size_t>() < choices->size(), Exit::data,
            "{}: 'answer' must be the number of the right choice, 0 to {}", place, choices->size() - 1);
    Question question{answer->get<std::size_t>(), {}};
    for (const Json& choice : *choices) {
      require(choice.is_string() && !choice.get_ref<const std::string&>().empty(), Exit::data,
              "{}: 'choices' holds something that is not a string, or an empty one", place);
      const auto& text = choice.get_ref<const std::string&>();
      question.bytes.push_back(text.size());
      choices_.push_back(continued(context, delimiter + text, settings, place));
      passages_.lengths.push_back(Index(choices_.back().passage.tokens.size()));
    }
    questions_.push_back(std::move(question));
  }

  std::vector<Question> questions_;
  std::vector<Continued> choices_;
  Passages passages_;
};

}  // namespace

std::unique_ptr<Evaluation> choices_evaluation(const std::filesystem::path& file, const std::string& delimiter, const TextSettings& settings) {
  return std::make_unique<ChoicesEvaluation>(file, delimiter, settings);
}

}  // namespace gyr
