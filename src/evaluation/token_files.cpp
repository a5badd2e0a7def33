// SPDX-License-Identifier: BSD-3-Clause
// Loss and perplexity over the windows of token files.
#include "kernels/printable.hpp"
#include "modules/objective.hpp"
#include "src/evaluation/evaluation.hpp"
#include "src/evaluation/mean.hpp"

namespace gyr {

namespace {

class TokenFileEvaluation : public Evaluation {
 public:
  TokenFileEvaluation(const DatasetOptions& options, const ModelConfig& model, Index limit) : dataset_(options) {
    model.objective->check_training(model);
    Index windows = 0;
    for (Index i = 0; i < dataset_.corpora(); ++i) windows += dataset_.per_epoch(i);
    const TextLengths lengths = model.objective->lengths(options.seq_length);
    passages_.lengths.assign(limit > 0 ? std::min(limit, windows) : windows, lengths.text);
    passages_.source_length = lengths.source;
    passages_.make = [this, model](Index i) {
      Sample s = dataset_.sample(i);
      Labelled l = model.objective->label({s.tokens, s.learned, s.begins, i, model.vocab_size, s.positions, s.classes, model.decoder_start_token_id});
      if (!s.positions.empty()) s.positions.pop_back();
      return Passage{std::move(l.tokens), std::move(l.labels), std::move(s.positions), std::move(l.source), std::move(l.types)};
    };
  }
  const Passages& passages() const override { return passages_; }

  Conclusion conclude(const std::vector<PassageScore>& scores) const override {
    Conclusion c;
    Mean loss;
    for (const PassageScore& s : scores) {
      loss.add(s.tokens, s.loss, s.squares);
      c.records.push_back({{"loss", s.tokens > 0 ? Json(s.loss / s.tokens) : Json()}, {"tokens", Index(s.tokens)}});
    }
    require(loss.count() > 0, Exit::data, "no token of the {} sequences is to be predicted; score more of them, or longer ones", scores.size());
    for (const std::string& note : dataset_.notes()) c.text += printable(note) + "\n";
    c.text += fmt::format("loss {:.6f} | perplexity {:.4f} | {} tokens of {} sequences", loss.value(), std::exp(loss.value()), Index(loss.count()),
                          scores.size());
    c.results = {{"loss", loss.value()},
                 {"loss_stderr", loss.error()},
                 {"perplexity", std::exp(loss.value())},
                 {"tokens", Index(loss.count())},
                 {"sequences", scores.size()}};
    return c;
  }

 private:
  Dataset dataset_;
  Passages passages_;
};

}  // namespace

std::unique_ptr<Evaluation> token_file_evaluation(const DatasetOptions& options, const ModelConfig& model, Index limit) {
  return std::make_unique<TokenFileEvaluation>(options, model, limit);
}

}  // namespace gyr
