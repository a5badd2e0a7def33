// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/validation.hpp"

namespace gyr {

Validator::Validator(Engine& engine) : engine_(engine), figures_(*engine.config().model.objective) {
  const std::vector<std::string>& names = engine.config().model.objective->classes();
  if (!names.empty()) classes_.emplace(names);
}

void Validator::add(const MicroBatches& source, int micros) {
  const bool reads = classes_ || !figures_.empty();
  Scores scores;
  const auto [sum, tokens] = engine_.evaluate(source, micros, reads ? &scores : nullptr);
  loss_ += sum, tokens_ += tokens;
  if (reads) count(scores);
}

// On the last stage, only the first tensor-parallel rank counts each row; the sums are then shared with all ranks.
void Validator::count(const Scores& scores) {
  const bool first = engine_.grid().tensor().rank() == 0;
  if (!figures_.empty()) {
    for (const ObjectiveScores& scores : scores)
      if (first) figures_.add(scores);
    figures_.sum_over_ranks(engine_.grid(), engine_.device());
  }
  if (!classes_) return;
  ClassCounts here(engine_.config().model.objective->classes());
  for (const ObjectiveScores& scores : scores)
    for (const RowScore& row : scores.rows)
      if (first && row.label != ignored_label) here.add(row.label, row.likeliest);
  std::vector<double>& counts = here.values();
  engine_.grid().world().start_all_reduce(engine_.device(), Tensor1<double>(counts.data(), Index(counts.size()))).host_wait();
  for (std::size_t i = 0; i < counts.size(); ++i) classes_->values()[i] += counts[i];
}

Validation Validator::result() const {
  Validation v{loss_ / double(tokens_), figures_.means()};
  if (classes_) v.figures = {{"accuracy", classes_->accuracy()}, {"macro F1", classes_->macro_f1()}, {"micro F1", classes_->micro_f1()}};
  return v;
}

}  // namespace gyr
