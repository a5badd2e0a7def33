// SPDX-License-Identifier: BSD-3-Clause
// Loss and perplexity over the windows of token files.
#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/base/printable.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/objective.hpp"
#include "src/base/quantity.hpp"
#include "src/data/sample_view.hpp"
#include "src/evaluation/evaluation.hpp"
#include "src/evaluation/mean.hpp"
#include "src/evaluation/neighbour_overlap.hpp"

namespace gyr {

namespace {

Json json_of(const Record& record) {
  Json json;
  for (const auto& [name, value] : record) std::visit([&](const auto& v) { json[name] = v; }, value);
  return json;
}

class TokenFileEvaluation : public Evaluation {
 public:
  TokenFileEvaluation(const DatasetOptions& options, const ModelConfig& model, Index limit, const SampleCompletion& complete, bool overlap)
      : dataset_(options), model_(model), measures_overlap_(overlap && reads_neighbours(model)) {
    model.objective->check_training(model);
    if (complete) complete(dataset_);
    Index windows = 0;
    for (Index i = 0; i < dataset_.corpora(); ++i) windows += dataset_.per_epoch(i);
    const TextLengths lengths = model.objective->lengths(options.seq_length);
    passages_.lengths.assign(limit > 0 ? std::min(limit, windows) : windows, lengths.text);
    passages_.source_length = reads_neighbours(model) ? model.retrieval.source_length(lengths.text) : lengths.source;
    windows_ = passages_.count();
    if (model.objective->reads_pairs()) measure_pairs();
    if (windows_ == windows) add_remainders(limit > 0 ? limit - windows : dataset_.corpora());
    passages_.make = [this](Index i) {
      Sample s = sample(i);
      Labelled l = labelled(s, i);
      l.tokens.resize(std::size_t(passages_.lengths[i])), l.labels.resize(std::size_t(passages_.lengths[i]));
      if (!s.positions.empty()) s.positions.pop_back();
      if (model_.objective->predicts()) l.values = {};  // predictions are made from the scores of the rows
      Passage p{std::move(l.tokens), std::move(l.labels), std::move(s.positions), std::move(l.source)};
      p.neighbours = std::move(s.neighbours), p.neighbour_lengths = std::move(s.neighbour_lengths), p.values = std::move(l.values);
      return p;
    };
    if (!model.objective->predicts()) return;
    passages_.on_scores = [this](Index i, std::span<const RowScore> rows) {
      const Sample s = sample(i);
      predicted_[i] = model_.objective->predict(view_of(s, i, model_), labelled(s, i), rows);
    };
  }
  const Passages& passages() const override { return passages_; }

  Conclusion conclude(const std::vector<PassageScore>& scores) const override {
    Conclusion c;
    Mean loss;
    for (const PassageScore& s : scores) loss.add(s.tokens, s.loss, s.squares);
    for (const Index i : order_of_records()) {
      const PassageScore& s = scores[std::size_t(i)];
      if (!model_.objective->predicts())
        c.records.push_back({{"loss", s.tokens > 0 ? Json(s.loss / s.tokens) : Json()}, {"tokens", Index(s.tokens)}});
    }
    if (measures_overlap_) add_overlaps(c.records);
    require(loss.count() > 0 || !predicted_.empty(), Exit::data, "the {} sequences have no token to predict; score more of them, or longer ones",
            scores.size());
    for (const std::string& note : dataset_.notes()) c.text += printable(note) + "\n";
    if (left_out_ > 0)
      c.text += fmt::format("{} token{} after the last window {} not scored: a sample has --length tokens\n", left_out_, left_out_ > 1 ? "s" : "",
                            left_out_ > 1 ? "are" : "is");
    if (loss.count() > 0) add_loss(loss, scores.size(), c);
    add_predictions(c);
    return c;
  }

 private:
  static void add_loss(const Mean& loss, std::size_t sequences, Conclusion& c) {
    c.text += fmt::format("loss {:.6f} | perplexity {:.4f} | {} of {}", loss.value(), std::exp(loss.value()), counted(Index(loss.count()), "token"),
                          counted(Index(sequences), "sequence"));
    c.results = {{"loss", loss.value()},
                 {"loss_stderr", loss.error()},
                 {"perplexity", std::exp(loss.value())},
                 {"tokens", Index(loss.count())},
                 {"sequences", sequences}};
  }
  // A model with layers R predicts next tokens only, so that each record is that of a window.
  void add_overlaps(std::vector<Json>& records) const {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const std::optional<double> overlap = neighbour_overlap(sample(Index(i)), model_.retrieval);
      records[i]["overlap"] = overlap ? Json(*overlap) : Json();
    }
  }
  // Pairs in the order of the data, which their samples do not have; other passages as they are.
  std::vector<Index> order_of_records() const {
    std::vector<Index> order(std::size_t(passages_.count()));
    std::iota(order.begin(), order.end(), Index(0));
    if (model_.objective->reads_pairs()) std::ranges::sort(order, {}, [this](Index i) { return dataset_.place(i); });
    return order;
  }
  // Sets the length of each text to the position of its last label, and the source length to that of the longest
  // source.
  void measure_pairs() {
    passages_.source_length = 0;
    for (Index i = 0; i < windows_; ++i) {
      const Labelled l = labelled(dataset_.sample(i), i);
      passages_.lengths[i] = l.length();
      passages_.source_length = std::max(passages_.source_length, Index(l.source.size()));
    }
  }
  // Adds the remainder of each corpus after its last window. Next-token objectives score it as a shorter window; others
  // need full windows and skip it, and so do layers R, because no neighbours were found for it.
  void add_remainders(Index most) {
    for (Index c = 0; c < dataset_.corpora() && Index(rests_.size()) < most; ++c) {
      Sample rest = dataset_.rest(c);
      const Index tokens = Index(rest.tokens.size());
      if (!model_.objective->writes_next_token() || reads_neighbours(model_)) left_out_ += tokens;
      else if (tokens > 1) passages_.lengths.push_back(tokens - 1), rests_.push_back(std::move(rest));
    }
  }
  Sample sample(Index i) const { return i < windows_ ? dataset_.sample(i) : rests_.at(std::size_t(i - windows_)); }

  Labelled labelled(const Sample& s, Index number) const { return model_.objective->label(view_of(s, number, model_)); }

  void add_predictions(Conclusion& c) const {
    std::map<std::string, Mean> means;
    for (const auto& [passage, records] : predicted_)
      for (const Record& record : records) {
        c.records.push_back(json_of(record));
        for (const auto& [name, value] : record)
          if (const double* number = std::get_if<double>(&value)) means[name].add(*number);
      }
    std::string line;
    for (const std::string& name : model_.objective->metrics()) {
      if (!means.contains(name)) continue;
      c.results[name] = means.at(name).value();
      line += fmt::format("{} {:.6f} | ", name, means.at(name).value());
    }
    if (!line.empty()) c.text += fmt::format("\n{}{} predictions", line, c.records.size());
  }

  Dataset dataset_;
  ModelConfig model_;
  bool measures_overlap_;
  Passages passages_;
  Index windows_ = 0, left_out_ = 0;  // left_out_: number of tokens not scored
  std::vector<Sample> rests_;
  std::map<Index, std::vector<Record>> predicted_;
};

}  // namespace

std::unique_ptr<Evaluation> token_file_evaluation(const DatasetOptions& options, const ModelConfig& model, Index limit,
                                                  const SampleCompletion& complete, bool overlap) {
  return std::make_unique<TokenFileEvaluation>(options, model, limit, complete, overlap);
}

}  // namespace gyr
