// SPDX-License-Identifier: BSD-3-Clause
// Accuracy and perplexity of the last word of texts, as in LAMBADA.
#include "src/evaluation/examples.hpp"
#include "src/evaluation/mean.hpp"

namespace gyr {

namespace {

class LastWordEvaluation : public Evaluation {
 public:
  LastWordEvaluation(const std::filesystem::path& file, const TextSettings& settings) {
    visit_examples(file, settings.limit, [&](const Json& object, const std::string& place) { add(object, settings, place); });
    passages_.make = [this](Index i) { return examples_[i].passage; };
  }
  const Passages& passages() const override { return passages_; }

  Conclusion conclude(const std::vector<PassageScore>& scores) const override {
    Conclusion c;
    Mean accuracy, loss;
    Index truncated = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const bool right = scores[i].hits == scores[i].tokens;
      accuracy.add(right), loss.add(scores[i].loss), truncated += examples_[i].truncated;
      c.records.push_back({{"example", i}, {"tokens", examples_[i].tokens}, {"log_likelihood", -scores[i].loss}, {"correct", right}});
    }
    const double perplexity = std::exp(loss.value());
    c.text = fmt::format("accuracy {:.4f} ± {:.4f} | perplexity {:.4f} ± {:.4f} | {} examples, {} truncated to the window", accuracy.value(),
                         accuracy.error(), perplexity, perplexity * loss.error(), scores.size(), truncated);
    c.results = {{"accuracy", accuracy.value()},
                 {"accuracy_stderr", accuracy.error()},
                 {"correct", Index(accuracy.sum())},
                 {"perplexity", perplexity},
                 {"perplexity_stderr", perplexity * loss.error()},
                 {"log_likelihood", -loss.sum()},
                 {"examples", scores.size()},
                 {"cut", truncated}};
    return c;
  }

 private:
  void add(const Json& object, const TextSettings& settings, const std::string& place) {
    std::string text = text_under(object, "text", place);
    // removes white space at the end; the new length is 0 if the text has nothing else, because npos + 1 is 0
    text.resize(text.find_last_not_of(white_space) + 1);
    const auto space = text.find_last_of(white_space);
    require(space != text.npos, Exit::data, "{}: the text must have at least two words", place);
    examples_.push_back(continued(text.substr(0, space), text.substr(space), settings, place));
    passages_.lengths.push_back(Index(examples_.back().passage.tokens.size()));
  }

  std::vector<Continued> examples_;
  Passages passages_;
};

}  // namespace

std::unique_ptr<Evaluation> last_word_evaluation(const std::filesystem::path& file, const TextSettings& settings) {
  return std::make_unique<LastWordEvaluation>(file, settings);
}

}  // namespace gyr
