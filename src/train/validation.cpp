// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/validation.hpp"

namespace gyr {

Validator::Validator(Engine& engine) : engine_(engine) {
  const std::vector<std::string>& names = engine.config().model.objective->classes();
  if (!names.empty()) classes_.emplace(names);
}

void Validator::add(const MicroBatches& source, int micros) {
  if (classes_) return count(source, micros);
  const auto [sum, tokens] = engine_.evaluate(source, micros);
  loss_ += sum, tokens_ += tokens;
}

// Each row is one rank's of the last stage to count, and all know the sums.
void Validator::count(const MicroBatches& source, int micros) {
  const Scores scores = engine_.scores(source, micros);
  ClassCounts here(engine_.config().model.objective->classes());
  double loss = 0;
  for (const auto& rows : scores)
    for (const RowScore& row : rows) {
      if (row.label == ignored_label || engine_.grid().tensor().rank() != 0) continue;
      loss += row.loss;
      here.add(row.label, row.likeliest);
    }
  std::vector<double>& counts = here.numbers();
  counts.push_back(loss);
  engine_.grid().world().start_all_reduce(engine_.device(), Tensor1<double>(counts.data(), Index(counts.size()))).host_wait();
  loss_ += counts.back();
  counts.pop_back();
  for (std::size_t i = 0; i < counts.size(); ++i) classes_->numbers()[i] += counts[i];
  tokens_ = Index(classes_->rows());
}

Validation Validator::result() const {
  Validation v{loss_ / double(tokens_), {}};
  if (classes_) v.classes = ClassScores{classes_->accuracy(), classes_->macro_f1(), classes_->micro_f1()};
  return v;
}

}  // namespace gyr
